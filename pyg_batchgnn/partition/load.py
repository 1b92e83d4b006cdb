"""Loads parts from a folder, for any number of ranks."""

from __future__ import annotations

import bisect
from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Group, attribute_of, edge_array, split_array, split_of
from pyg_batchgnn.data.files import verify_tensor
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.checks import check_comm, with_files
from pyg_batchgnn.partition.folder_meta import PartitionMeta, part_name, read_partition_meta
from pyg_batchgnn.partition.part import Part, directory_slices
from pyg_batchgnn.partition.part_files import PartFiles, PartRows, joined
from pyg_batchgnn.partition.ranges import Load, balanced_offsets
from pyg_batchgnn.partition.recut import Recut, overlap


def load_partition(folder: str | Path, comm: Communicator) -> Part:
    """Reads this rank's part of a saved partition. Collective.

    With as many ranks as parts every array is mapped from its file. With another number the graph
    is cut anew: each rank gets a contiguous range of the nodes of each type, in the order of the
    saved parts, balanced by nodes, in-edges and training nodes as far as ranges go
    (`balanced_offsets`), and maps what lies in one file and copies what lies in several.
    `Part.node` then ascends only within a saved part. Internal ids stay in a graph of one node
    type.

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
        self._meta, self._files = meta, PartFiles(path, meta)

    def part(self, rank: int, ranks: int) -> Part:
        """Returns the part of one of ``ranks`` ranks."""
        schema, old = self._meta.schema, self._meta.book
        recut = Recut.none(old) if ranks == old.parts else Recut(old, self._cuts(ranks))
        pieces = [joined(recut.pieces(rank, number)) for number in range(schema.num_types)]
        rows = dict(zip(schema.node_groups, pieces, strict=True))
        relations = []
        for group, target, count in zip(
            schema.edge_groups, schema.target_types, self._meta.edge_counts, strict=True
        ):
            rows[group] = joined([self._edges(group, piece) for piece in pieces[target]])
            relations.append(self._relation(recut, group, pieces[target], rows[group], count))
        nodes = [
            piece.moved(_first_row(self._meta, piece.number, number))
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
            splits=self._splits(recut, rank),
        )

    def _relation(
        self, recut: Recut, group: Group, nodes: list[PartRows], edges: list[PartRows], count: int
    ) -> InEdges:
        """Returns the in-edges of a relation. ``nodes``, ``edges``: the rows of the saved parts."""
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
        """Returns the in-edges of some nodes of a part."""
        indptr = self._files.indptr(nodes.number, group)
        return PartRows(nodes.number, int(indptr[nodes.begin]), int(indptr[nodes.end]))

    def _attributes(self, rows: dict[Group, list[PartRows]]) -> dict[Group, dict[str, Tensor]]:
        found: dict[Group, dict[str, Tensor]] = {group: {} for group in rows}
        for array in self._names():
            attribute = attribute_of(array)
            if attribute is not None and attribute[0] in rows:
                group, name = attribute
                found[group][name] = self._files.rows(array, rows[group])
        return found

    def _names(self) -> list[str]:
        """Returns the arrays that every part has."""
        prefix = f"{part_name(0)}/"
        return [array.removeprefix(prefix) for array in self._meta.arrays if array.startswith(prefix)]

    def _splits_of(self, group: Group) -> list[str]:
        found = map(split_of, self._names())
        return [split[1] for split in found if split is not None and split[0] == group]

    def _cuts(self, ranks: int) -> tuple[list[int], ...]:
        """Returns ranges of each type's nodes with nearly equal nodes, in-edges and training
        nodes."""
        return tuple(self._cuts_of(number, ranks) for number in range(self._meta.schema.num_types))

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

    # What is not by node of the part #############################################################

    def _directory(self, recut: Recut, rank: int) -> Tensor:
        old, found = recut.old, list[PartRows]()
        held = [directory_slices(old, number) for number in range(old.parts)]
        for node_type, own in enumerate(directory_slices(recut.book, rank)):
            for number, theirs in enumerate(held):
                before = sum(map(len, theirs[:node_type]))
                found.append(PartRows(number, *overlap(own, theirs[node_type])).moved(before))
        values = self._files.rows("directory", joined(found))
        return recut.renumbered(self._files.checked("directory", values, old.num_nodes))

    def _splits(self, recut: Recut, rank: int) -> dict[Group, dict[str, Tensor]]:
        return {
            group: {name: self._split(recut, rank, group, number, name) for name in self._splits_of(group)}
            for number, group in enumerate(self._meta.schema.node_groups)
        }

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


def _first_row(meta: PartitionMeta, number: int, node_type: int) -> int:
    """Returns the row of a saved part's first node of a type among its nodes of all types."""
    return meta.book.nodes_of(number, node_type).start - meta.book.nodes_of(number).start
