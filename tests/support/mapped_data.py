"""Graphs whose attributes lie in mapped files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


def mapped(table: Tensor, path: Path) -> Tensor:
    """Writes a table to a file. Returns it mapped from there."""
    words = table.view(torch.int16) if table.dtype is torch.bfloat16 else table
    np.save(path, words.numpy())
    return torch.from_numpy(np.load(path, mmap_mode="c")).view(table.dtype)


def with_files(data: Any, folder: Path, names: tuple[str, ...] = ("x", "edge_attr")) -> Any:
    """Returns a ``Data`` or ``HeteroData`` with the attributes of these names in mapped files."""
    found = data.clone()
    for number, store in enumerate(found.stores):
        for name in names:
            if name in store:
                store[name] = mapped(store[name], folder / f"{name}-{number}.npy")
    return found
