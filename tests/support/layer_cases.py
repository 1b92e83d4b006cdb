"""Small minibatches with the odd cases, and layers of ours beside the same ones of PyG's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import CscGraph, MacrobatchSampler, SampledMinibatch, SamplingPlan
from pyg_batchgnn.nn import Update
from pyg_batchgnn.sample import Subgraph
from tests.support.accuracy import assert_as_pygs

FEATURES = 12


def small_graph() -> CscGraph:
    """60 nodes; self loops, parallel edges and a hub occur, the last node has no edges at all."""
    generator = torch.Generator().manual_seed(1)
    edges = torch.randint(59, (2, 400), generator=generator)
    hub = torch.stack([torch.randint(59, (200,), generator=generator), torch.zeros(200, dtype=torch.int64)])
    return CscGraph.from_edge_index(torch.cat([edges, hub], dim=1), 60)


def small_edges() -> Tensor:
    graph = small_graph()
    return torch.stack([graph.indices.long(), torch.arange(60).repeat_interleave(graph.indptr.diff())])


def sampled(
    seeds: list[int], fanouts: tuple[int, ...] = (4, 3, 2), epoch: int = 0, **plan: Any
) -> SampledMinibatch:
    sampler = MacrobatchSampler(small_graph(), SamplingPlan(fanouts, **plan), seed=5)
    (minibatch,) = sampler.sample([torch.tensor(seeds, dtype=torch.int64)], epoch)
    return minibatch


def batch_cases() -> dict[str, SampledMinibatch]:
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


def both(ours: type, pygs: type, *arguments: Any, dtype: torch.dtype, **options: Any) -> tuple[Any, Any]:
    torch.manual_seed(3)
    one, other = ours(*arguments, **options).to(dtype), pygs(*arguments, **options).to(dtype)
    other.load_state_dict(one.state_dict())
    one.load_state_dict(other.state_dict())
    for parameter in (*one.parameters(), *other.parameters()):
        if parameter.dim() == 1:  # biases begin at zero, where they prove little
            parameter.data.copy_(torch.linspace(-0.5, 0.5, parameter.numel()))
    return one, other


def gradients(module: torch.nn.Module, out: Tensor, *inputs: Tensor) -> list[Tensor]:
    weights = torch.linspace(-1.0, 1.0, out.numel(), dtype=out.dtype).view_as(out)
    leaves = [*module.parameters(), *inputs]
    found = torch.autograd.grad((out * weights).sum(), leaves, allow_unused=True, materialize_grads=True)
    return list(found)


def assert_attention_as_pygs(
    ours: Any, pygs: Any, minibatch: SampledMinibatch, layers: Sequence[int]
) -> None:
    """Fails unless a layer with attention gives what PyG's gives on layers of a minibatch."""
    dtype = next(ours.parameters()).dtype
    attributes = []
    if ours.edge_dim is not None:
        attributes = [torch.randn(minibatch.num_edges, ours.edge_dim, dtype=dtype)]
    for layer in layers:
        edges, sources, targets = layer_edges(minibatch, layer)

        def on_minibatch(conv: Any, x: Tensor, *attr: Tensor, layer: int = layer) -> Tensor:
            return conv(x, minibatch, layer, edge_attr=attr[0] if attr else None)

        def on_edges(
            conv: Any, x: Tensor, *attr: Tensor, edges: Tensor = edges, targets: int = targets
        ) -> Tensor:
            return conv((x, x[:targets]), edges, attr[0][: edges.size(1)] if attr else None)

        rows = table(dtype)[minibatch.node[:sources]]
        assert_as_pygs(ours, pygs, on_minibatch, on_edges, rows, *attributes)


def assert_updates(conv: Any, minibatch: SampledMinibatch) -> None:
    """Fails unless a layer's update is ReLU and keyed dropout of what it gives without one."""
    x = table()[minibatch.node]
    relu, dropping = Update(relu=True), Update(relu=True, drop=0.5)
    plain = conv(x, minibatch, 1)
    assert torch.equal(conv(x, minibatch, 1, update=relu), plain.relu())
    dropped = conv(x, minibatch, 1, update=dropping)
    assert torch.equal(dropped, conv(x, minibatch, 1, update=dropping))
    kept = dropped != 0
    assert torch.equal(dropped[kept], plain.relu()[kept] * 2) and 0.05 < float(kept.float().mean()) < 0.6
    conv.eval()
    assert torch.equal(conv(x, minibatch, 1, update=dropping), plain.relu())
