"""Pieces of the nodes that a process owns, with the rows of their in-neighbours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.ops import OwnedEdges

#: Rows of the nodes of each rank whose memory this one can read, by rank.
ReadableRows: TypeAlias = Mapping[int, Tensor]


class SourceNumbers(Enum):
    """The numbers by which a piece's edges name their sources."""

    TABLE_ROWS = "table rows"  #: rows of the piece's tables
    TARGETS_FIRST = "targets first"  #: the piece's nodes of the type, then the other sources


@dataclass(frozen=True, eq=False)
class PassReads:
    """The edges and columns that a pass over all targets of some relations reads. Node types and
    relations are given by number."""

    relations: Sequence[int]  # the relations, ascending
    #: the columns by name, by node type. If targets are numbered first, a type without an entry is
    #: not read.
    tables: Mapping[int, Mapping[str, ReadableRows]] = field(default_factory=dict)
    numbers: SourceNumbers = SourceNumbers.TABLE_ROWS  # the numbers that sources have
    #: by node type, bytes that the pass takes for each target beside the rows of sources; 0 for
    #: types that are left out
    result_bytes: Mapping[int, int] = field(default_factory=dict)
    kind: MessageKind = MessageKind.FEATURES  # the kind under which exchanges are counted
    edge_bytes: int = 0  # bytes that the pass takes for each edge, where rows lie in files


@dataclass(frozen=True, eq=False)
class PieceNodes:
    """The nodes of one type that a piece reads."""

    tables: Mapping[str, Tensor]  # by name, the columns, one row per table row
    #: [u] int32 or int64, original ids by table row; None where each row's number is its original
    #: id
    node: Tensor | None = None
    order: Tensor | None = None  # [s] the table row of each number; None where numbers are table rows
    #: [s] int64, the id of each number in the numbering of `OwnedEdges`; None where each number is
    #: the id itself
    ids: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Piece:
    """Some owned nodes, and the rows of their in-edges' sources."""

    targets: Mapping[int, range]  # the owned nodes, by number of their type
    #: [e_r] int32 or int64, by number of the relation, the number of each in-edge's source; see
    #: `SourceNumbers`
    indices: Mapping[int, Tensor]
    nodes: Mapping[int, PieceNodes]  # the nodes that are read, by number of their type


@dataclass(frozen=True, eq=False)
class RelationPiece:
    """Some owned targets of one relation, and the rows of their in-edges' sources."""

    rows: range  # the owned targets
    indices: Tensor  # [e] int32 or int64, the table row of each in-edge's source
    sources: PieceNodes

    @property
    def tables(self) -> Mapping[str, Tensor]:
        return self.sources.tables

    @property
    def original(self) -> Tensor:
        """[e] int64, the original id of each in-edge's source."""
        node = self.sources.node
        if node is None:
            return self.indices.long()
        return ops.gather_rows(node.long(), self.indices)


@dataclass(frozen=True, eq=False)
class Renumbered:
    """The sources of some in-edges with the targets first."""

    ids: Tensor  # [u] int64, the targets and the sources, each once, ascending
    indices: list[Tensor]  # [e] int64, the number of each edge's source, for each list of sources
    order: Tensor  # [u] int64, the position in ``ids`` of each number

    @classmethod
    def of(cls, sources: Sequence[Tensor], targets: range, num_nodes: int) -> Renumbered:
        """Numbers the sources [e] of each relation, below ``num_nodes``. Targets are of the same
        type."""
        own = torch.arange(targets.start, targets.stop)
        ids, (at, *places) = ops.unique_nodes([own, *(one.to(torch.int64) for one in sources)], num_nodes)
        begin, count = (int(at[0]) if len(targets) else 0), len(targets)
        order = torch.cat([at, torch.arange(begin), torch.arange(begin + count, ids.numel())])
        number = torch.empty_like(order)
        number[order] = torch.arange(order.numel())
        return cls(ids, [ops.gather_rows(number, place) for place in places], order)


#: Edges that are looked through together.
_EDGES = 1 << 22


def halo_nodes(own: OwnedEdges) -> Tensor:
    """Returns the ids of the sources that a process does not own, [h] int64, ascending."""
    found = [torch.empty(0, dtype=torch.int64)]
    for sources in own.in_edges.indices.split(_EDGES):
        row = sources.to(torch.int64) - own.first_node
        others = row[(row < 0) | (row >= own.node.numel())] + own.first_node
        found = [ops.unique_nodes([*found, others], own.num_nodes)[0]]
    return found[0]


@contextlib.contextmanager
def progress_bar(title: str, total: int, visible: bool) -> Iterator[Callable[[int], None]]:
    """Yields a function that takes the number of nodes done since the last call."""
    if not visible:
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.advance(task, done)
