"""Samplers that follow edges from source to target."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.loader import LinkLoader
from torch_geometric.sampler import NodeSamplerInput, NumNeighbors
from torch_geometric.testing import MyFeatureStore, MyGraphStore

from pyg_batchgnn import (
    MacrobatchLinkNeighborLoader,
    MacrobatchNeighborLoader,
    PygLinkSampler,
    PygNeighborSampler,
)
from tests.support.pyg_sampler_graphs import (
    BACK,
    BUYS,
    assert_same,
    plain,
    typed,
)


def test_backward_follows_edges_from_source_to_target() -> None:
    data = plain()
    inputs = NodeSamplerInput(torch.arange(4), torch.tensor([3, 8, 9, 20]))
    out = PygNeighborSampler(data, [-1], sample_direction="backward").sample_from_nodes(inputs)
    found = torch.stack([out.node[out.row], out.node[out.col]])
    assert torch.equal(found, data.edge_index[:, out.edge])
    expected = torch.isin(data.edge_index[0], inputs.node).nonzero().view(-1)
    assert torch.equal(out.edge.sort().values, expected)
    assert (out.row < 4).all() and out.num_sampled_nodes[0] == 4


def test_backward_is_forward_on_the_reversed_graph() -> None:
    data, inputs = plain(), NodeSamplerInput(None, torch.arange(10))
    turned = data.clone()
    turned.edge_index = data.edge_index.flip(0)
    for options in ({}, {"weight_attr": "weight"}, {"subgraph_type": "induced"}):
        out = PygNeighborSampler(data, [2, 2], sample_direction="backward", **options).sample_from_nodes(
            inputs
        )
        other = PygNeighborSampler(turned, [2, 2], **options).sample_from_nodes(inputs)
        assert torch.equal(out.row, other.col) and torch.equal(out.col, other.row)
        assert torch.equal(out.edge, other.edge) and torch.equal(out.node, other.node)


@pytest.mark.parametrize(
    "fanouts",
    [
        [-1],
        {BUYS: [-1], BACK: [0]},
        {"__".join(BUYS): [-1], BACK: [0]},
        NumNeighbors({BUYS: [-1]}, default=[0]),
    ],
)
def test_backward_with_types(fanouts: Any) -> None:
    data = typed()
    inputs = NodeSamplerInput(None, torch.tensor([1, 4]), input_type="user")
    out = PygNeighborSampler(data, fanouts, sample_direction="backward").sample_from_nodes(inputs)
    assert set(out.row) == {BUYS, BACK} and set(out.num_sampled_edges) == {BUYS, BACK}
    found = torch.stack([out.node["user"][out.row[BUYS]], out.node["item"][out.col[BUYS]]])
    assert torch.equal(found, data[BUYS].edge_index[:, out.edge[BUYS]])
    expected = torch.isin(data[BUYS].edge_index[0], inputs.node).sum()
    assert out.edge[BUYS].numel() == expected == out.num_sampled_edges[BUYS][0]
    assert out.row[BACK].numel() == 0


def backward_links(data: Any, **kwargs: Any) -> tuple[LinkLoader, MacrobatchLinkNeighborLoader]:
    """PyG's loader and ours around the links of a graph, with a sampler that works backward."""
    rules = {name: kwargs.pop(name) for name in ("exclude_existing", "exclude_seed_edges") if name in kwargs}
    sampler = PygLinkSampler(data, [3, 2], seed=5, sample_direction="backward", **rules)
    index = data.edge_index if isinstance(data, Data) else BUYS
    links = {"edge_label_index": index, "batch_size": 32, **kwargs}
    return (
        LinkLoader(data, sampler, filter_per_worker=True, **links),
        MacrobatchLinkNeighborLoader(data, [3, 2], neighbor_sampler=sampler, **links),
    )


@pytest.mark.parametrize("negatives", [None, "binary", ("triplet", 2)])
def test_links_backward_are_forward_on_the_reversed_graph(negatives: Any) -> None:
    data = plain()
    turned = data.clone()
    turned.edge_index = data.edge_index.flip(0)
    theirs, ours = backward_links(data, neg_sampling=negatives)
    assert_same(theirs, ours)
    links = {"edge_label_index": data.edge_index, "neg_sampling": negatives, "batch_size": 32}
    forward = list(MacrobatchLinkNeighborLoader(turned, [3, 2], seed=5, **links))
    for batch in forward:
        batch.edge_index = batch.edge_index.flip(0)
    ours.set_epoch(0)
    assert_same(forward, ours)


@pytest.mark.parametrize("negatives", ["binary", ("triplet", 2)])
@pytest.mark.parametrize("excluded", [True, "reverse"])
def test_rules_of_links_backward(negatives: Any, excluded: Any) -> None:
    data = typed()
    rules = {"exclude_existing": True, "exclude_seed_edges": excluded}
    theirs, ours = backward_links(data, neg_sampling=negatives, **rules)
    assert_same(theirs, ours)
    existing = set(map(tuple, data[BUYS].edge_index.t().tolist()))
    sampled = {BUYS: 0, BACK: 0}
    for batch in ours:
        links = data[BUYS].edge_index[:, batch[BUYS].input_id]
        for relation, pairs in ((BUYS, links), (BACK, links.flip(0))):
            source, target = batch[relation].edge_index
            found = torch.stack([batch[relation[0]].n_id[source], batch[relation[2]].n_id[target]])
            assert torch.equal(found, data[relation].edge_index[:, batch[relation].e_id])
            shared = set(map(tuple, found.t().tolist())) & set(map(tuple, pairs.t().tolist()))
            assert not shared or (relation == BACK and excluded is True)
            sampled[relation] += source.numel()
        if negatives == "binary":
            source, target = batch[BUYS].edge_label_index[:, batch[BUYS].edge_label == 0]
            users, items = batch["user"].n_id[source], batch["item"].n_id[target]
        else:
            users = batch["user"].n_id[batch["user"].src_index].repeat_interleave(2)
            items = batch["item"].n_id[batch["item"].dst_neg_index.reshape(-1)]
        assert not existing & set(map(tuple, torch.stack([users, items]).t().tolist()))
    assert all(sampled.values())


def test_backward_with_attributes_of_edges_in_stores() -> None:
    data, features, graphs = typed(), MyFeatureStore(), MyGraphStore()
    order = torch.arange(120) * 3
    for name in ("user", "item"):
        features.put_tensor(data[name].x, group_name=name, attr_name="x", index=None)
    for relation in (BUYS, BACK):
        size = (data[relation[0]].num_nodes, data[relation[2]].num_nodes)
        graphs.put_edge_index(tuple(data[relation].edge_index), edge_type=relation, layout="coo", size=size)
    features.put_tensor(order, group_name=BUYS, attr_name="order", index=None)
    sampler = PygNeighborSampler((features, graphs), [3, 2], sample_direction="backward")
    loader = MacrobatchNeighborLoader((features, graphs), [3, 2], "user", neighbor_sampler=sampler)
    for batch in loader:
        assert torch.equal(batch[BUYS].order, order[batch[BUYS].e_id])
        assert torch.equal(batch["item"].x, data["item"].x[batch["item"].n_id])


def test_backward_without_times() -> None:
    with pytest.raises(NotImplementedError, match="sample_direction='forward' only"):
        PygNeighborSampler(plain(), [2], time_attr="stamp", sample_direction="backward")
    with pytest.raises(ValueError, match="'forward' or 'backward', got 'sideways'"):
        PygNeighborSampler(plain(), [2], sample_direction="sideways")
