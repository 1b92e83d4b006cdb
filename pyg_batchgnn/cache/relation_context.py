"""Passes over all targets of one relation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from pyg_batchgnn.cache.contexts import GraphContext
from pyg_batchgnn.cache.pieces import PassReads, ReadableRows, RelationPiece
from pyg_batchgnn.ops import OwnedEdges


@dataclass(frozen=True, eq=False)
class RelationContext:
    """A relation of a graph, given by number, and the features of its sources.

    Raises:
        TypeError, ValueError: the sources have no features that can be read here.
    """

    graph: GraphContext
    relation: int

    def __post_init__(self) -> None:
        _ = self.readable

    @property
    def _source(self) -> int:
        return self.graph.schema.source_types[self.relation]

    @cached_property
    def own(self) -> OwnedEdges:
        """The in-edges of the targets that the process owns."""
        return self.graph.owned_edges(self.relation)

    @property
    def num_targets(self) -> int:
        """The number of targets of the whole graph."""
        return self.graph.num_nodes(self.graph.schema.target_types[self.relation])

    @cached_property
    def readable(self) -> ReadableRows:
        """The features of each rank whose memory this one can read, by rank."""
        found = self.graph.features(self._source)
        if found is None:
            raise ValueError(self.graph.no_features(self._source))
        return found

    @property
    def features(self) -> Tensor:
        """[n, F], of the nodes of the source type that the process owns."""
        return self.readable[self.graph.rank]

    @property
    def source_node(self) -> Tensor:
        """[n] int64, the original ids of these nodes."""
        return self.graph.original_ids(self._source)

    def pieces(self, tables: Mapping[str, ReadableRows], budget: int | None) -> Iterator[RelationPiece]:
        """Yields the owned targets in pieces. Collective; see `GraphContext.pieces`.

        Args:
            tables: the columns that the pieces hold of the sources.
            budget: bytes of a piece, or None.
        """
        target = self.graph.schema.target_types[self.relation]
        reads = PassReads([self.relation], {self._source: tables})
        for piece in self.graph.pieces(reads, budget):
            found = RelationPiece(
                piece.targets[target], piece.indices[self.relation], piece.nodes[self._source]
            )
            del piece  # its memory is free when the caller lets go of it
            yield found
            del found
