"""The edges of one layer, and the layers of a sampled minibatch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeGuard
from weakref import WeakKeyDictionary

from torch import Tensor

from pyg_batchgnn import ops


class SampledBatch(Protocol):
    """The attributes of a minibatch that layers read. `pyg_batchgnn.Minibatch` has them.

    One CSC by destination holds every layer: layer l of L, counted from 1 nearest the input,
    computes the first ``sum(nodes_per_hop[:L-l+1])`` rows from the first
    ``sum(edges_per_hop[:L-l+1])`` edges.
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
    """Returns whether ``edges`` are a minibatch."""
    return hasattr(edges, "nodes_per_hop") and hasattr(edges, "indptr")


@dataclass(frozen=True, eq=False)
class LayerGraph:
    """The in-edges of the targets of a layer. The targets are also its first sources.

    Attributes:
        in_edges: the in-edges of the D targets. ``edge_ids`` are the places of the edges in the
            user's order, None where that is the same order.
        num_sources: N; N >= D except where sources and targets are nodes of two types.
        node: [D] int64, the original ids of the targets, for dropout; None: 0 to D - 1.
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


_Stamp = tuple[tuple[int, int], tuple[int, int]]
#: For each minibatch: the stamp of its edges, and the layers that were made of them.
_layers: WeakKeyDictionary[SampledBatch, tuple[_Stamp, dict[int, LayerGraph]]] = WeakKeyDictionary()


def layer_graph(minibatch: SampledBatch, layer: int) -> LayerGraph:
    """Returns a layer of a minibatch, the same object on every call; layer 1 is nearest the input.

    If the edges of the minibatch are changed, the layers are made again.

    Raises:
        TypeError: ``minibatch`` is no minibatch.
        ValueError: there is no such layer, or the counts of the minibatch do not fit its arrays.
    """
    if not is_sampled(minibatch):
        raise TypeError(
            f"expected a minibatch, got {type(minibatch).__name__}; a loader with export='native' yields "
            "minibatches"
        )
    stamp = _stamp(minibatch.indptr), _stamp(minibatch.indices)
    known, made = _layers.get(minibatch, (None, {}))
    if known != stamp:
        made = {}
        _layers[minibatch] = (stamp, made)
    if layer not in made:
        made[layer] = _layer_graph(minibatch, layer)
    return made[layer]


def _stamp(values: Tensor) -> tuple[int, int]:
    """Returns what changes when the tensor is replaced, or when torch writes to it."""
    return id(values), 0 if values.is_inference() else values._version


def _layer_graph(minibatch: SampledBatch, layer: int) -> LayerGraph:
    if hasattr(minibatch, "begin_pass"):
        raise ValueError(
            "what this minibatch's layers read of halo nodes depends on caches: take their edges and inputs "
            "from HaloPass(minibatch), or call a native model, which does"
        )
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
        ops.InEdges(ops.prefix(minibatch.indptr, targets + 1), ops.prefix(minibatch.indices, edges)),
        num_sources=sources,
        node=minibatch.node[:targets],
        key=ops.dropout_key(minibatch.seed, minibatch.epoch, minibatch.key, layer),
        whole=None if layer == 1 else layer_graph(minibatch, 1),
    )
