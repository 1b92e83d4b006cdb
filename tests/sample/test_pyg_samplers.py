"""`PygNeighborSampler` inside PyG's own loaders: batches are subgraphs of the input."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader, NeighborLoader, NodeLoader
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    NegativeSampling,
    NodeSamplerInput,
    NumNeighbors,
)
from torch_geometric.testing import MyFeatureStore, MyGraphStore

from pyg_batchgnn import (
    MacrobatchLinkNeighborLoader,
    MacrobatchNeighborLoader,
    PygLinkSampler,
    PygNeighborSampler,
    SamplingPlan,
)
from tests.support.loader_cases import assert_same


def test_it_is_a_base_sampler() -> None:
    sampler = PygNeighborSampler(plain(), [2])
    assert isinstance(sampler, BaseSampler)
    assert sampler.edge_permutation is None
    inputs = NodeSamplerInput(input_id=None, node=torch.tensor([1, 2]), time=torch.tensor([3, 4]))
    with pytest.raises(ValueError, match="time_attr"):
        sampler.sample_from_nodes(inputs)


USERS, ITEMS = 30, 20
BUYS, BACK = ("user", "buys", "item"), ("item", "rev_buys", "user")


def random_edges(sources: int, targets: int, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.stack([torch.randint(size, (count,), generator=generator) for size in (sources, targets)])


def plain() -> Data:
    edges = random_edges(USERS, USERS, 200)
    return Data(x=torch.rand(USERS, 2), edge_index=edges, stamp=torch.arange(200) % 9, weight=torch.rand(200))


def typed() -> HeteroData:
    data = HeteroData()
    data["user"].x, data["item"].x = torch.rand(USERS, 2), torch.rand(ITEMS, 2)
    data[BUYS].edge_index = random_edges(USERS, ITEMS, 120)
    data[BACK].edge_index = data[BUYS].edge_index.flip(0)
    for relation in (BUYS, BACK):
        data[relation].stamp, data[relation].weight = torch.arange(120) % 9, torch.rand(120)
    return data


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
    with pytest.raises(TypeError, match="epoch must be an integer, or a function"):
        PygNeighborSampler(plain(), [2], epoch=torch.ones(2))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"got torch\.bool"):
        PygNeighborSampler(plain(), [2]).sample_from_nodes(NodeSamplerInput(None, torch.ones(2) > 0))


OPTIONS = [
    {},
    {"replace": True},
    {"disjoint": True},
    {"subgraph_type": "induced"},
    {"subgraph_type": "bidirectional"},
    {"weight_attr": "weight"},
    {"time_attr": "stamp", "temporal_strategy": "last"},
]


@pytest.mark.filterwarnings("ignore:The input graph does not contain", "ignore:.*reverse edge type")
@pytest.mark.parametrize("make", [plain, typed])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("negatives", [None, "binary", ("binary", 0.5), ("triplet", 1), ("triplet", 3)])
@pytest.mark.parametrize("dtype", [None, torch.int64, torch.float32])
def test_pygs_link_loader_with_it_is_ours(
    options: dict[str, Any], negatives: Any, dtype: torch.dtype | None, make: Callable[[], Any]
) -> None:
    data = make()
    index = data.edge_index if isinstance(data, Data) else (BUYS, data[BUYS].edge_index[:, ::3])
    count = (index if isinstance(index, Tensor) else index[1]).size(1)
    times = torch.arange(count) % 5 + 4 if "time_attr" in options else None
    labels = None if dtype is None or "triplet" in str(negatives) else torch.arange(count).to(dtype) % 3 + 1
    links = {"edge_label_index": index, "edge_label": labels, "edge_label_time": times}
    links["neg_sampling"] = negatives
    # The names of links may be attributes of the user's data as well.
    data.edge_label_index, data.edge_label_time = torch.zeros(2, 3), torch.zeros(3)
    sampler = PygNeighborSampler(data, [3, 2], seed=5, **options)
    theirs = LinkLoader(data, sampler, batch_size=64, filter_per_worker=True, **links)
    ours = MacrobatchLinkNeighborLoader(data, [3, 2], batch_size=64, seed=5, **links, **options)
    assert_same(theirs, ours)


@pytest.mark.parametrize("options", OPTIONS)
def test_pygs_node_loader_with_it_is_ours(options: dict[str, Any]) -> None:
    data = plain()
    times = torch.full((USERS,), 7) if "time_attr" in options else None
    sampler = PygNeighborSampler(data, [3, 2], seed=5, **options)
    theirs = NodeLoader(
        data, sampler, input_time=times, batch_size=8, num_workers=not options, filter_per_worker=True
    )
    ours = MacrobatchNeighborLoader(data, [3, 2], input_time=times, batch_size=8, seed=5, **options)
    assert_same(theirs, ours)
    given = {"input_time": times, "time_attr": options.get("time_attr"), "batch_size": 8}
    named = NeighborLoader(data, [9], neighbor_sampler=sampler, **given)
    ours.set_epoch(0)
    assert_same(named, ours)


@pytest.mark.parametrize("own", [{"exclude_seed_edges": "reverse", "exclude_existing": True}, {}])
def test_our_loader_takes_the_rules_of_its_sampler(own: dict[str, Any]) -> None:
    data, rules = typed(), {"exclude_seed_edges": "reverse", "exclude_existing": True}
    links = {"edge_label_index": BUYS, "neg_sampling": "binary", "batch_size": 32}
    sampler = PygLinkSampler(data, [3], seed=5, **rules)
    loader = MacrobatchLinkNeighborLoader(data, [3], neighbor_sampler=sampler, **links, **own)
    assert_same(loader, MacrobatchLinkNeighborLoader(data, [3], seed=5, **links, **rules))
    with pytest.raises(ValueError, match=r"exclude_seed_edges=True.*'reverse'"):
        MacrobatchLinkNeighborLoader(data, [3], neighbor_sampler=sampler, **links, exclude_seed_edges=True)


def test_one_sampler_serves_several_kinds_of_links() -> None:
    data = typed()
    sampler = PygNeighborSampler(data, [2])
    few, many = NegativeSampling("binary", 1), NegativeSampling("triplet", 3)
    calls = [(BUYS, few), (BACK, few), (BUYS, many), (BUYS, None), (BUYS, few)]
    found = []
    for relation, negatives in calls:
        row, col = data[relation].edge_index[:, :4]
        out = sampler.sample_from_edges(EdgeSamplerInput(None, row, col, input_type=relation), negatives)
        found.append(out)
        assert len(out.metadata) == (5 if negatives is many else 4)
        assert out.metadata[0].tolist() == [0, 1, 2, 3]
    assert torch.equal(found[0].metadata[1], found[4].metadata[1])


def test_fanouts_can_be_assigned() -> None:
    data = typed()
    inputs = NodeSamplerInput(None, torch.arange(10), input_type="item")
    sampler = PygNeighborSampler(data, [3, 2], seed=1)
    assert isinstance(sampler.num_neighbors, NumNeighbors) and len(sampler.num_neighbors) == 2
    for given in ([1], {BUYS: [2, 2, 2], BACK: [1, 1, 1]}, NumNeighbors({BUYS: [4]}, default=[1])):
        other = copy.copy(sampler)
        other.num_neighbors = given
        made = PygNeighborSampler(data, given, seed=1)
        assert len(other.num_neighbors) == len(made.num_neighbors)
        found, expected = other.sample_from_nodes(inputs), made.sample_from_nodes(inputs)
        for name in ("node", "row", "col", "edge"):
            left, right = getattr(found, name), getattr(expected, name)
            assert left.keys() == right.keys() and all(torch.equal(left[key], right[key]) for key in left)
    assert len(sampler.num_neighbors) == 2  # a copy's fanouts are its own
    with pytest.raises(ValueError, match="edge type"):
        sampler.num_neighbors = {BUYS: [1]}


def test_epochs_can_come_from_a_function() -> None:
    now = [0]
    inputs = NodeSamplerInput(None, torch.arange(USERS))
    sampler = PygNeighborSampler(plain(), [2], epoch=lambda: now[0])
    fixed = PygNeighborSampler(plain(), [2])
    for epoch in (0, 3):
        now[0] = fixed.epoch = epoch
        assert sampler.epoch == epoch
        assert torch.equal(sampler.sample_from_nodes(inputs).edge, fixed.sample_from_nodes(inputs).edge)


def test_typed_inputs_name_their_type() -> None:
    sampler = PygNeighborSampler(typed(), [2])
    with pytest.raises(ValueError, match=r"without input_type.*'user', 'item'"):
        sampler.sample_from_nodes(NodeSamplerInput(None, torch.arange(3)))
    with pytest.raises(ValueError, match=r"without input_type.*'buys'"):
        sampler.sample_from_edges(EdgeSamplerInput(None, torch.arange(3), torch.arange(3)))


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("n_id", r"nodes_of\(\.\.\.\)\.node$"),
        ("edge_index", r"edges_of\(\.\.\.\)\.edge_index$"),
        ("block", r"attributes_of\(\.\.\.\)\.tables$"),
        ("x", r"'x'.*'user', 'item'.*attributes_of\(\.\.\.\)\.gather\('x'\)$"),
        ("edge_attr", r"'edge_attr'.*'buys'.*attributes_of\(\.\.\.\)\.gather\('edge_attr'\)$"),
    ],
)
def test_what_several_types_have_apart(name: str, instead: str) -> None:
    loader = MacrobatchNeighborLoader(typed(), [2], "user", export="native", batch_size=4)
    with pytest.raises(AttributeError, match=instead):
        getattr(next(iter(loader)), name)


@pytest.mark.parametrize(
    ("window", "error"),
    [(2**70, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError), (np.True_, TypeError)],
)
def test_windows_that_cannot_be(window: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="time_window must be"):
        SamplingPlan((2,), time_window=window)
    with pytest.raises(error, match="time_window must be"):
        PygNeighborSampler(plain(), [2], time_attr="stamp", time_window=window)


def test_times_and_weights_are_tensors() -> None:
    data = typed()
    data[BUYS].stamp, data[BUYS].weight = [1] * 120, [1.0] * 120
    for rule in ({"time_attr": "stamp"}, {"weight_attr": "weight"}):
        with pytest.raises(TypeError, match=r"must be a tensor, but .* is a list; use torch\.tensor"):
            PygNeighborSampler(data, [2], **rule)
