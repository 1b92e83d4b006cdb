"""GCN's symmetric normalisation, D^-1/2 (A + I) D^-1/2 (Kipf and Welling 2017, Eq. 2), once a minibatch.

Degrees count the in-edges that were sampled and the loop. What PyG's ``gcn_norm`` makes of loops that are
edges already is followed exactly: without weights such edges give way to one loop of weight 1, whether
``improved`` or not; with weights a node's loop gets the weight of its last such edge, and the others 1, or 2
where ``improved``.
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
    """What edges and nodes of a whole minibatch are multiplied by; layers take prefixes.

    Attributes:
        in_edges: the E' edges, without self loops where these are added apart.
        edge_weight: [E'], or None where all are 1.
        node: [N] factor of sources and of targets, None where it is part of ``edge_weight``.
        loop: [N] weight of a node's own row, None where it has none.
    """

    in_edges: ops.InEdges
    edge_weight: Tensor | None
    node: Tensor | None
    loop: Tensor | None

    def layer(self, graph: LayerGraph) -> LayerGraph:
        """The edges of a layer: its own, less the loops."""
        if self.in_edges.indptr.data_ptr() == graph.indptr.data_ptr():
            return graph
        indptr = self.in_edges.indptr[: graph.num_targets + 1]
        in_edges = ops.InEdges(indptr, self.in_edges.indices[: int(indptr[-1])])
        return replace(graph, in_edges=in_edges)


@dataclass(frozen=True)
class _Kind:
    add_loops: bool
    dtype: torch.dtype


_unweighted: WeakKeyDictionary[LayerGraph, dict[_Kind, Scaling]] = WeakKeyDictionary()


def unweighted_scaling(whole: LayerGraph, add_loops: bool, dtype: torch.dtype) -> Scaling:
    """The normalisation of a graph whose edges all weigh 1; the same object on every call.

    Args:
        whole: all edges of the minibatch (its first layer).
        add_loops: every node gets one loop of weight 1 instead of those it has.
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
        return ops.degree_scale(indptr, whole.num_sources, loops=loops, root=root, dtype=kind.dtype)

    in_edges = ops.InEdges(indptr, indices)
    return Scaling(in_edges, None, scale(root=True), scale(root=False) if kind.add_loops else None)


def weighted_scaling(whole: LayerGraph, edge_weight: Tensor, add_loops: bool, fill: float) -> Scaling:
    """The normalisation of a graph with edge weights, differentiable in them.

    Args:
        whole: all edges of the minibatch (its first layer).
        edge_weight: [E] in the user's order, of the dtype that is computed in.
        add_loops: every node gets a loop, of weight ``fill`` where it has none.
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
