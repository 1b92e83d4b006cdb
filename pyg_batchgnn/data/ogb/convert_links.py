"""Turns the splits of OGB's link data sets into arrays that can be mapped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pyg_batchgnn.data.errors import broken
from pyg_batchgnn.data.groups import EDGES
from pyg_batchgnn.data.layout import LinkArray
from pyg_batchgnn.data.links import INDEX, NEGATIVE_TARGETS, NEGATIVES
from pyg_batchgnn.data.ogb.split_file import read_split_file
from pyg_batchgnn.data.ogb.tables import OgbTable, StoredLinks

_AGAIN = "download the data set again"
_SPLITS = {"train": "train", "val": "valid", "test": "test"}


def link_files(table: OgbTable, folder: Path) -> list[Path]:
    """Returns the files of the splits."""
    return [folder / "split" / table.split / f"{part}.pt" for part in _SPLITS.values()]


def convert_link_splits(table: OgbTable, folder: Path, target: Path) -> None:
    """Writes the links of each split of a data set, with their negatives and attributes.

    Args:
        table: of the data set, which has links.
        folder: the data set's folder, with split/ in it.
        target: the folder that is written.

    Raises:
        DatasetNotFoundError: a file is missing.
        DatasetError: a file is damaged, or holds something else.
    """
    for split, file in zip(_SPLITS, link_files(table, folder), strict=True):
        found = read_split_file(file)
        arrays = _pairs(file, found) if table.links is StoredLinks.PAIRS else _targets(file, found)
        for name, values in arrays.items():
            path = target / f"{LinkArray(EDGES, split, name)}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, np.ascontiguousarray(values))


def _pairs(file: Path, found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns what is written of "edge", "edge_neg" and the attributes beside them."""
    arrays = {INDEX: _integers(file, found, "edge", (None, 2)).T}
    if "edge_neg" in found:
        arrays[NEGATIVES] = _integers(file, found, "edge_neg", (None, 2)).T
    count = arrays[INDEX].shape[1]
    for name in found.keys() - {"edge", "edge_neg"}:
        if found[name].shape[:1] != (count,):
            raise _unfit(file, name, found[name], f"[{count}, ...]")
        arrays[name] = found[name]
    return arrays


def _targets(file: Path, found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns what is written of "source_node", "target_node" and "target_node_neg"."""
    source = _integers(file, found, "source_node", (None,))
    target = _integers(file, found, "target_node", source.shape)
    arrays = {INDEX: np.stack([source, target])}
    if "target_node_neg" in found:
        arrays[NEGATIVE_TARGETS] = _integers(file, found, "target_node_neg", (len(source), None))
    return arrays


def _integers(
    file: Path, found: Mapping[str, np.ndarray], name: str, shape: tuple[int | None, ...]
) -> np.ndarray:
    """Returns an array of node ids of a shape, in which None stands for any size."""
    if name not in found:
        raise broken(file, name, f"is not among {sorted(found)}", _AGAIN)
    values = found[name]
    fits = values.ndim == len(shape) and all(
        want in (None, size) for size, want in zip(values.shape, shape, strict=True)
    )
    if not fits or values.dtype.kind not in "iu":
        wanted = ", ".join("n" if want is None else str(want) for want in shape)
        raise _unfit(file, name, values, f"integers [{wanted}]")
    return values


def _unfit(file: Path, name: str, values: np.ndarray, wanted: str) -> Exception:
    return broken(file, name, f"is {values.dtype} {list(values.shape)}, expected {wanted}", _AGAIN)
