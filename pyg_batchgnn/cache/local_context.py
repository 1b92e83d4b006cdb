"""Passes over all nodes of a whole graph in one process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.cache.bytes import free_bytes
from pyg_batchgnn.cache.cuts import Cut, OwnedTargets, PieceLimits, cut_pieces
from pyg_batchgnn.cache.folder import work_with_files
from pyg_batchgnn.cache.pieces import PassReads, Piece, PieceNodes, ReadableRows, Renumbered, SourceNumbers
from pyg_batchgnn.cache.targets import owned_targets
from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.ops import OwnedEdges
from pyg_batchgnn.store import DistFeatureStore, TypedGraph
from pyg_batchgnn.types import SourceValues

T = TypeVar("T")


class LocalContext:
    """A whole graph in one process. Features are read where they lie, without a copy.

    Args:
        graph: the whole graph.
        features: [n, F] of the nodes, by number of the type; None, or left out, where a type has
            none.
    """

    rank = 0
    store: DistFeatureStore | None = None

    def __init__(self, graph: TypedGraph, features: Mapping[int, Any]) -> None:
        self.schema, self._graph, self._features = graph.schema, graph, features
        self._owned: dict[int, OwnedEdges] = {}

    def num_nodes(self, node_type: int) -> int:
        return self._graph.num_nodes[node_type]

    def original_ids(self, node_type: int) -> Tensor:
        return torch.arange(self.num_nodes(node_type))

    def owned_edges(self, relation: int) -> OwnedEdges:
        if relation not in self._owned:
            ends = self.schema.source_types[relation], self.schema.target_types[relation]
            edges, (sources, targets) = self._graph.relations[relation], map(self.num_nodes, ends)
            node = torch.arange(targets)
            self._owned[relation] = OwnedEdges(edges, node, 0, max(sources, targets), edges.num_edges)
        return self._owned[relation]

    def features(self, node_type: int) -> ReadableRows | None:
        x = self._features.get(node_type)
        if x is None:
            return None
        if isinstance(x, np.ndarray):
            x = torch.from_numpy(x)
        if not isinstance(x, Tensor) or x.layout is not torch.strided:
            kind = f"{x.layout}; call x.to_dense()" if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"x must be a dense tensor or a NumPy array, got {kind}")
        if len(x) != self.num_nodes(node_type):
            raise ValueError(f"x has {len(x)} rows for {self.num_nodes(node_type)} nodes")
        return {self.rank: x}

    def no_features(self, node_type: int) -> str:
        name = f"[{self.schema.node_types[node_type]!r}]" if self.schema.has_names else ""
        return f"there are no features x to read; put them into data{name}.x"

    def pieces(self, reads: PassReads, budget: int | None) -> Iterator[Piece]:
        targets = owned_targets(self, reads.relations)
        limits = PieceLimits(free_bytes() if budget is None else budget).with_results(reads.result_bytes)
        cuts = cut_pieces(targets, limits, {})
        nothing = {one.node_type: range(0) for one in targets}
        for cut in itertools.chain(cuts, () if any(map(len, targets)) else [nothing]):
            yield self._piece(targets, cut, reads)

    def _piece(self, targets: Sequence[OwnedTargets], cut: Cut, reads: PassReads) -> Piece:
        edges = {one: self._graph.relations[one] for one in reads.relations}
        sources = {one: part.sources(cut[self.schema.target_types[one]]) for one, part in edges.items()}
        tables = {
            kind: {name: rows[self.rank] for name, rows in of_type.items()}
            for kind, of_type in reads.tables.items()
        }
        is_whole = all(len(cut[one.node_type]) == len(one) for one in targets)
        if is_whole or reads.numbers is SourceNumbers.TABLE_ROWS:
            kinds = {*tables, *(self.schema.source_types[one] for one in reads.relations)}
            return Piece(cut, sources, {kind: PieceNodes(tables.get(kind, {})) for kind in kinds})
        nodes = {}
        for kind, of_type in tables.items():
            read = [one for one in reads.relations if self.schema.source_types[one] == kind]
            own = cut.get(kind, range(0))
            found = Renumbered.of([sources[one] for one in read], own, self.num_nodes(kind))
            sources.update(zip(read, found.indices, strict=True))
            ids = ops.gather_rows(found.ids, found.order)
            nodes[kind] = PieceNodes(of_type, order=ids, ids=ids)
        return Piece(cut, sources, nodes)

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> dict[int, Tensor]:
        return {self.rank: torch.empty(shape, dtype=dtype)}

    def shared(self, column: Tensor) -> ReadableRows:
        return {self.rank: column}

    def values_of_sources(self, relation: int, column: Tensor, kind: MessageKind) -> SourceValues:  # noqa: ARG002
        return SourceValues(0, column, torch.empty(0, dtype=torch.int64), column[:0])

    def wait_for_all(self) -> None:
        pass

    def agree(self, arguments: dict[str, Any]) -> None:
        pass

    def sums(self, values: Sequence[int]) -> list[int]:
        return list(values)

    def run_together(self, work: Callable[[], T]) -> T:
        return work_with_files(None, work)
