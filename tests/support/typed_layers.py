"""A small typed minibatch, and PyG's convolutions on the edges of its layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.nn.conv.hetero_conv import group

from pyg_batchgnn import Minibatch
from pyg_batchgnn.data import Relation, Schema
from pyg_batchgnn.sample import (
    AttributeRows,
    MacrobatchSampler,
    SampledMinibatch,
    SamplingPlan,
    Seeds,
    Subgraph,
)
from pyg_batchgnn.store import TypedGraph

CITES, WRITES, WROTE = ("paper", "cites", "paper"), ("author", "writes", "paper"), ("paper", "by", "author")
TOPIC, ABOUT, KNOWS = ("paper", "has", "topic"), ("topic", "of", "paper"), ("author", "knows", "author")
SCHEMA = Schema(("paper", "author", "topic"), (CITES, WRITES, WROTE, TOPIC, ABOUT, KNOWS))
NODES = {"paper": 60, "author": 40, "topic": 5}
EDGES = {CITES: 300, WRITES: 160, WROTE: 160, TOPIC: 90, ABOUT: 90, KNOWS: 0}
#: Columns of the features of each type.
WIDTHS = {"paper": 12, "author": 7, "topic": 3}


def typed_graph() -> TypedGraph:
    """Papers, authors and topics; self loops and parallel edges occur, a relation has no edges."""
    draw = torch.Generator().manual_seed(1)
    edges = {
        one: torch.stack([torch.randint(NODES[name], (count,), generator=draw) for name in one[::2]])
        for one, count in EDGES.items()
    }
    return TypedGraph.from_edge_indices(SCHEMA, NODES, edges)


def typed_minibatch(
    papers: list[int], authors: list[int] | None = None, fanouts: tuple[int, ...] = (4, 3), **plan: Any
) -> SampledMinibatch:
    seeds = {"paper": torch.tensor(papers, dtype=torch.int64)}
    if authors is not None:
        seeds["author"] = torch.tensor(authors, dtype=torch.int64)
    sampler = MacrobatchSampler(typed_graph(), SamplingPlan(fanouts, **plan), seed=5)
    (minibatch,) = sampler.sample([Seeds.of(SCHEMA, seeds)], 0)
    return minibatch


def typed_cases() -> dict[str, SampledMinibatch]:
    return {
        "papers": typed_minibatch([3, 1, 4, 15, 9]),
        "two types": typed_minibatch([3, 1, 3], [0, 7]),
        "all neighbours": typed_minibatch([0, 1], fanouts=(-1, -1)),
        "no seeds": typed_minibatch([]),
        "induced": typed_minibatch([3, 1, 3], [0, 7], subgraph=Subgraph.INDUCED),
    }


def tables(dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(2)
    return {
        name: torch.randn(NODES[name], width, generator=draw, dtype=torch.float64).to(dtype)
        for name, width in WIDTHS.items()
    }


def with_tables(minibatch: SampledMinibatch, dtype: torch.dtype = torch.float64) -> Minibatch:
    """The minibatch as a native loader hands it out, its features read in place."""
    found = tables(dtype)
    groups = zip(SCHEMA.node_groups, SCHEMA.node_types, minibatch.nodes, strict=True)
    return Minibatch.of(
        minibatch,
        {group: AttributeRows.in_place({"x": found[name]}, one.node) for group, name, one in groups},
    )


def sizes(minibatch: SampledMinibatch, layer: int) -> tuple[dict[str, int], dict[str, int]]:
    hops = len(minibatch.nodes[0].nodes_per_hop) - layer
    named = list(zip(SCHEMA.node_types, minibatch.nodes, strict=True))
    if not minibatch.has_layers:
        every = {name: one.node.numel() for name, one in named}
        return every, every
    return (
        {name: sum(one.nodes_per_hop[: hops + 1]) for name, one in named},
        {name: sum(one.nodes_per_hop[:hops]) for name, one in named},
    )


def rows_of(minibatch: SampledMinibatch, layer: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Rows of the sources of a layer, which need a gradient; of many columns zeros are maxima."""
    sources, _ = sizes(minibatch, layer)
    found = tables(dtype)
    return {
        name: found[name][nodes.node[: sources[name]]].relu().requires_grad_()
        for name, nodes in zip(SCHEMA.node_types, minibatch.nodes, strict=True)
    }


def pyg_layer(
    convs: Mapping[Relation, Any],
    aggr: str | None,
    x: Mapping[str, Tensor],
    minibatch: SampledMinibatch,
    layer: int,
    values: Mapping[Relation, Tensor] | None = None,
) -> dict[str, Tensor]:
    """PyG's convolutions on ((sources, targets), edges) of each relation, grouped as PyG does."""
    out: dict[str, list[Tensor]] = {}
    sources, targets = sizes(minibatch, layer)
    hops = len(minibatch.nodes[0].nodes_per_hop) - layer
    for relation, conv in convs.items():
        source, _, target = relation
        edges = minibatch.edges_of(relation)
        count = sum(edges.edges_per_hop[:hops]) if minibatch.has_layers else edges.num_edges
        rows = (x[source][: sources[source]], x[target][: targets[target]])
        value = {} if values is None or relation not in values else {"edge_attr": values[relation][:count]}
        if isinstance(conv, pyg.GCNConv):
            nodes = minibatch.nodes_of(source).node.numel()
            every, weight = gcn_norm(edges.edge_index, None, nodes, dtype=rows[0].dtype)
            kept = every[1] < targets[target]
            plain = pyg.GCNConv(*conv.lin.weight.shape[::-1], normalize=False)
            plain.lin, plain.bias = conv.lin, conv.bias
            found = plain(rows[0], every[:, kept], weight[kept])[: targets[target]]
        else:
            found = conv(rows, edges.edge_index[:, :count], **value)
        out.setdefault(target, []).append(found)
    return {name: group(found, aggr) for name, found in out.items()}


def joined(out: Mapping[str, Tensor]) -> Tensor:
    flat = torch.cat([one.flatten() for _, one in sorted(out.items())])
    return flat * torch.linspace(-1.0, 1.0, flat.numel(), dtype=flat.dtype)


def assert_near(found: list[Tensor], wanted: list[Tensor], tolerance: float) -> None:
    """Differences are parts of the largest value of all, at least a thousandth."""
    scale = max((float(one.detach().abs().max()) for one in wanted if one.numel()), default=0.0)
    for one, two in zip(found, wanted, strict=True):
        assert one.shape == two.shape
        assert not one.numel() or float((one - two).detach().abs().max()) <= tolerance * max(scale, 1e-3)
