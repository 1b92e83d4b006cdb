"""Loads a saved partition, for any number of ranks."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import attribute_of, decoding_array, edge_array, split_array, split_of, to_codes
from pyg_batchgnn.data.files import META_FILE, broken, map_tensor, verify_tensor
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.checks import check_comm, with_files
from pyg_batchgnn.partition.folder_meta import FORMAT, PartitionMeta, part_name, read_partition_meta
from pyg_batchgnn.partition.part import Part, directory_slices
from pyg_batchgnn.types import Group


def load_partition(folder: str | Path, comm: Communicator) -> Part:
    """Reads this rank's part of a partition, from a folder that `save_partition` wrote. Collective.

    >>> part = load_partition("saved-parts", comm)

    With as many ranks as parts, every array is mapped from its file. With another number the graph
    is cut anew: each rank gets a contiguous range of the nodes of each type, in the order of the
    saved parts, balanced by nodes, in-edges and training nodes as far as ranges can be
    (`balanced_offsets`). It maps arrays that lie in one file, and copies those that lie in several.
    `Part.node` then ascends only within each saved part. In a graph of one node type internal ids
    stay.

    Args:
        folder: the folder, on a file system that all ranks see.
        comm: the communicator of all ranks.

    Raises:
        DatasetError: on every rank, if a file is damaged, altered, foreign or missing on one of
            them.
        AgreementError: ranks read different folders.
    """
    check_comm(comm)
    path = Path(folder).expanduser()
    meta = with_files(comm, lambda: read_partition_meta(path))
    comm.check_agreement({"partition": meta.digest})

    def part() -> Part:
        with FORMAT.parsing(path):
            return _Folder(path, meta).part(comm.rank, comm.size)

    return with_files(comm, part)


def verify_partition(folder: str | Path) -> int:
    """Compares every file with its checksum in META.json. Returns the number of files. Raises
    `DatasetError` if one differs or is missing."""
    path = Path(folder).expanduser()
    meta = read_partition_meta(path)
    for array, promise in meta.arrays.items():
        verify_tensor(meta.file(path, array), array, promise)
    return len(meta.arrays)


class _Folder:
    def __init__(self, path: Path, meta: PartitionMeta) -> None:
        self._meta, self._files = meta, PartFiles(path, meta)

    def part(self, rank: int, ranks: int) -> Part:
        schema, old = self._meta.schema, self._meta.book
        cuts = (self._cuts_of(number, ranks) for number in range(schema.num_types))
        recut = Recut.none(old) if ranks == old.parts else Recut(old, tuple(cuts))
        pieces = [joined(recut.pieces(rank, number)) for number in range(schema.num_types)]
        rows = dict(zip(schema.node_groups, pieces, strict=True))
        relations = []
        for group, target, count in zip(
            schema.edge_groups, schema.target_types, self._meta.edge_counts, strict=True
        ):
            rows[group] = joined([self._edges(group, piece) for piece in pieces[target]])
            relations.append(self._relation(recut, group, pieces[target], rows[group], count))
        nodes = [
            piece.moved(old.nodes_of(piece.number, number).start - old.nodes_of(piece.number).start)
            for number, own in enumerate(pieces)
            for piece in own
        ]
        node = self._files.rows("node", joined(nodes))
        for number, own in enumerate(node.split(recut.book.sizes[rank].tolist())):
            self._files.checked("node", own, old.num_nodes_of(number))
        return Part(
            schema=schema,
            book=recut.book,
            number=rank,
            node=node,
            relations=tuple(relations),
            edge_counts=self._meta.edge_counts,
            directory=self._directory(recut, rank),
            attributes=self._attributes(rows),
            splits={
                group: {
                    name: self._split(recut, rank, group, number, name) for name in self._splits_of(group)
                }
                for number, group in enumerate(schema.node_groups)
            },
        )

    def _relation(
        self, recut: Recut, group: Group, nodes: list[PartRows], edges: list[PartRows], count: int
    ) -> InEdges:
        """Returns the in-edges of a relation, from the rows ``edges`` of the saved parts."""
        files, (first, *more) = self._files, nodes
        indptr = files.indptr(first.number, group)
        if more or (first.begin, first.end) != (0, len(indptr) - 1):
            degrees = [files.indptr(n, group)[begin : end + 1].diff() for n, begin, end in nodes]
            indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cat(degrees).cumsum(0)])
        names = [edge_array(name, group) for name in ("indices", "edge_ids")]
        indices = files.checked(names[0], files.rows(names[0], edges), recut.old.num_nodes)
        edge_ids = files.checked(names[1], files.rows(names[1], edges), count)
        return InEdges(indptr, recut.renumbered(indices), edge_ids)

    def _edges(self, group: Group, nodes: PartRows) -> PartRows:
        indptr = self._files.indptr(nodes.number, group)
        return PartRows(nodes.number, int(indptr[nodes.begin]), int(indptr[nodes.end]))

    def _attributes(self, rows: dict[Group, list[PartRows]]) -> dict[Group, dict[str, Tensor]]:
        found: dict[Group, dict[str, Tensor]] = {group: {} for group in rows}
        for array in self._names():
            attribute = attribute_of(array)
            if attribute is not None and attribute[0] in rows:
                group, name = attribute
                values = self._files.rows(array, rows[group])
                found[group][name] = self._files.decoded(decoding_array(group, name), values)
        return found

    def _names(self) -> list[str]:
        prefix = f"{part_name(0)}/"
        return [array.removeprefix(prefix) for array in self._meta.arrays if array.startswith(prefix)]

    def _splits_of(self, group: Group) -> list[str]:
        found = map(split_of, self._names())
        return [split[1] for split in found if split is not None and split[0] == group]

    def _cuts_of(self, node_type: int, ranks: int) -> list[int]:
        old, schema = self._meta.book, self._meta.schema
        starts, parts = [0, *accumulate(old.sizes[:, node_type].tolist())], range(old.parts)

        def place(row: int) -> tuple[int, int]:
            number = bisect.bisect_right(starts, row, 0, old.parts) - 1
            return number, row - starts[number]

        def edges_of(group: Group) -> Load:
            edges = [0, *accumulate(self._files.num_edges(number, group) for number in parts)]

            def before(row: int) -> int:
                number, at = place(row)
                return edges[number] + int(self._files.indptr(number, group)[at])

            return before

        into = [edges_of(schema.edge_groups[number]) for number in schema.relations_into[node_type]]
        loads: list[Load] = [lambda row: row, lambda row: sum(before(row) for before in into)]
        group = schema.node_groups[node_type]
        if "train" in self._splits_of(group):
            train = [self._files.open(number, split_array(group, "train")) for number in parts]
            trained = [0, *accumulate(len(split) for split in train)]

            def trained_before(row: int) -> int:
                number, at = place(row)
                return trained[number] + int(torch.searchsorted(train[number], at))

            loads.append(trained_before)
        return balanced_offsets(starts[-1], loads, ranks)

    def _directory(self, recut: Recut, rank: int) -> Tensor:
        old, found = recut.old, list[PartRows]()
        held = [directory_slices(old, number) for number in range(old.parts)]
        for node_type, own in enumerate(directory_slices(recut.book, rank)):
            for number, theirs in enumerate(held):
                before = sum(map(len, theirs[:node_type]))
                found.append(PartRows(number, *overlap(own, theirs[node_type])).moved(before))
        values = self._files.rows("directory", joined(found))
        return recut.renumbered(self._files.checked("directory", values, old.num_nodes))

    def _split(self, recut: Recut, rank: int, group: Group, node_type: int, name: str) -> Tensor:
        found, before = [torch.empty(0, dtype=torch.int64)], 0
        for number, begin, end in recut.pieces(rank, node_type):
            if begin >= end:
                continue
            theirs = len(recut.old.nodes_of(number, node_type))
            split = self._files.checked(name, self._files.open(number, split_array(group, name)), theirs)
            first, last = torch.searchsorted(split, torch.tensor([begin, end])).tolist()
            found.append(split[first:last] + (before - begin))
            before += end - begin
        return torch.cat(found)


_REMEDY = "restore the file or partition again"


class PartRows(NamedTuple):
    """A range of rows of an array in a saved part."""

    number: int  # the part
    begin: int  # the first row
    end: int  # the row behind the last one

    def moved(self, by: int) -> PartRows:
        return PartRows(self.number, self.begin + by, self.end + by)


def joined(pieces: list[PartRows]) -> list[PartRows]:
    """Joins ranges that follow each other in one part. Returns at least one, which may be empty."""
    found: list[PartRows] = []
    for piece in pieces:
        if found and found[-1].number == piece.number and found[-1].end == piece.begin:
            found[-1] = found[-1]._replace(end=piece.end)
        elif piece.begin < piece.end:
            found.append(piece)
    return found or [PartRows(0, 0, 0)]


class PartFiles:
    """The files of a saved partition, each mapped once."""

    def __init__(self, path: Path, meta: PartitionMeta) -> None:
        self._path, self._meta = path, meta
        self._kept: dict[str, Tensor] = {}

    def open(self, number: int, name: str) -> Tensor:
        array = f"{part_name(number)}/{name}"
        if array not in self._kept:
            promise = self._meta.arrays.get(array)
            if promise is None:
                raise broken(self._path / META_FILE, array, "not listed", _REMEDY)
            self._kept[array] = map_tensor(self._meta.file(self._path, array), array, promise)
        return self._kept[array]

    def rows(self, name: str, pieces: list[PartRows]) -> Tensor:
        """Returns the rows of an array; a view of the file if they lie in one."""
        found = []
        for number, begin, end in pieces:
            whole = self.open(number, name)
            if end > len(whole):
                file = self._meta.file(self._path, f"{part_name(number)}/{name}")
                raise broken(file, name, f"has {len(whole)} rows, {end} are needed", "partition again")
            found.append(whole[begin:end])
        return found[0] if len(found) == 1 else torch.cat(found)

    def decoded(self, array: str, values: Tensor) -> Tensor:
        """Returns ``values`` as an int8-quantised table if ``array``, their decoding, is there."""
        promise = self._meta.arrays.get(array)
        if promise is None:
            return values
        file = self._meta.file(self._path, array)
        return to_codes(values, map_tensor(file, array, promise), file, array)

    def checked(self, name: str, values: Tensor, size: int) -> Tensor:
        """Returns the values. Raises `DatasetError` unless they lie in [0, size)."""
        low, high = ops.extent(values)
        if values.numel() and (low < 0 or high >= size):
            fact = f"holds {low if low < 0 else high}, which is outside [0, {size})"
            raise broken(self._path, name, fact, _REMEDY)
        return values

    def indptr(self, number: int, relation: Group) -> Tensor:
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
        return self._meta.arrays[f"{part_name(number)}/{edge_array('indices', relation)}"].shape[0]


_IDS = 1 << 17  # ids that are renumbered at a time


@dataclass(frozen=True)
class Recut:
    """A saved partition, cut for another number of ranks. The nodes of each type form a row, by
    saved part, then by original id, and each rank gets a range of every row. So internal ids stay
    in a graph of one node type. With several types, whole ranges of them move."""

    old: PartitionBook  # the book of the saved parts
    #: by node type: [ranks + 1], where each rank's range begins in the row of the type
    cuts: tuple[Sequence[int], ...]

    @classmethod
    def none(cls, old: PartitionBook) -> Recut:
        return cls(old, tuple(starts.tolist() for starts in _starts(old)))

    @cached_property
    def book(self) -> PartitionBook:
        sizes = torch.stack([torch.tensor(cuts).diff() for cuts in self.cuts], dim=1)
        return PartitionBook([0, *sizes.flatten().cumsum(0).tolist()], len(self.cuts))

    def pieces(self, rank: int, node_type: int) -> list[PartRows]:
        own = range(*self.cuts[node_type][rank : rank + 2])
        held = _ranges(self._starts[node_type])
        return [PartRows(number, *overlap(own, theirs)) for number, theirs in enumerate(held)]

    def renumbered(self, internal: Tensor) -> Tensor:
        """Returns the new internal ids of old ones."""
        if self.book.num_types == 1 or self.book == self.old:
            return internal
        firsts, shifts = self._shifts
        found = torch.empty_like(internal)
        for new, old in zip(found.split(_IDS), internal.split(_IDS), strict=True):
            new.copy_(old + shifts[torch.searchsorted(firsts, old.to(torch.int64), right=True) - 1])
        return found

    @cached_property
    def _starts(self) -> list[Tensor]:
        return _starts(self.old)

    @cached_property
    def _shifts(self) -> tuple[Tensor, Tensor]:
        """The first old id of each range that moves as a whole, ascending, and how far it moves."""
        found = []
        for node_type, cuts in enumerate(self.cuts):
            for number, theirs in enumerate(_ranges(self._starts[node_type])):
                for rank, own in enumerate(_ranges(torch.tensor(cuts))):
                    begin, end = overlap(own, theirs)
                    if begin < end:
                        old = self.old.nodes_of(number, node_type).start + begin
                        place = theirs.start + begin - own.start
                        found.append((old, self.book.nodes_of(rank, node_type).start + place - old))
        moves = torch.tensor(sorted(found), dtype=torch.int64).view(-1, 2)
        return moves[:, 0].contiguous(), moves[:, 1].contiguous()


def _starts(book: PartitionBook) -> list[Tensor]:
    """Returns by type, [parts + 1], where each part's nodes begin in the row of the type."""
    zero = torch.zeros(1, dtype=torch.int64)
    return [torch.cat([zero, sizes.cumsum(0)]) for sizes in book.sizes.t()]


def _ranges(starts: Tensor) -> list[range]:
    bounds = starts.tolist()
    return [range(*bounds[at : at + 2]) for at in range(len(bounds) - 1)]


def overlap(own: range, theirs: range) -> tuple[int, int]:
    """Returns begin and end of the overlap of two ranges, counted from the second's begin."""
    begin, end = max(own.start, theirs.start), min(own.stop, theirs.stop)
    return (begin - theirs.start, end - theirs.start) if begin < end else (0, 0)


#: Returns the weight of all nodes before a row, for rows 0 to N; it ascends.
Load: TypeAlias = Callable[[int], int]

_PRECISION = 1e-3  # of the bound on the largest load, relative


def balanced_offsets(nodes: int, loads: Sequence[Load], ranks: int) -> list[int]:
    """Cuts N rows into ranges so that the largest load of a range, in means of that load, is as
    small as ranges allow. Returns [ranks + 1], the begin of each range, then N. The least bound is
    found by halving: under a bound, each range in turn takes all that fits. Within the bound, ends
    are then moved to where all loads together are cut evenly, if they may, so that one heavy node
    does not leave the other ranges uneven. A load that is 0 everywhere is left out."""
    given = [load for load in loads if load(nodes) > 0]
    if not given:
        return [rank * nodes // ranks for rank in range(ranks + 1)]
    cutter = _Cutter(nodes, given, ranks)
    return cutter.even(cutter.least_bound())


class _Cutter:
    def __init__(self, nodes: int, loads: Sequence[Load], ranks: int) -> None:
        self._nodes, self._ranks = nodes, ranks
        self._loads = [(load, load(nodes) / ranks) for load in loads]

    def least_bound(self) -> float:
        """Returns nearly the least possible load of the fullest range, in means."""
        low, high = 1.0, float(self._ranks)
        while high > low * (1 + _PRECISION):
            bound, end = (low + high) / 2, 0
            for _ in range(self._ranks):
                end = self._end(end, bound)
            low, high = (low, bound) if end == self._nodes else (bound, high)
        return high

    def even(self, bound: float) -> list[int]:
        """Returns the begins of ranges within a bound that can be kept, as even as it allows."""
        least = [self._nodes]  # where each range may begin at the earliest, from the last one on
        for _ in range(self._ranks - 1):
            least.append(self._begin(least[-1], bound))
        offsets = [0]
        for rank, begin in enumerate(reversed(least[1:]), start=1):
            wanted = min(self._cut_at(rank / self._ranks), self._end(offsets[-1], bound))
            offsets.append(max(begin, offsets[-1], wanted))
        return [*offsets, self._nodes]

    def _end(self, begin: int, bound: float) -> int:
        rows = range(begin, self._nodes + 1)
        ends = (
            bisect.bisect_right(rows, load(begin) + bound * mean, key=load) - 1 + begin
            for load, mean in self._loads
        )
        return max(begin, min(ends))

    def _begin(self, end: int, bound: float) -> int:
        rows = range(end + 1)
        begins = (bisect.bisect_left(rows, load(end) - bound * mean, key=load) for load, mean in self._loads)
        return min(end, max(begins))

    def _cut_at(self, share: float) -> int:
        total = share * self._ranks * len(self._loads)

        def weight(row: int) -> float:
            return sum(load(row) / mean for load, mean in self._loads)

        return min(self._nodes, bisect.bisect_left(range(self._nodes + 1), total, key=weight))
