"""The arguments of PyG's `NeighborSampler`, and links: `PygNeighborSampler`, `PygLinkSampler`."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput, NumNeighbors

from pyg_batchgnn import (
    MacrobatchLinkNeighborLoader,
    MacrobatchNeighborLoader,
    PygLinkSampler,
    PygNeighborSampler,
    SamplingPlan,
)
from tests.support.pyg_sampler_graphs import (
    BACK,
    BUYS,
    USERS,
    assert_same,
    plain,
    typed,
)

OPTIONS = [
    {},
    {"replace": True},
    {"disjoint": True},
    {"subgraph_type": "induced"},
    {"subgraph_type": "bidirectional"},
    {"weight_attr": "weight"},
    {"time_attr": "stamp", "temporal_strategy": "last"},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("negatives", [None, "binary", ("triplet", 2)])
def test_pygs_link_loader_with_it_is_ours(options: dict[str, Any], negatives: Any) -> None:
    data = plain()
    times = torch.full((200,), 7) if "time_attr" in options else None
    links = {"edge_label_index": data.edge_index, "edge_label_time": times, "neg_sampling": negatives}
    sampler = PygNeighborSampler(data, [3, 2], seed=5, **options)
    theirs = LinkLoader(data, sampler, batch_size=64, filter_per_worker=True, **links)
    ours = MacrobatchLinkNeighborLoader(data, [3, 2], batch_size=64, seed=5, **links, **options)
    assert_same(theirs, ours)


@pytest.mark.parametrize("options", OPTIONS)
def test_pygs_node_loader_with_it_is_ours(options: dict[str, Any]) -> None:
    data = plain()
    times = torch.full((USERS,), 7) if "time_attr" in options else None
    sampler = PygNeighborSampler(data, [3, 2], seed=5, **options)
    theirs = NodeLoader(data, sampler, input_time=times, batch_size=8, filter_per_worker=True)
    ours = MacrobatchNeighborLoader(data, [3, 2], input_time=times, batch_size=8, seed=5, **options)
    assert_same(theirs, ours)


@pytest.mark.parametrize("negatives", [None, "binary", ("triplet", 2)])
def test_typed_links(negatives: Any) -> None:
    data = typed()
    fanouts = {BUYS: [3, 2], BACK: [2, 2]}
    sampler = PygLinkSampler(data, fanouts, seed=5, exclude_existing=negatives is not None)
    links = {"edge_label_index": BUYS, "neg_sampling": negatives, "batch_size": 32}
    theirs = LinkLoader(data, sampler, filter_per_worker=True, **links)
    exclude = {"exclude_existing": negatives is not None}
    assert_same(theirs, MacrobatchLinkNeighborLoader(data, fanouts, seed=5, **links, **exclude))


def test_a_link_sampler_leaves_out_the_links() -> None:
    data = typed()
    sampler = PygLinkSampler(data, [-1], exclude_seed_edges="reverse")
    loader = LinkLoader(data, sampler, BUYS, batch_size=10, filter_per_worker=True)
    for batch in loader:
        taken = set(map(tuple, data[BUYS].edge_index[:, batch[BUYS].input_id].t().tolist()))
        source, target = batch[BUYS].edge_index
        found = torch.stack([batch["user"].n_id[source], batch["item"].n_id[target]])
        assert not taken & set(map(tuple, found.t().tolist()))
    named = PygLinkSampler(data, [-1], exclude_seed_edges={BUYS: BACK})
    assert_same(LinkLoader(data, named, BUYS, batch_size=10, filter_per_worker=True), loader)


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


# Fanouts and epochs ###############################################################################


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
        ("edge_block", r"'edge_block'.*attributes_of\(\.\.\.\)\.tables$"),
        ("x", r"'x'.*'user', 'item'.*attributes_of\(\.\.\.\)\.gather\('x'\)$"),
        ("y", r"'y'.*'user', 'item'.*attributes_of\(\.\.\.\)\.gather\('y'\)$"),
        ("edge_attr", r"'edge_attr'.*'buys'.*attributes_of\(\.\.\.\)\.gather\('edge_attr'\)$"),
    ],
)
def test_what_several_types_have_apart(name: str, instead: str) -> None:
    loader = MacrobatchNeighborLoader(typed(), [2], "user", export="native", batch_size=4)
    with pytest.raises(AttributeError, match=instead):
        getattr(next(iter(loader)), name)


@pytest.mark.parametrize(
    ("window", "error"),
    [
        (2**70, ValueError),
        (-1, ValueError),
        (1.5, TypeError),
        (True, TypeError),
        (np.True_, TypeError),
    ],
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
