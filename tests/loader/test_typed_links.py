"""Loading around links of graphs with types and times, in disjoint examples, without own edges."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader

from pyg_batchgnn import MacrobatchLinkNeighborLoader
from pyg_batchgnn.sample import PygLinkSampler
from tests.loader.test_links import pairs
from tests.support.loader_cases import assert_same, equal
from tests.support.typed_link_cases import (
    BACK,
    BUYS,
    DATA,
    ITEMS,
    KNOWS,
    SELLS,
    SHOPS,
    USERS,
    make_links,
    times_of,
)


def test_a_graph_of_one_type_and_one_relation_is_that_of_a_data() -> None:
    typed = HeteroData()
    typed["a"].x = torch.rand(USERS, 2)
    typed["a", "b", "a"].edge_index = DATA[KNOWS].edge_index
    plain = Data(x=typed["a"].x, edge_index=DATA[KNOWS].edge_index)
    options = {"neg_sampling": "binary", "shuffle": True, "exclude_seed_edges": "reverse"}
    for one, other in zip(
        make_links(typed, ("a", "a"), **options), make_links(plain, None, **options), strict=True
    ):
        assert equal(one["a"].n_id, other.n_id)
        assert equal(one["a", "b", "a"].edge_index, other.edge_index)
        assert equal(one["a", "b", "a"].edge_label_index, other.edge_label_index)


def test_links_of_several_types() -> None:
    index = {KNOWS: None, ("user", "buys", "item"): DATA[BUYS].edge_index[:, :50]}
    labels = {BUYS: torch.arange(50) % 2}
    negatives = {BUYS: "binary", KNOWS: ("triplet", 2)}
    loader = make_links(index=index, edge_label=labels, neg_sampling=negatives, shuffle=True)
    assert len(loader) == -(-170 // 24) and loader.neg_sampling is None
    seen: dict[Any, list[int]] = {KNOWS: [], BUYS: []}
    for batch in loader:
        users, items = batch["user"].n_id, batch["item"].n_id
        knows, buys = batch[KNOWS].input_id, batch[BUYS].input_id
        assert knows.numel() + buys.numel() in (24, 170 % 24)
        ends = torch.stack([users[batch["user"].src_index], users[batch["user"].dst_pos_index]])
        assert torch.equal(ends, DATA[KNOWS].edge_index[:, knows])
        assert batch["user"].dst_neg_index.shape == (knows.numel(), 2)
        links, count = batch[BUYS].edge_label_index, buys.numel()
        ends = torch.stack([users[links[0, :count]], items[links[1, :count]]])
        assert torch.equal(ends, DATA[BUYS].edge_index[:, buys])
        assert batch[BUYS].edge_label.tolist() == [*(buys % 2 + 1).tolist(), *[0] * count]
        seen[KNOWS] += knows.tolist()
        seen[BUYS] += buys.tolist()
    assert sorted(seen[KNOWS]) == list(range(120)) and sorted(seen[BUYS]) == list(range(50))


def test_triplets_that_share_a_type() -> None:
    index = {BUYS: None, SELLS: None}
    with pytest.raises(ValueError, match=r"share an end type.*'item'"):
        make_links(index=index, neg_sampling="triplet")
    batch = make_links(index=index, neg_sampling="triplet", export="native", batch_size=220).__iter__()
    assert [one.relation for one in next(batch).links] == [BUYS, SELLS]
    # Sources here are targets there. They share nothing but the times of both ends.
    index, stamps = {BUYS: None, BACK: None}, {BUYS: times_of(160), BACK: times_of(160)}
    assert "src_index" in next(iter(make_links(index=index, neg_sampling="triplet")))["item"]
    with pytest.raises(ValueError, match="share an end type"):
        make_links(index=index, neg_sampling="triplet", time_attr="time", edge_label_time=stamps)


@pytest.mark.parametrize("negatives", ["binary", ("triplet", 2)])
@pytest.mark.parametrize("attribute", ["time", "stamp"])
def test_nothing_is_later_than_its_link(negatives: Any, attribute: str) -> None:
    times = times_of(160)
    first = {name: torch.full((DATA[name].num_nodes,), 99) for name in DATA.node_types}
    for relation in DATA.edge_types:
        for end, node in zip((relation[0], relation[2]), DATA[relation].edge_index, strict=True):
            first[end].scatter_reduce_(0, node, DATA[relation].stamp, "amin")
    rules = {"time_attr": attribute, "late_negatives": "raise"}  # none is early
    loader = make_links(neg_sampling=negatives, edge_label_time=times, shuffle=True, **rules)
    drawn = 0
    for batch in loader:
        own = times[batch[BUYS].input_id]
        count = own.numel()
        exists = first if attribute == "stamp" else {name: DATA[name].time for name in first}
        if negatives == "binary":
            assert torch.equal(batch[BUYS].edge_label_time, own.repeat(2))
            source, target = batch[BUYS].edge_label_index[:, count:]
            assert (exists["user"][batch["user"].n_id[source]] <= own).all()
            assert (exists["item"][batch["item"].n_id[target]] <= own).all()
        else:
            assert torch.equal(batch["user"].seed_time, own) and torch.equal(batch["item"].seed_time, own)
            target = batch["item"].dst_neg_index
            assert (exists["item"][batch["item"].n_id[target]] <= own.view(-1, 1)).all()
        drawn += target.numel()
        for relation in batch.edge_types:
            source, node = batch[relation].edge_index
            seed_time = own[batch[relation[2]].batch[node]]
            stamp = batch[relation].stamp if attribute == "stamp" else batch[relation[0]].time[source]
            assert (stamp <= seed_time).all()
    assert drawn == 160 * (1 if negatives == "binary" else 2)


@pytest.mark.parametrize("negatives", ["binary", ("triplet", 2)])
@pytest.mark.parametrize("attribute", ["time", "stamp"])
def test_freeze_is_a_time_of_all_links_and_their_negatives(negatives: Any, attribute: str) -> None:
    times, rules = times_of(160), {"neg_sampling": negatives, "time_attr": attribute, "export": "native"}
    loader = make_links(edge_label_time=times, freeze=5, **rules)
    for ours, clamped in zip(loader, make_links(edge_label_time=times.clamp(max=5), **rules), strict=True):
        (left,), (right,) = ours.links, clamped.links
        assert torch.equal(left.time.clamp(max=5), right.time) and left.time.max() == 9
        assert equal(replace(left, time=None), replace(right, time=None))
        assert equal(list(ours.nodes), list(clamped.nodes)) and equal(list(ours.edges), list(clamped.edges))
    assert loader.stats().total.frozen_seeds == 4 * int((times > 5).sum())  # the ends, and as many drawn


def test_settings_and_resuming() -> None:
    rules = {"neg_sampling": "binary", "exclude_seed_edges": True, "exclude_existing": True}
    options = {"index": {BUYS: None, KNOWS: None}, "shuffle": True, **rules}
    expected = list(make_links(**options))
    one_by_one = {"threads": 1, "macrobatch_size": 1, "fetch_size": 1}
    for change in (one_by_one, {"prefetch": 1}, {"num_workers": 2}):
        assert_same(make_links(**options, **change), expected)
    loader = make_links(**options)
    running = iter(loader)
    for _ in range(5):
        next(running)
    resumed = make_links(**options)
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert_same(resumed, expected[5:])


def test_reverse_edges_by_given_ids() -> None:
    edges = torch.tensor([[0, 1, 1, 0, 2], [1, 0, 0, 1, 0]])  # 0 and 2, 1 and 3 are each other's reverse
    data, paired = Data(edge_index=edges, num_nodes=3), torch.tensor([2, 3, 0, 1, -1])
    options = {"num_neighbors": [-1], "batch_size": 1}
    found = [
        sorted(batch.e_id.tolist())
        for batch in MacrobatchLinkNeighborLoader(data, exclude_seed_edges=("edges", paired), **options)
    ]
    assert found == [[1, 3, 4], [0, 2, 4], [1, 3, 4], [0, 2, 4], [1, 2]]
    wrong = torch.tensor([7])
    for given, message in (
        ({"exclude_seed_edges": ("edges", wrong)}, "input_id .* holds 4, but edges go from 0 to 0"),
        ({"exclude_seed_edges": ("pairs", wrong)}, "give 'edges', or"),
        ({"exclude_seed_edges": ("edges", wrong.float())}, "int64 ids"),
    ):
        with pytest.raises((IndexError, TypeError, ValueError), match=message):
            MacrobatchLinkNeighborLoader(data, **given, **options)


def test_reverses_by_the_names_of_their_ends() -> None:
    short = make_links(exclude_seed_edges={("user", "item"): ("item", "user")})
    assert_same(list(short), list(make_links(exclude_seed_edges={BUYS: BACK})))


def test_a_relation_without_a_reverse_is_an_error() -> None:
    advice = re.escape(f"like {{{KNOWS}: {KNOWS}}}")
    with pytest.raises(ValueError, match=rf"no relation \('user', 'rev_knows', 'user'\).*{advice}"):
        make_links(index=KNOWS, exclude_seed_edges="reverse")
    batch = next(iter(make_links(index=KNOWS, exclude_seed_edges={KNOWS: KNOWS})))
    links = set(map(tuple, batch["user"].n_id[batch[KNOWS].edge_label_index].t().tolist()))
    found = set(pairs(batch["user"].n_id[batch[KNOWS].edge_index]))
    assert found and not found & (links | {(target, source) for source, target in links})
    one_way = DATA.edge_type_subgraph([BUYS])
    with pytest.raises(ValueError, match="none from its target to its source: give True"):
        MacrobatchLinkNeighborLoader(one_way, [2], (BUYS, None), exclude_seed_edges="reverse")
    with pytest.raises(TypeError, match="exclude_seed_edges must be True"):
        make_links(exclude_seed_edges="both")


def test_an_edge_type_that_the_graph_lacks() -> None:
    likes = ("user", "likes", "shop")
    index = torch.stack([torch.arange(20), torch.arange(20) % SHOPS])
    batch = next(iter(make_links(index=(likes, index), neg_sampling="binary")))
    assert batch[likes].edge_label_index.shape == (2, 40) and "edge_index" not in batch[likes]


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_links_before_every_node_get_the_earliest_node_and_one_warning(export: str) -> None:
    data = DATA.clone()
    data["item"].time += 50
    options = {"neg_sampling": ("triplet", 2), "edge_label_time": times_of(160), "time_attr": "time"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader = make_links(data, **options, batch_size=32, export=export)
        batches = [*loader, *loader]
    (warning,) = caught
    assert re.search(r"160 of 160 links .* link 0 of .*buys.*, at time 3\)", str(warning.message))
    assert warning.filename == make_links.__code__.co_filename
    earliest = int(data["item"].time.argmin())
    for batch in batches:
        if export == "pyg":
            drawn = batch["item"].n_id[batch["item"].dst_neg_index]
        else:
            drawn = batch.nodes[batch.schema.type_number("item")].node[batch.links[0].negative]
        assert bool((drawn == earliest).all())
    assert loader.stats().total.late_negatives == 2 * 2 * 160
    with pytest.raises(ValueError, match=r"160 of 160 links .*late_negatives='raise'; leave these links"):
        make_links(data, **options, late_negatives="raise")
    with pytest.raises(ValueError, match="late_negatives must be 'warn' or 'raise', got 'no'"):
        make_links(data, **options, late_negatives="no")


def test_a_sampler_in_pygs_loader_warns_once() -> None:
    data = DATA.clone()
    data["item"].time += 50
    index = data[BUYS].edge_index
    given = {"edge_label_index": (BUYS, index), "edge_label_time": times_of(160), "batch_size": 40}
    for late in ("warn", "raise"):
        sampler = PygLinkSampler(data, [2], time_attr="time", late_negatives=late)
        loader = LinkLoader(data, sampler, neg_sampling="triplet", **given)
        if late == "raise":
            with pytest.raises(ValueError, match="40 of 40 links"):
                next(iter(loader))
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert len(list(loader)) == 4
        assert len(caught) == 1


LATE = {"edge_label_time": {BUYS: times_of(160)}, "time_attr": "time"}
UNKNOWN = ("user", "likes", "shop"), torch.zeros(2, 1).long()
REJECTING = {"neg_sampling": "binary", "exclude_existing": True}


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"index": None}, ValueError, "must name an edge type of the graph"),
        ({"index": "buys"}, ValueError, "must name an edge type of the graph"),
        ({"index": DATA[BUYS].edge_index}, ValueError, "must name an edge type of the graph"),
        ({"index": {}}, ValueError, "names no edge type"),
        ({"index": ("user", "likes", "shop")}, ValueError, "which the graph has not"),
        ({"index": (("user", "likes", "film"), torch.zeros(2, 1).long())}, ValueError, "type 'film'"),
        ({"index": (BUYS, torch.full((2, 1), ITEMS))}, IndexError, "ends of type 'item' holds 30"),
        ({"index": {BUYS: None}, "edge_label": torch.zeros(160)}, TypeError, "edge_label must be a dict"),
        ({"index": {BUYS: None}, "edge_label": {KNOWS: None}}, ValueError, "which edge_label_index does not"),
        ({"index": {BUYS: None, KNOWS: None}, **LATE}, ValueError, "edge_label_time lacks"),
        ({"time_attr": "time"}, ValueError, "'edge_label_time' is not set"),
        ({"neg_sampling": "zz"}, ValueError, "must be 'binary', 'triplet' or 'in-batch', got 'zz'"),
        ({"exclude_existing": "yes", "neg_sampling": "binary"}, TypeError, "True or False, got 'yes'"),
        ({"exclude_seed_edges": {BUYS: BACK, ("x", "y", "z"): BACK}}, ValueError, "names .'x', 'y', 'z'."),
        (
            {"time_attr": "time", "edge_label_time": times_of(160).float()},
            TypeError,
            "edge_label_time must be torch.int64",
        ),
        ({"index": UNKNOWN, **REJECTING}, ValueError, "which the graph does not have"),
    ],
)
def test_bad_inputs(kwargs: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_links(**kwargs)
