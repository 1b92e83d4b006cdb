"""The edges and the rows of one layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from torch import Tensor

from pyg_batchgnn import ops


class Targets(Protocol):
    """The rows that a layer computes."""

    @property
    def num_targets(self) -> int: ...
    @property
    def node(self) -> Tensor | None: ...
    def dropout_key(self) -> int: ...


@dataclass(frozen=True, eq=False)
class LayerRows:
    """The nodes of one type in a layer.

    Attributes:
        num_targets: D, the number of rows that the layer computes.
        num_sources: N >= D, the number of rows that it reads.
        node: [D] int64, the ids of the rows for dropout; None: 0 to D - 1.
        key: the key of the dropout after the layer; None if each call draws one.
    """

    num_targets: int
    num_sources: int
    node: Tensor | None = None
    key: int | None = None

    def dropout_key(self) -> int:
        """Returns the key of the dropout after the layer; see `LayerGraph.dropout_key`."""
        return ops.drawn_key() if self.key is None else self.key


@dataclass(frozen=True, eq=False)
class LayerGraph:
    """The in-edges of the targets of a layer. The targets are also its first sources.

    Attributes:
        in_edges: the in-edges of the D targets. ``edge_ids`` are the places of the edges in the
            user's order, None where that is the same order.
        num_sources: N; N >= D except where sources and targets are nodes of two types.
        node: [D] int64, the ids of the targets for dropout; None: 0 to D - 1.
        key: the key of the dropout of the layer; None if each call draws one.
        degree: [N] the in-edges of each source in the whole graph, for GCN: loops are counted
            unless the layer replaces them. None if these edges are all that count.
        whole: the graph whose degrees normalise the layer; None if it is the layer's own.
    """

    in_edges: ops.InEdges
    num_sources: int
    node: Tensor | None = None
    key: int | None = None
    degree: Tensor | None = None
    whole: LayerGraph | None = None

    @property
    def indptr(self) -> Tensor:
        """[D + 1] int64, where each target's in-edges begin."""
        return self.in_edges.indptr

    @property
    def indices(self) -> Tensor:
        """[E] int32 or int64, the sources."""
        return self.in_edges.indices

    @property
    def edge(self) -> Tensor | None:
        """[E], the place of each edge in the user's order; None where that is the same order."""
        return self.in_edges.edge_ids

    @property
    def num_targets(self) -> int:
        """The number of targets, D."""
        return self.in_edges.num_targets

    @property
    def num_edges(self) -> int:
        """The number of edges, E."""
        return self.in_edges.num_edges

    @cached_property
    def by_source(self) -> ops.BySource:
        """The edges sorted by source, for the gradient of the input of the layer."""
        if self.whole is not None and self.whole.in_edges is self.in_edges:
            return self.whole.by_source
        return ops.transpose(self.indptr, self.indices, self.num_sources)

    @cached_property
    def targets(self) -> Tensor:
        """[E] int64, the target of each edge."""
        return self.in_edges.targets()

    def dropout_key(self) -> int:
        """Returns the key of the dropout of the layer.

        A layer of a minibatch always has the same key. For a whole graph each call draws a key from
        torch's default generator.
        """
        return ops.drawn_key() if self.key is None else self.key

    def edge_prefix(self, values: Tensor, name: str) -> Tensor:
        """Returns the entries of this layer from a tensor with one entry per edge of the
        minibatch."""
        if values.size(0) < self.num_edges:
            raise ValueError(f"{name} has {values.size(0)} entries, but the layer has {self.num_edges} edges")
        return values if self.edge is not None else values[: self.num_edges]


@dataclass(frozen=True, eq=False)
class HaloGraph(LayerGraph):
    """The in-edges of a layer that reads rows of halo nodes from caches.

    The degrees of the sources in the minibatch are unknown, because halo nodes are not expanded.
    """
