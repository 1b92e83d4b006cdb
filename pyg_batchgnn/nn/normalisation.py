"""The symmetric normalisation of GCN, D^-1/2 (A + I) D^-1/2, once per minibatch.

This is equation 2 of Kipf and Welling (2017). A degree counts the sampled in-edges and the loop.
Edges that are loops are treated as in PyG's ``gcn_norm``. Without weights they are replaced by one
loop of weight 1, also if ``improved``. With weights the loop of a node gets the weight of its last
such edge. Other loops get 1, or 2 if ``improved``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.graph import LayerGraph


@dataclass(frozen=True)
class Scaling:
    """The factors of the edges and nodes of a whole minibatch. Layers take prefixes.

    Attributes:
        in_edges: the E' edges, without self loops if these are added separately.
        edge_weight: [E'], or None if all are 1.
        node: [N], the factor of sources and of targets; None if it is part of ``edge_weight``.
        loop: [N], the weight of a node's own row; None without loops.
    """

    in_edges: ops.InEdges
    edge_weight: Tensor | None
    node: Tensor | None
    loop: Tensor | None

    def layer(self, graph: LayerGraph) -> LayerGraph:
        """Returns the edges of a layer without self loops that are added separately."""
        if self.in_edges.indptr.data_ptr() == graph.indptr.data_ptr():
            return graph
        indptr = ops.prefix(self.in_edges.indptr, graph.num_targets + 1)
        in_edges = ops.InEdges(indptr, ops.prefix(self.in_edges.indices, int(indptr[-1])))
        return replace(graph, in_edges=in_edges)


@dataclass(frozen=True)
class _Kind:
    add_loops: bool
    dtype: torch.dtype


_unweighted: WeakKeyDictionary[LayerGraph, dict[_Kind, Scaling]] = WeakKeyDictionary()


def unweighted_scaling(whole: LayerGraph, add_loops: bool, dtype: torch.dtype) -> Scaling:
    """Returns the normalisation of a graph without edge weights, the same object on every call.

    Args:
        whole: all edges of the minibatch (its first layer).
        add_loops: replaces the loops of every node by one of weight 1.
        dtype: float32 or float64.
    """
    made = _unweighted.setdefault(whole, {})
    kind = _Kind(add_loops, dtype)
    if kind not in made:
        made[kind] = _unweighted_scaling(whole, kind)
    return made[kind]


def _unweighted_scaling(whole: LayerGraph, kind: _Kind) -> Scaling:
    indptr, indices = whole.indptr, whole.indices
    without = ops.drop_self_loops(indptr, indices) if kind.add_loops else None
    if without is not None:
        indptr, indices = without.indptr, without.indices
    loops = 1 if kind.add_loops else 0

    def scale(root: bool) -> Tensor:
        if whole.degree is not None:
            degree = (whole.degree + loops).to(kind.dtype)
            found = degree.rsqrt() if root else degree.reciprocal()
            return found.masked_fill_(degree == 0, 0.0)
        return ops.degree_scale(indptr, whole.num_sources, loops=loops, root=root, dtype=kind.dtype)

    in_edges = ops.InEdges(indptr, indices)
    return Scaling(in_edges, None, scale(root=True), scale(root=False) if kind.add_loops else None)


def weighted_scaling(whole: LayerGraph, edge_weight: Tensor, add_loops: bool, fill: float) -> Scaling:
    """Returns the normalisation of a graph with edge weights, differentiable in them.

    Args:
        whole: all edges of the minibatch (its first layer).
        edge_weight: [E] in the user's order, of the dtype to compute in.
        add_loops: gives every node without a loop one of weight ``fill``.
        fill: 1, or 2 for the improved normalisation.
    """
    weight = edge_weight if whole.edge is None else edge_weight.index_select(0, whole.edge)
    indptr, indices, targets = whole.indptr, whole.indices, whole.targets
    degree = weight.new_zeros(whole.num_sources)
    loop = None
    if add_loops:
        loop = weight.new_full((whole.num_sources,), fill)
        without = ops.drop_self_loops(indptr, indices)
        if without is not None:
            is_loop = indices == targets
            loop = loop.index_put((targets[is_loop],), weight[is_loop])
            indptr, indices = without.indptr, without.indices
            weight, targets = weight.index_select(0, without.kept), targets.index_select(0, without.kept)
        degree = degree + loop
    degree = degree.index_add(0, targets, weight)
    scale = degree.pow(-0.5)
    scale = scale.masked_fill(scale == float("inf"), 0.0)
    normalised = scale.index_select(0, indices) * weight * scale.index_select(0, targets)
    in_edges = ops.InEdges(indptr, indices)
    return Scaling(in_edges, normalised, None, None if loop is None else scale * loop * scale)
