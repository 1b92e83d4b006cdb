"""The files of a saved partition, opened and checked."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data import Group, edge_array
from pyg_batchgnn.data.files import META_FILE, broken, map_tensor
from pyg_batchgnn.partition.folder_meta import PartitionMeta, part_name

_REMEDY = "restore the file or partition again"


class PartRows(NamedTuple):
    """Some rows of an array of a saved part.

    Attributes:
        number: the number of the part.
        begin, end: the rows.
    """

    number: int
    begin: int
    end: int

    def moved(self, by: int) -> PartRows:
        """Returns the piece further down."""
        return PartRows(self.number, self.begin + by, self.end + by)


def joined(pieces: list[PartRows]) -> list[PartRows]:
    """Returns the same rows with adjacent pieces made one, and one empty piece where there are
    none."""
    found: list[PartRows] = []
    for piece in pieces:
        if found and found[-1].number == piece.number and found[-1].end == piece.begin:
            found[-1] = found[-1]._replace(end=piece.end)
        elif piece.begin < piece.end:
            found.append(piece)
    return found or [PartRows(0, 0, 0)]


class PartFiles:
    """A folder that is being read.

    Args:
        path: the folder.
        meta: its META.json.
    """

    def __init__(self, path: Path, meta: PartitionMeta) -> None:
        self._path, self._meta = path, meta
        self._kept: dict[str, Tensor] = {}

    def open(self, number: int, name: str) -> Tensor:
        """Maps an array of a part."""
        array = f"{part_name(number)}/{name}"
        if array not in self._kept:
            promise = self._meta.arrays.get(array)
            if promise is None:
                raise broken(self._path / META_FILE, array, "not listed", _REMEDY)
            self._kept[array] = map_tensor(self._meta.file(self._path, array), array, promise)
        return self._kept[array]

    def rows(self, name: str, pieces: list[PartRows]) -> Tensor:
        """Returns rows of an array; a view of the file where they lie in one."""
        found = []
        for number, begin, end in pieces:
            whole = self.open(number, name)
            if end > len(whole):
                file = self._meta.file(self._path, f"{part_name(number)}/{name}")
                raise broken(file, name, f"has {len(whole)} rows, {end} are needed", "partition again")
            found.append(whole[begin:end])
        return found[0] if len(found) == 1 else torch.cat(found)

    def checked(self, name: str, values: Tensor, size: int) -> Tensor:
        """Returns values, which must lie in [0, size)."""
        low, high = ops.extent(values)
        if values.numel() and (low < 0 or high >= size):
            fact = f"holds {low if low < 0 else high}, which is outside [0, {size})"
            raise broken(self._path, name, fact, _REMEDY)
        return values

    def indptr(self, number: int, relation: Group) -> Tensor:
        """Returns where the in-edges of a part's nodes begin."""
        name = edge_array("indptr", relation)
        array = f"{part_name(number)}/{name}"
        new = array not in self._kept
        indptr = self.open(number, name)
        edges = self.num_edges(number, relation)
        ends = int(indptr[0]), int(indptr[-1])
        if new and (ends != (0, edges) or not ops.is_ascending(indptr)):
            fact = f"goes from {ends[0]} to {ends[1]}, expected 0 to {edges}, ascending"
            raise broken(self._meta.file(self._path, array), name, fact, _REMEDY)
        return indptr

    def num_edges(self, number: int, relation: Group) -> int:
        """Returns the number of edges of a relation in a part."""
        return self._meta.arrays[f"{part_name(number)}/{edge_array('indices', relation)}"].shape[0]
