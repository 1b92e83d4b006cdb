"""Folders that were changed behind the package's back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from pyg_batchgnn.data.files import file_sha256

Attack: TypeAlias = Callable[[Path], object]


def said(*path: str | int, value: Any) -> Attack:
    """META.json says something else in one place. A function as value is given what it said."""

    def rewrite(folder: Path) -> None:
        content = json.loads((folder / "META.json").read_text())
        place = content
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value(place[path[-1]]) if callable(value) else value
        (folder / "META.json").write_text(json.dumps(content))

    return rewrite


def holds(array: str, values: np.ndarray | Callable[[np.ndarray], np.ndarray]) -> Attack:
    """An array has other values, and META.json promises these. A function is given the old."""

    def rewrite(folder: Path) -> None:
        file = folder / f"{array}.npy"
        new = values(np.load(file)) if callable(values) else values
        np.save(file, new)
        promise = {"dtype": new.dtype.name, "shape": list(new.shape), "sha256": file_sha256(file)}
        said("arrays", array, value=promise)(folder)

    return rewrite
