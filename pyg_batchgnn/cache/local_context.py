"""A pass over all targets of a relation of a whole graph in one process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.cache.bytes import free_bytes
from pyg_batchgnn.cache.folder import work_with_files
from pyg_batchgnn.cache.pieces import (
    Piece,
    PieceLimits,
    ReadableRows,
    Renumbered,
    SourceColumns,
    SourceNumbers,
    cut_pieces,
)
from pyg_batchgnn.cache.source_values import SourceValues
from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.ops import OwnedEdges
from pyg_batchgnn.store import DistFeatureStore, TypedGraph

T = TypeVar("T")


class LocalContext:
    """A relation of a whole graph in one process. Features are read where they lie, without a copy.

    Args:
        graph: the whole graph.
        relation: the number of the relation.
        x: [n, F] the features of the nodes of the relation's source type.
    """

    rank = 0
    store: DistFeatureStore | None = None

    def __init__(self, graph: TypedGraph, relation: int, x: Any) -> None:
        source, target = graph.schema.source_types[relation], graph.schema.target_types[relation]
        if x is None:
            name = f"[{graph.schema.node_types[source]!r}]" if graph.schema.has_names else ""
            raise ValueError(f"there are no features x to aggregate; put them into data{name}.x")
        if isinstance(x, np.ndarray):
            x = torch.from_numpy(x)
        if not isinstance(x, Tensor) or x.layout is not torch.strided:
            kind = f"{x.layout}; call x.to_dense()" if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"x must be a dense tensor or a NumPy array, got {kind}")
        if len(x) != graph.num_nodes[source]:
            raise ValueError(f"x has {len(x)} rows for {graph.num_nodes[source]} nodes")
        edges, self.num_targets = graph.relations[relation], graph.num_nodes[target]
        nodes = max(graph.num_nodes[source], self.num_targets)
        self.own = OwnedEdges(edges, torch.arange(self.num_targets), 0, nodes, edges.num_edges)
        self.source_node = self.own.node if source == target else torch.arange(len(x))
        self.features = x
        self.readable: ReadableRows = {0: x}

    def pieces(self, columns: SourceColumns, budget: int | None) -> Iterator[Piece]:
        limits = PieceLimits.in_place(free_bytes() if budget is None else budget)
        cuts = cut_pieces(self.own, limits.with_results(columns.result_bytes))
        tables = {name: rows[self.rank] for name, rows in columns.tables.items()}
        for rows in itertools.chain(cuts, () if self.num_targets else [range(0)]):
            yield self._piece(rows, tables, columns.numbers)

    def _piece(self, rows: range, tables: dict[str, Tensor], numbers: SourceNumbers) -> Piece:
        sources = self.own.in_edges.sources(rows)
        if numbers is SourceNumbers.TABLE_ROWS or len(rows) == self.own.num_nodes:
            return Piece(rows, sources, None, tables)
        found = Renumbered.of(sources, rows, self.own.num_nodes)
        ids = ops.gather_rows(found.ids, found.order)
        return Piece(rows, found.indices, None, tables, order=ids, ids=ids)

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> dict[int, Tensor]:
        return {0: torch.empty(shape, dtype=dtype)}

    def shared(self, column: Tensor) -> ReadableRows:
        return {self.rank: column}

    def values_of_sources(self, column: Tensor, kind: MessageKind) -> SourceValues:  # noqa: ARG002
        return SourceValues(0, column, torch.empty(0, dtype=torch.int64), column[:0])

    def wait_for_all(self) -> None:
        pass

    def agree(self, arguments: dict[str, Any]) -> None:
        pass

    def sums(self, values: Sequence[int]) -> list[int]:
        return list(values)

    def run_together(self, work: Callable[[], T]) -> T:
        return work_with_files(None, work)
