"""The edges of one layer: a prefix of a sampled minibatch, or a graph held whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeGuard
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from pyg_batchgnn import ops


class SampledBatch(Protocol):
    """What layers know of a minibatch (`pyg_batchgnn.Minibatch` is one).

    One CSC by destination holds every layer: layer l of L, counted from 1 nearest the input, computes the
    first ``sum(nodes_per_hop[:L-l+1])`` rows from the first ``sum(edges_per_hop[:L-l+1])`` edges.
    """

    @property
    def node(self) -> Tensor: ...
    @property
    def indptr(self) -> Tensor: ...
    @property
    def indices(self) -> Tensor: ...
    @property
    def nodes_per_hop(self) -> Sequence[int]: ...
    @property
    def edges_per_hop(self) -> Sequence[int]: ...
    @property
    def seed(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def key(self) -> int: ...


def is_sampled(edges: Any) -> TypeGuard[SampledBatch]:
    """Whether ``edges`` are a minibatch. (What isinstance does with a protocol would compute its key.)"""
    return hasattr(edges, "nodes_per_hop") and hasattr(edges, "indptr")


@dataclass(frozen=True, eq=False)
class LayerGraph:
    """In-edges of a layer's targets, which are also its first sources.

    Attributes:
        in_edges: the in-edges of the D targets. ``edge_ids`` are the places of the edges in the user's
            order, None where that is the same order.
        num_sources: N; N >= D except where sources and targets are nodes of two types.
        node: [D] int64 original ids of the targets, which dropout is keyed by; None: 0 to D - 1.
        key: of the layer's dropout; None where each call draws its own.
    """

    in_edges: ops.InEdges
    num_sources: int
    node: Tensor | None = None
    key: int | None = None

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
        """The edges sorted by source, which the gradient of the layer's input needs; made when asked."""
        return ops.transpose(self.indptr, self.indices, self.num_sources)

    @cached_property
    def targets(self) -> Tensor:
        """[E] int64, the target of every edge."""
        return self.in_edges.targets()

    def dropout_key(self) -> int:
        """A minibatch's layer has one key, however often it is computed; a whole graph's is drawn from
        torch's default generator at every call."""
        return ops.drawn_key() if self.key is None else self.key

    def edge_prefix(self, values: Tensor, name: str) -> Tensor:
        """What belongs to this layer's edges of a tensor that has an entry for every edge of the minibatch,
        [>= E, ...]."""
        if values.size(0) < self.num_edges:
            raise ValueError(f"{name} has {values.size(0)} entries, but the layer has {self.num_edges} edges")
        return values if self.edge is not None else values[: self.num_edges]


_layers: WeakKeyDictionary[SampledBatch, dict[int, LayerGraph]] = WeakKeyDictionary()


def layer_graph(minibatch: SampledBatch, layer: int) -> LayerGraph:
    """Layer ``layer`` of a minibatch, 1 being nearest the input; the same object on every call.

    Raises:
        ValueError: there is no such layer, or the minibatch's counts do not fit its arrays.
    """
    made = _layers.setdefault(minibatch, {})
    if layer not in made:
        made[layer] = _layer_graph(minibatch, layer)
    return made[layer]


def _layer_graph(minibatch: SampledBatch, layer: int) -> LayerGraph:
    layers = len(minibatch.edges_per_hop)
    if not 1 <= layer <= layers:
        raise ValueError(
            f"the minibatch was sampled for layers 1 to {layers}, there is no layer {layer}; give as many "
            f"fanouts as the model has layers, and count layers from 1 at the input"
        )
    hops = layers - layer + 1
    targets, sources = sum(minibatch.nodes_per_hop[:hops]), sum(minibatch.nodes_per_hop[: hops + 1])
    edges = sum(minibatch.edges_per_hop[:hops])
    if minibatch.indptr.numel() <= targets or minibatch.indices.numel() < edges:
        raise ValueError(
            f"layer {layer} has {targets} targets and {edges} edges by the minibatch's counts, but indptr "
            f"has {minibatch.indptr.numel()} entries and indices {minibatch.indices.numel()}"
        )
    return LayerGraph(
        ops.InEdges(minibatch.indptr[: targets + 1], minibatch.indices[:edges]),
        num_sources=sources,
        node=minibatch.node[:targets],
        key=ops.dropout_key(minibatch.seed, minibatch.epoch, minibatch.key, layer),
    )


#: By edge_index: its version and sizes when it was sorted, and the graph.
_whole: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def whole_graph(edge_index: Tensor, num_sources: int, num_targets: int) -> LayerGraph:
    """A graph held whole, from edges in any order. Sorted once for a tensor that stays as it is.

    Args:
        edge_index: [2, E] int64 (or int32), sources above targets, checked here.
        num_sources: N.
        num_targets: D.

    Raises:
        TypeError: ``edge_index`` is no dense integer tensor.
        ValueError, IndexError: its shape is another, or it names nodes that are not there.
    """
    edge_index = _dense_edges(edge_index)
    stamp = (None if edge_index.is_inference() else edge_index._version, num_sources, num_targets)
    if stamp[0] is not None and edge_index in _whole:
        known, graph = _whole[edge_index]
        if known == stamp:
            return graph
    if edge_index.size(1):
        ops.check_range("edge_index[0]", edge_index[0].contiguous(), num_sources, "sources")
        ops.check_range("edge_index[1]", edge_index[1].contiguous(), num_targets, "targets")
    found = ops.build_csc(edge_index, max(num_sources, num_targets))
    graph = LayerGraph(
        ops.InEdges(found.indptr[: num_targets + 1], found.indices, found.edge_ids), num_sources
    )
    if stamp[0] is not None:
        _whole[edge_index] = (stamp, graph)
    return graph


def _dense_edges(edge_index: Tensor) -> Tensor:
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        kind = edge_index.layout if isinstance(edge_index, Tensor) else type(edge_index).__name__
        raise TypeError(
            f"edges are a [2, E] tensor or a minibatch here, got {kind}; of a sparse matrix take "
            f"torch_geometric.utils.to_edge_index(adj_t), of a SparseTensor torch.stack(adj_t.t().coo()[:2])"
        )
    if type(edge_index) is not Tensor:  # PyG's EdgeIndex
        edge_index = edge_index.as_subclass(Tensor)
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(f"edge_index must have shape [2, num_edges], got {list(edge_index.shape)}")
    return edge_index
