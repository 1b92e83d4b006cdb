"""META.json: what a folder of arrays holds, and whether it still does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pyg_batchgnn.data.errors import broken
from pyg_batchgnn.data.files import META_FILE, check_sha256, file_sha256, read_header, read_json
from pyg_batchgnn.data.files.array_file import CHECKSUM_BYTES

FORMAT = "pyg_batchgnn.dataset"
VERSION = 1


@dataclass(frozen=True)
class Meta:
    """Contents of META.json. A folder made by hand may leave out any of it.

    Attributes:
        name: name of the data set.
        source: where it came from.
        num_nodes: number of nodes, or None: to be taken from the arrays.
        num_classes: number of classes, or None: to be taken from the labels.
        arrays: for each array its file, dtype, shape and sha256; empty where the folder was made by hand.
        origin: what the folder was made from, as its maker wants to compare it later.
    """

    name: str | None = None
    source: str | None = None
    num_nodes: int | None = None
    num_classes: int | None = None
    arrays: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)


def read_meta(folder: Path) -> Meta:
    """Read a folder's META.json; an empty `Meta` where there is none.

    Raises:
        DatasetError: damaged, of another format or a newer version, or an entry of the wrong type.
    """
    path = folder / META_FILE
    if not path.is_file():
        return Meta()
    content = read_json(path)
    if content.get("format", FORMAT) != FORMAT:
        fact = f"is {content['format']!r}, expected {FORMAT!r}"
        raise broken(path, "format", fact, "this folder holds something else: give a data set's folder")
    if content.get("version", VERSION) != VERSION:
        fact = f"is {content['version']!r}, this release reads {VERSION}"
        raise broken(path, "version", fact, "update pyg_batchgnn or make the folder again")
    if "format" in content and not isinstance(content.get("arrays"), dict):
        raise broken(path, "arrays", "missing or not an object", "make the folder again")
    return Meta(
        name=_text(path, content, "name"),
        source=_text(path, content, "source"),
        num_nodes=_count(path, content, "num_nodes"),
        num_classes=_count(path, content, "num_classes"),
        arrays=_arrays(path, content),
        origin=content.get("origin") or {},
    )


def write_meta(folder: Path, meta: Meta) -> None:
    """Write META.json for the .npy files in a folder, with their dtypes, shapes and checksums.

    `meta.arrays` is taken from the files themselves. The folder must hold no other .npy files.
    """
    arrays = {}
    for path in sorted(folder.glob("*.npy")):
        with path.open("rb") as stream:
            header = read_header(stream, path, path.stem)
        arrays[path.stem] = {
            "file": path.name,
            "dtype": header.dtype.name,
            "shape": list(header.shape),
            "sha256": file_sha256(path),
        }
    edges = arrays["edge_index"]["shape"] if "edge_index" in arrays else [2, 0]
    content = {
        "format": FORMAT,
        "version": VERSION,
        "name": meta.name,
        "source": meta.source,
        "num_nodes": meta.num_nodes,
        "num_edges": edges[1],
        "num_classes": meta.num_classes,
        "arrays": arrays,
        "origin": dict(meta.origin),
    }
    (folder / META_FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def check_against_meta(meta: Meta, path: Path, array: str, values: np.ndarray) -> None:
    """Raise unless an array has the dtype, shape and (files up to `CHECKSUM_BYTES`) sha256 promised."""
    if not meta.arrays:
        return
    remedy = "the file was altered or belongs to another data set: restore it or make the folder again"
    promise = meta.arrays.get(array)
    if promise is None:
        raise broken(path, array, f"{META_FILE} does not know this array", remedy)
    if values.dtype.name != promise["dtype"]:
        raise broken(path, array, f"dtype is {values.dtype}, {META_FILE} says {promise['dtype']}", remedy)
    if list(values.shape) != promise["shape"]:
        raise broken(
            path, array, f"shape is {list(values.shape)}, {META_FILE} says {promise['shape']}", remedy
        )
    if path.stat().st_size <= CHECKSUM_BYTES:
        check_sha256(path, array, promise["sha256"], META_FILE, remedy)


def _text(path: Path, content: dict[str, Any], key: str) -> str | None:
    value = content.get(key)
    if value is not None and not isinstance(value, str):
        raise broken(path, key, f"is {value!r}, expected text", "correct it")
    return value


def _count(path: Path, content: dict[str, Any], key: str) -> int | None:
    value = content.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise broken(path, key, f"is {value!r}, expected a whole number, 0 or more", "correct it")
    return value


def _arrays(path: Path, content: dict[str, Any]) -> dict[str, Mapping[str, Any]]:
    arrays = content.get("arrays") or {}
    wanted = {"file", "dtype", "shape", "sha256"}
    for array, promise in arrays.items():
        if not isinstance(promise, dict) or not wanted <= promise.keys():
            raise broken(path, array, f"its entry lacks one of {sorted(wanted)}", "make the folder again")
    return arrays
