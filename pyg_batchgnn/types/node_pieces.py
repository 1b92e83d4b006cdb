"""All nodes of a graph in pieces, which the inference of all nodes reads and computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.types.schema import Relation, Schema

#: By rank, the rows of the nodes of each rank whose memory this one can read, [n, F].
ReadableRows: TypeAlias = Mapping[int, Tensor]


@dataclass(frozen=True, eq=False)
class NodePieceRows:
    """The nodes of one type that a piece reads; nodes that it computes come first. A piece is some
    of the nodes that a process owns, computed at a time."""

    table: Tensor  # [u, F] rows of the layer before
    order: Tensor | None  # [s] the table row of each node; None where nodes are table rows
    ids: Tensor | None  # [s] int64 ids, by which degrees are found; None where each node is its own id

    @property
    def num_nodes(self) -> int:
        return len(self.table) if self.order is None else len(self.order)


@dataclass(frozen=True, eq=False)
class NodePiece:
    """Some owned nodes with all their in-edges, and their sources' rows of the layer before."""

    targets: Mapping[str, range]  # by node type, the owned nodes that are computed, maybe none
    nodes: Mapping[str, NodePieceRows]
    edges: Mapping[Relation, InEdges]  # the in-edges of the targets. Sources are numbers of ``nodes``.
    edge_values: Mapping[str, Mapping[Relation, Tensor]]  # [e, ...] of these edges, by name


@dataclass(frozen=True, eq=False)
class SourceValues:
    """A value for each owned node and each halo node, by the ids of `OwnedEdges`."""

    first_node: int  # the id of the first owned node
    own: Tensor  # [n] the values of the owned nodes
    halo: Tensor  # [h] int64 ids of the halo nodes, ascending
    values: Tensor  # [h] their values

    def of(self, ids: Tensor | None) -> Tensor:
        """Returns the values of [s] ids; None for the owned nodes in order."""
        if ids is None:
            return self.own
        row = ids - self.first_node
        if not len(self.halo):
            return ops.gather_rows(self.own, row)
        is_own = (row >= 0) & (row < len(self.own))
        found = self.own.new_empty(len(ids))
        found[is_own] = self.own[row[is_own]]
        found[~is_own] = self.values[torch.searchsorted(self.halo, ids[~is_own])]
        return found


class NewRows(Protocol):
    """A new table of owned nodes' rows, in memory or in a file, written in order and once."""

    def write(self, begin: int, rows: Tensor) -> None:
        """Writes rows [k, ...] from row ``begin`` on."""

    def finish(self) -> ReadableRows:
        """Returns by rank the tables that this rank can read, after all rows are written."""


class OwnedNodes(Protocol):
    """The nodes that a process owns, as inference reads them; see `pyg_batchgnn.cache.AllNodes`."""

    @property
    def rank(self) -> int: ...
    @property
    def schema(self) -> Schema: ...
    @property
    def features(self) -> Mapping[str, ReadableRows]: ...
    def pieces(
        self,
        rows: Mapping[str, ReadableRows],
        relations: Sequence[Relation],
        result_bytes: Mapping[str, int],
        title: str,
        edge_bytes: int = 0,
        edge_values: Sequence[str] = (),
    ) -> Iterator[NodePiece]: ...
    def edge_tables(self, name: str) -> Mapping[Relation, Tensor]: ...
    def finish(self) -> None: ...
    def allocate(self, node_type: str, row_shape: tuple[int, ...], dtype: torch.dtype) -> NewRows: ...
    def keep(self, node_type: str, row_shape: tuple[int, ...], dtype: torch.dtype) -> NewRows: ...
    def read(self, table: Tensor, rows: range) -> Tensor: ...
    def degrees(
        self, relation: Relation, with_loops: bool, weight: str | None, fill: float
    ) -> SourceValues: ...
