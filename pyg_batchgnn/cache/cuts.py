"""Cutting the nodes that a process owns into pieces that fit memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import OwnedEdges


@dataclass(frozen=True)
class PieceLimits:
    """The memory that a piece may take."""

    budget: int  # bytes of a piece, about; the in-edges of one node are never divided
    #: bytes that a distinct source takes, by number of its type
    source: Mapping[int, int] = field(default_factory=dict)
    edge: int = 48  # bytes that an edge takes, at most
    #: bytes that each node of a piece takes, by number of its type
    result: Mapping[int, int] = field(default_factory=dict)
    results: int | None = None  # bytes that all nodes of a piece take at most; None for any number

    @classmethod
    def fetched(cls, budget: int, row_bytes: Mapping[int, int], ranks: int) -> PieceLimits:
        """Makes the limits of pieces whose rows are fetched; ``row_bytes`` by number of the type.
        Rows lie in a block. Those of other ranks lie also in the message that brought them. About
        as many lie in the message that this rank sends to others."""
        source = {name: size + 2 * size * (ranks - 1) // ranks for name, size in row_bytes.items()}
        return cls(budget, source)

    def with_results(self, row_bytes: Mapping[int, int]) -> PieceLimits:
        """Gives half of the budget to the results, ``row_bytes`` for each node."""
        if not any(row_bytes.values()):
            return self
        half = max(1, self.budget // 2)
        return replace(self, budget=half, result=row_bytes, results=half)

    def bytes(self, sources: Mapping[int, int], edges: int) -> int:
        """Returns the bytes of the sources, a number by type, and of the edges of a piece."""
        return sum(count * self.source.get(kind, 0) for kind, count in sources.items()) + edges * self.edge

    def edges(self, num_nodes: Mapping[int, int]) -> int:
        """Returns a number of edges that fit for certain; ``num_nodes`` of the graph, by type. They
        fit where every edge has a source of its own, or where all nodes are among the sources."""
        of_all = (self.budget - self.bytes(num_nodes, 0)) // self.edge
        return max(1, self.budget // (max(self.source.values(), default=0) + self.edge), of_all)

    def room(self, node_type: int, taken: int) -> int | None:
        """Returns how many nodes of a type fit beside ``taken`` bytes of results; None for any
        number."""
        each = self.result.get(node_type, 0)
        return None if self.results is None or each == 0 else max(0, self.results - taken) // each


@dataclass(frozen=True, eq=False)
class OwnedTargets:
    """The nodes of one type that a process owns, with the in-edges that a pass reads."""

    node_type: int  # the number of the type
    edges: Sequence[OwnedEdges]  # the in-edges of one or more relations
    sources: Sequence[int]  # for each of them, the number of the type of the sources

    def __len__(self) -> int:
        return self.edges[0].node.numel()

    @cached_property
    def indptr(self) -> Tensor:
        """[n + 1] int64, the number of in-edges, of all relations, of the nodes before each."""
        first, *others = (one.in_edges.indptr for one in self.edges)
        for one in others:
            first = first + one
        return first

    def end(self, begin: int, edges: int) -> int:
        """Returns the end of a range of nodes from ``begin`` on with at most ``edges`` in-edges."""
        last = int(self.indptr[begin]) + edges
        return int(torch.searchsorted(self.indptr, torch.tensor(last), right=True)) - 1

    def num_edges(self, rows: range) -> int:
        return int(self.indptr[rows.stop] - self.indptr[rows.start])


#: The nodes of a piece, by number of their type.
Cut = dict[int, range]


def cut_pieces(
    targets: Sequence[OwnedTargets], limits: PieceLimits, num_nodes: Mapping[int, int]
) -> Iterator[Cut]:
    """Cuts the owned nodes into pieces within the limits, the types one after the other.

    Where all nodes of the graph (``num_nodes``, by type) fit, edges alone count. Else a piece
    begins with as many edges as fit for certain, and the next one has more or fewer edges as the
    distinct sources allow. A piece has an entry for each type of targets, maybe an empty range.
    """
    begins = {one.node_type: 0 for one in targets}
    ends = {one.node_type: len(one) for one in targets}
    edges, every = limits.edges(num_nodes), sum(int(one.indptr[-1]) for one in targets)
    all_fit = limits.bytes(num_nodes, edges) <= limits.budget
    while any(begins[name] < end for name, end in ends.items()):
        cut = _cut(targets, begins, ends, edges, limits)
        held = sum(one.num_edges(cut[one.node_type]) for one in targets)
        taken = 0 if all_fit else limits.bytes(_distinct(targets, cut), held)
        if taken > limits.budget and sum(map(len, cut.values())) > 1 and edges > 1:
            edges = max(1, edges * limits.budget * 3 // (taken * 4))
            continue
        yield cut
        begins = {name: rows.stop for name, rows in cut.items()}
        if taken:  # more edges have more sources in common, so this number fits with some room
            edges = max(edges, min(edges * limits.budget // taken, every))


def _cut(
    targets: Sequence[OwnedTargets],
    begins: Mapping[int, int],
    ends: Mapping[int, int],
    edges: int,
    limits: PieceLimits,
) -> Cut:
    """Returns the next nodes with at most ``edges`` in-edges, but at least one node."""
    cut = {name: range(begin, begin) for name, begin in begins.items()}
    taken = 0
    for one in targets:
        begin, last = begins[one.node_type], ends[one.node_type]
        if begin == last:
            continue
        end, room = one.end(begin, edges), limits.room(one.node_type, taken)
        if room is not None:
            end = min(end, begin + room)
        if not any(map(len, cut.values())):
            end = max(end, begin + 1)
        rows = range(begin, min(end, last))
        cut[one.node_type] = rows
        edges -= one.num_edges(rows)
        if rows.stop < last or edges < 0:
            break
        taken += len(rows) * limits.result.get(one.node_type, 0)
    return cut


def _distinct(targets: Sequence[OwnedTargets], cut: Cut) -> dict[int, int]:
    found: dict[int, list[Tensor]] = {}
    for one in targets:
        for edges, source in zip(one.edges, one.sources, strict=True):
            found.setdefault(source, []).append(edges.in_edges.sources(cut[one.node_type]).to(torch.int64))
    most = max(edges.num_nodes for one in targets for edges in one.edges)
    return {source: ops.count_unique_nodes(ids, most) for source, ids in found.items()}
