"""Pieces of the nodes that a process owns, cut to fit memory, with the rows of their
in-neighbours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.ops import OwnedEdges
from pyg_batchgnn.types import ReadableRows


@dataclass(frozen=True, eq=False)
class PassReads:
    """What a pass over all targets of some relations reads. Types and relations are numbers."""

    relations: Sequence[int]  # the relations, ascending
    #: the columns by name, by node type. If targets are first, a type without an entry is not read.
    tables: Mapping[int, Mapping[str, ReadableRows]] = field(default_factory=dict)
    #: whether edges number the piece's own nodes of the type first, then the other sources; else
    #: they name rows of the piece's tables
    targets_first: bool = False
    result_bytes: Mapping[int, int] = field(default_factory=dict)  # of each target, by node type
    kind: MessageKind = MessageKind.FEATURES  # the kind under which exchanges are counted
    edge_bytes: int = 0  # bytes that the pass takes for each edge, where rows lie in files
    value_bytes: int = 0  # bytes of the values of each edge, which are read for a piece


@dataclass(frozen=True, eq=False)
class PieceNodes:
    """The nodes of one type that a piece reads. Its edges name them by numbers from 0."""

    tables: Mapping[str, Tensor]  # by name, the columns, one row per table row
    node: Tensor | None = None  # [u] original ids by table row; None where rows are original ids
    order: Tensor | None = None  # [s] the table row of each number; None where numbers are table rows
    ids: Tensor | None = None  # [s] int64, the id of each number in `OwnedEdges`; None where the same


@dataclass(frozen=True, eq=False)
class Piece:
    """Some owned nodes, with their in-edges and the rows of the sources."""

    targets: Mapping[int, range]  # the owned nodes, by number of their type
    indices: Mapping[int, Tensor]  # [e_r] by number of the relation, the number of each source
    nodes: Mapping[int, PieceNodes]  # the nodes that are read, by number of their type


def number_sources(
    sources: Sequence[Tensor], own: range | None, num_nodes: int
) -> tuple[Tensor, list[Tensor], Tensor | None]:
    """Numbers the sources [e] of some relations, ids below ``num_nodes``. The nodes ``own`` of the
    type, if given, have the first numbers.

    Returns:
        The distinct ids, ascending; the number of each source, by relation; and [u] int64, the
            place of each number among these ids, None if numbers are places.
    """
    sources = [one.to(torch.int64) for one in sources]
    if own is None:
        return *ops.unique_nodes(sources, num_nodes), None
    ids, (at, *places) = ops.unique_nodes([torch.arange(own.start, own.stop), *sources], num_nodes)
    begin, count = (int(at[0]) if len(own) else 0), len(own)
    order = torch.cat([at, torch.arange(begin), torch.arange(begin + count, ids.numel())])
    number = torch.empty_like(order)
    number[order] = torch.arange(order.numel())
    return ids, [ops.gather_rows(number, place) for place in places], order


#: Edges that are looked through together.
_EDGES = 1 << 22


def halo_nodes(own: OwnedEdges) -> Tensor:
    """Returns [h] int64, ascending, the sources of in-edges that the process does not own."""
    found = [torch.empty(0, dtype=torch.int64)]
    for sources in own.in_edges.indices.split(_EDGES):
        row = sources.to(torch.int64) - own.first_node
        others = row[(row < 0) | (row >= own.node.numel())] + own.first_node
        found = [ops.unique_nodes([*found, others], own.num_nodes)[0]]
    return found[0]


@contextlib.contextmanager
def progress_bar(title: str, total: int, visible: bool) -> Iterator[Callable[[int], None]]:
    """Yields a function that is called with the number of nodes done since its last call."""
    if not visible:
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.advance(task, done)


# Cutting ##########################################################################################


@dataclass(frozen=True)
class PieceLimits:
    """The bytes that a piece may take, and what its parts take."""

    budget: int  # bytes of a piece, about; the in-edges of one node are never divided
    source: Mapping[int, int] = field(default_factory=dict)  # bytes of a distinct source, by type
    edge: int = 48  # bytes that an edge takes, at most
    result: Mapping[int, int] = field(default_factory=dict)  # bytes of each node of a piece, by type
    results: int | None = None  # bytes that all nodes of a piece take at most; None for any number

    def with_results(self, row_bytes: Mapping[int, int]) -> PieceLimits:
        """Returns limits with half of the budget for results of ``row_bytes`` per node, by type."""
        if not any(row_bytes.values()):
            return self
        half = max(1, self.budget // 2)
        return replace(self, budget=half, result=row_bytes, results=half)

    def bytes(self, sources: Mapping[int, int], edges: int) -> int:
        """Returns the bytes of a piece with these numbers of distinct sources, by type, and
        edges."""
        return sum(count * self.source.get(kind, 0) for kind, count in sources.items()) + edges * self.edge

    def edges(self, num_nodes: Mapping[int, int]) -> int:
        """Returns a number of edges, at least 1, that fits whatever their sources: each edge has
        another one, or all ``num_nodes`` nodes by type are read; what allows more edges counts."""
        of_all = (self.budget - self.bytes(num_nodes, 0)) // self.edge
        return max(1, self.budget // (max(self.source.values(), default=0) + self.edge), of_all)

    def room(self, node_type: int, taken: int) -> int | None:
        """Returns how many nodes' results fit beside ``taken`` bytes of results; None: all."""
        each = self.result.get(node_type, 0)
        return None if self.results is None or each == 0 else max(0, self.results - taken) // each


@dataclass(frozen=True, eq=False)
class OwnedTargets:
    """The owned nodes of one type with the in-edges that a pass reads."""

    node_type: int  # the number of the type
    edges: Sequence[OwnedEdges]  # for each relation into the type
    sources: Sequence[int]  # for each of them, the number of the type of the sources

    def __len__(self) -> int:
        return self.edges[0].node.numel()

    @cached_property
    def indptr(self) -> Tensor:
        """[n + 1] int64, the number of in-edges, over all relations, of the nodes before each."""
        first, *others = (one.in_edges.indptr for one in self.edges)
        for one in others:
            first = first + one
        return first

    def end(self, begin: int, edges: int) -> int:
        """Returns the end of the longest range from ``begin`` with at most ``edges`` in-edges."""
        last = int(self.indptr[begin]) + edges
        return int(torch.searchsorted(self.indptr, torch.tensor(last), right=True)) - 1

    def num_edges(self, rows: range) -> int:
        return int(self.indptr[rows.stop] - self.indptr[rows.start])


#: The nodes of a piece, by number of their type.
Cut = dict[int, range]


def cut_pieces(
    targets: Sequence[OwnedTargets], limits: PieceLimits, num_nodes: Mapping[int, int]
) -> Iterator[Cut]:
    """Cuts the owned nodes into pieces within the limits, one type after the other. A piece has a
    range, maybe empty, for each type of targets.

    If all nodes of the graph (``num_nodes``, by type) fit, only edges count. Else the first piece
    has as many edges as fit in any case, and the next ones as the distinct sources so far suggest.
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
    """Returns the next range of nodes with at most ``edges`` in-edges; at least one node."""
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
