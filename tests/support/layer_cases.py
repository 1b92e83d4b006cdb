"""Small minibatches with the odd cases, and PyG's convolution on a layer's edges."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import CscGraph, MacrobatchSampler, SampledMinibatch, SamplingPlan
from pyg_batchgnn.sample import Subgraph

FEATURES = 12


def small_graph() -> CscGraph:
    """60 nodes; self loops, parallel edges and a hub occur, the last node has no edges at all."""
    generator = torch.Generator().manual_seed(1)
    edges = torch.randint(59, (2, 400), generator=generator)
    hub = torch.stack([torch.randint(59, (200,), generator=generator), torch.zeros(200, dtype=torch.int64)])
    return CscGraph.from_edge_index(torch.cat([edges, hub], dim=1), 60)


def small_edges() -> Tensor:
    """[2, E] the edges of the small graph, by target."""
    graph = small_graph()
    return torch.stack([graph.indices.long(), torch.arange(60).repeat_interleave(graph.indptr.diff())])


def sampled(
    seeds: list[int], fanouts: tuple[int, ...] = (4, 3, 2), epoch: int = 0, **plan: Any
) -> SampledMinibatch:
    sampler = MacrobatchSampler(small_graph(), SamplingPlan(fanouts, **plan), seed=5)
    (minibatch,) = sampler.sample([torch.tensor(seeds, dtype=torch.int64)], epoch)
    return minibatch


def batch_cases() -> dict[str, SampledMinibatch]:
    """The ordinary minibatch and the odd ones, all of three hops."""
    return {
        "ordinary": sampled([3, 1, 4, 15, 9]),
        "all neighbours": sampled([0, 1, 4], (-1, -1, -1)),
        "duplicate seeds": sampled([3, 1, 3, 3, 4, 1]),
        "isolated seed": sampled([59, 5, 6]),
        "only isolated seeds": sampled([59, 59]),
        "one node": sampled([59]),
        "empty first hop": sampled([3, 1, 4], (0, 3, 2)),
        "no seeds": sampled([]),
        "induced subgraph": sampled([3, 1, 3, 59], (3, 2, 2), subgraph=Subgraph.INDUCED),
    }


def table(dtype: torch.dtype = torch.float32) -> Tensor:
    """[60, FEATURES] features of the graph's nodes."""
    return torch.randn(60, FEATURES, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(
        dtype
    )


def layer_edges(minibatch: SampledMinibatch, layer: int) -> tuple[Tensor, int, int]:
    """Returns the [2, E] edges of a layer (1 is nearest the input), its sources N and targets D."""
    if not minibatch.has_layers:
        return minibatch.edge_index, minibatch.num_nodes, minibatch.num_nodes
    hops = len(minibatch.edges_per_hop) - layer + 1
    edges = minibatch.edge_index[:, : sum(minibatch.edges_per_hop[:hops])]
    return edges, sum(minibatch.nodes_per_hop[: hops + 1]), sum(minibatch.nodes_per_hop[:hops])
