"""Loads parts from a folder, for any number of ranks."""

from __future__ import annotations

import bisect
from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import EDGES, HOMOGENEOUS, NODES, Group, attribute_of, split_array, split_of
from pyg_batchgnn.data.files import META_FILE, broken, map_tensor, verify_tensor
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.checks import check_comm, with_files
from pyg_batchgnn.partition.folder_meta import PartitionMeta, part_name, read_partition_meta
from pyg_batchgnn.partition.part import Part, directory_slice
from pyg_batchgnn.partition.ranges import Load, balanced_offsets

#: Rows of saved parts, as (part, begin, end).
_Pieces = list[tuple[int, int, int]]

_REMEDY = "restore the file or partition again"


def load_partition(folder: str | Path, comm: Communicator) -> Part:
    """Reads this rank's part of a saved partition. Collective.

    With as many ranks as parts every array is mapped from its file. With another number the graph
    is cut anew: internal ids stay, each rank gets a contiguous range of them, balanced by nodes,
    edges and training nodes as far as ranges go (`balanced_offsets`), and maps what lies in one
    file and copies what lies in several. `Part.node` then ascends only within a saved part.

    Args:
        folder: a folder that `save_partition` wrote; the same on every rank.
        comm: the communicator of all ranks.

    Raises:
        DatasetError: on every rank, where a file is damaged, altered, foreign or missing on one of
            them.
        AgreementError: ranks read different folders.
    """
    check_comm(comm)
    path = Path(folder).expanduser()
    meta = with_files(comm, lambda: read_partition_meta(path))
    comm.check_agreement({"partition": meta.digest})
    return with_files(comm, lambda: _Folder(path, meta).part(comm.rank, comm.size))


def verify_partition(folder: str | Path) -> int:
    """Compares every file with META.json, however large; returns the number of files compared.

    Raises:
        DatasetError: a file differs.
    """
    path = Path(folder).expanduser()
    meta = read_partition_meta(path)
    for array, promise in meta.arrays.items():
        verify_tensor(meta.file(path, array), array, promise)
    return len(meta.arrays)


class _Folder:
    """A folder that is being read."""

    def __init__(self, path: Path, meta: PartitionMeta) -> None:
        self._path, self._meta = path, meta
        self._kept: dict[str, Tensor] = {}

    def part(self, rank: int, ranks: int) -> Part:
        """Returns the part of one of ``ranks`` ranks."""
        old = self._meta.book
        book = old if ranks == old.parts else PartitionBook(self._new_offsets(ranks))
        own = book.nodes_of(rank)
        pieces = [(number, *_overlap(own, old.nodes_of(number))) for number in range(old.parts)]
        rows = [piece for piece in pieces if piece[1] < piece[2]] or [(0, 0, 0)]
        edges = [(number, *self._edges(number, begin, end)) for number, begin, end in rows]
        degrees = torch.cat([self._indptr(number)[begin : end + 1].diff() for number, begin, end in rows])
        indptr = torch.zeros(len(own) + 1, dtype=torch.int64)
        torch.cumsum(degrees, 0, out=indptr[1:])
        nodes = old.num_nodes
        return Part(
            schema=HOMOGENEOUS,
            book=book,
            number=rank,
            node=self._checked("node", self._rows("node", rows), nodes),
            relations=(
                InEdges(
                    indptr if len(rows) > 1 or ranks != old.parts else self._indptr(rank),
                    self._checked("indices", self._rows("indices", edges), nodes),
                    self._checked("edge_ids", self._rows("edge_ids", edges), self._meta.num_edges),
                ),
            ),
            edge_counts=(self._meta.num_edges,),
            directory=self._checked("directory", self._directory(rank, ranks), nodes),
            attributes=self._attributes(rows, edges),
            splits={NODES: {name: self._split(name, own) for name in self._splits()}},
        )

    def _attributes(self, rows: _Pieces, edges: _Pieces) -> dict[Group, dict[str, Tensor]]:
        found: dict[Group, dict[str, Tensor]] = {NODES: {}, EDGES: {}}
        for array in self._names():
            if attribute := attribute_of(array):
                group, name = attribute
                found[group][name] = self._rows(array, rows if group.is_node else edges)
        return found

    # Files #######################################################################################

    def _open(self, number: int, name: str) -> Tensor:
        array = f"{part_name(number)}/{name}"
        if array not in self._kept:
            promise = self._meta.arrays.get(array)
            if promise is None:
                raise broken(self._path / META_FILE, array, "not listed", _REMEDY)
            self._kept[array] = map_tensor(self._meta.file(self._path, array), array, promise)
        return self._kept[array]

    def _names(self) -> list[str]:
        """Returns the arrays that every part has."""
        prefix = f"{part_name(0)}/"
        return [array.removeprefix(prefix) for array in self._meta.arrays if array.startswith(prefix)]

    def _splits(self) -> list[str]:
        return [split[1] for array in self._names() if (split := split_of(array)) is not None]

    def _rows(self, name: str, pieces: _Pieces) -> Tensor:
        """Returns rows of an array, as (part, begin, end); a view of the file where they lie in
        one."""
        found = []
        for number, begin, end in pieces:
            whole = self._open(number, name)
            if end > len(whole):
                file = self._meta.file(self._path, f"{part_name(number)}/{name}")
                raise broken(file, name, f"has {len(whole)} rows, {end} are needed", "partition again")
            found.append(whole[begin:end])
        return found[0] if len(found) == 1 else torch.cat(found)

    def _checked(self, name: str, values: Tensor, size: int) -> Tensor:
        low, high = ops.extent(values)
        if values.numel() and (low < 0 or high >= size):
            fact = f"holds {low if low < 0 else high}, which is outside [0, {size})"
            raise broken(self._path, name, fact, _REMEDY)
        return values

    # Topology ####################################################################################

    def _indptr(self, number: int) -> Tensor:
        array = f"{part_name(number)}/indptr"
        new = array not in self._kept
        indptr, edges = (
            self._open(number, "indptr"),
            self._meta.arrays[f"{part_name(number)}/indices"].shape[0],
        )
        ends = int(indptr[0]), int(indptr[-1])
        if new and (ends != (0, edges) or not ops.is_ascending(indptr)):
            fact = f"goes from {ends[0]} to {ends[1]}, expected 0 to {edges}, ascending"
            file = self._meta.file(self._path, array)
            raise broken(file, "indptr", fact, _REMEDY)
        return indptr

    def _edges(self, number: int, begin: int, end: int) -> tuple[int, int]:
        indptr = self._indptr(number)
        return int(indptr[begin]), int(indptr[end])

    def _new_offsets(self, ranks: int) -> list[int]:
        """Returns ranges of internal ids with nearly equal nodes, edges and training nodes."""
        old = self._meta.book
        starts, parts = old.offsets.tolist(), range(old.parts)
        edges = [0, *accumulate(self._meta.arrays[f"{part_name(n)}/indices"].shape[0] for n in parts)]
        has_train = "train" in self._splits()
        train = [self._open(number, split_array(NODES, "train")) for number in parts] if has_train else []
        trained = [0, *accumulate(len(split) for split in train)]

        def place(row: int) -> tuple[int, int]:
            number = bisect.bisect_right(starts, row, 0, old.parts) - 1
            return number, row - starts[number]

        def edges_before(row: int) -> int:
            number, at = place(row)
            return edges[number] + int(self._indptr(number)[at])

        def trained_before(row: int) -> int:
            number, at = place(row)
            return trained[number] + int(torch.searchsorted(train[number], at))

        loads: list[Load] = [lambda row: row, edges_before, *([trained_before] if train else [])]
        return balanced_offsets(old.num_nodes, loads, ranks)

    # What is not by node of the part #############################################################

    def _directory(self, rank: int, ranks: int) -> Tensor:
        old = self._meta.book
        own = directory_slice(old.num_nodes, ranks, rank)
        held = [directory_slice(old.num_nodes, old.parts, number) for number in range(old.parts)]
        pieces = [(number, *_overlap(own, theirs)) for number, theirs in enumerate(held)]
        return self._rows("directory", [piece for piece in pieces if piece[1] < piece[2]] or [(0, 0, 0)])

    def _split(self, name: str, own: range) -> Tensor:
        found = [torch.empty(0, dtype=torch.int64)]
        for number in range(self._meta.book.parts):
            theirs = self._meta.book.nodes_of(number)
            begin, end = _overlap(own, theirs)
            if begin >= end:
                continue
            split = self._checked(name, self._open(number, split_array(NODES, name)), len(theirs))
            first, last = torch.searchsorted(split, torch.tensor([begin, end])).tolist()
            found.append(split[first:last] + (theirs.start - own.start))
        return torch.cat(found)


def _overlap(own: range, theirs: range) -> tuple[int, int]:
    """Returns what two ranges have in common, counted from the beginning of the second."""
    begin, end = max(own.start, theirs.start), min(own.stop, theirs.stop)
    return (begin - theirs.start, max(begin, end) - theirs.start) if begin < end else (0, 0)
