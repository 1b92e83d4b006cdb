"""Loading around links of graphs with types and times, in disjoint examples, without own edges."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader.link_loader import LinkLoader

from pyg_batchgnn.data import Schema
from pyg_batchgnn.sample import SamplingPlan
from tests.loader.test_links import Replay, pairs
from tests.support.loader_cases import equal
from tests.support.reference_sampler import fold, reference_key
from tests.support.typed_link_cases import (
    BACK,
    BUYS,
    DATA,
    KNOWS,
    SELLS,
    USERS,
    assert_same,
    make_links,
    times_of,
)
from tests.support.typed_reference import Edge, ReferenceGraph, ReferenceSampler, ReferenceSeed, names_key

NEGATIVES = [None, "binary", ("binary", 0.5), ("triplet", 1), ("triplet", 3)]


# The batches of PyG ###############################################################################


@pytest.mark.parametrize("relation", [BUYS, KNOWS])
@pytest.mark.parametrize("negatives", NEGATIVES)
@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("timed", [False, True])
def test_batches_are_those_that_pyg_makes_of_the_samples(
    relation: Any, negatives: Any, disjoint: bool, timed: bool
) -> None:
    samples: list[Any] = []

    def keep(out: Any) -> Any:
        samples.append(out)
        return out

    index = DATA[relation].edge_index[:, ::3]
    times = times_of(index.size(1)) if timed else None
    options = {"neg_sampling": negatives, "edge_label_time": times, "batch_size": 24}
    ours = list(
        make_links(
            index=(relation, index),
            disjoint=disjoint,
            time_attr="time" if timed else None,
            transform_sampler_output=keep,
            **options,
        )
    )
    theirs = LinkLoader(DATA, Replay(samples), (relation, index), filter_per_worker=True, **options)
    assert_same(ours, theirs)
    batch = ours[0]
    assert ("batch" in batch["user"]) == (disjoint or timed)
    assert "batch_size" not in batch["user"] and "input_id" in batch[relation]
    nodes = batch[relation[0]].n_id, batch[relation[2]].n_id
    if negatives is None or "triplet" not in negatives:
        links = batch[relation].edge_label_index
        source, target = nodes[0][links[0, :24]], nodes[1][links[1, :24]]
    else:
        source = nodes[0][batch[relation[0]].src_index]
        target = nodes[1][batch[relation[2]].dst_pos_index]
    assert torch.equal(torch.stack([source, target]), index[:, batch[relation].input_id])


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


# The reference ####################################################################################


def reference_graph(data: HeteroData, stamped: bool) -> ReferenceGraph:
    """The in-edges of every node, with the times of edges if they matter."""
    lists: dict[Any, dict[int, list[Edge]]] = {}
    for relation in data.edge_types:
        into: dict[int, list[Edge]] = {}
        for number, (source, target) in enumerate(pairs(data[relation].edge_index)):
            time = int(data[relation].stamp[number]) if stamped else None
            into.setdefault(target, []).append(Edge(source, number, time))
        lists[relation] = into
    schema = Schema(*map(tuple, data.metadata()))
    return ReferenceGraph(schema, {name: data[name].num_nodes for name in data.node_types}, lists)


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("exclude", [False, True])
def test_minibatches_equal_the_reference(disjoint: bool, timed: bool, exclude: bool) -> None:
    times = times_of(160) if timed else None
    loader = make_links(
        disjoint=disjoint,
        neg_sampling="binary",
        edge_label_time=times,
        time_attr="stamp" if timed else None,
        exclude_seed_edges=exclude,
        shuffle=True,
    )
    graph, apart = reference_graph(DATA, timed), disjoint or timed
    for batch in loader:
        ids = batch[BUYS].input_id
        given, count = pairs(DATA[BUYS].edge_index[:, ids]), ids.numel()
        key = fold(fold(0, names_key(BUYS)), reference_key([node for pair in given for node in pair]))
        ends = batch[BUYS].edge_label_index
        users, items = (
            batch[name].n_id[row].tolist() for name, row in zip(("user", "item"), ends, strict=True)
        )
        assert list(zip(users, items, strict=True))[:count] == given
        seeds = []
        for name, nodes in (("user", users), ("item", items)):
            if apart:
                example = [at % count for at in range(2 * count)]
                when = [None if times is None else int(times[ids[at]]) for at in example]
                seeds += [ReferenceSeed(name, *one) for one in zip(nodes, example, when, strict=True)]
            else:
                seeds += [ReferenceSeed(name, node) for node in sorted(set(nodes))]
        excluded = (
            {(BUYS, at if apart else None, *pair) for at, pair in enumerate(given)} if exclude else set()
        )
        sampler = ReferenceSampler(graph, SamplingPlan((4, 3)), 7, 0, apart, excluded)
        expected = sampler.sample(seeds, key)
        for name in batch.node_types:
            found = batch[name].n_id.tolist()
            examples = batch[name].batch.tolist() if apart else [0] * len(found)
            assert list(zip(examples, found, strict=True)) == expected.node[name]
            assert batch[name].num_sampled_nodes == expected.nodes_per_hop[name]
        for relation in batch.edge_types:
            assert batch[relation].e_id.tolist() == expected.edge[relation]
            assert batch[relation].edge_index[0].tolist() == expected.source[relation]


# Several edge types ###############################################################################


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


# Examples apart, and times ########################################################################


@pytest.mark.parametrize("negatives", [("binary", 0.5), ("binary", 2), ("triplet", 3)])
def test_both_ends_of_a_link_are_one_example(negatives: Any) -> None:
    for batch in make_links(neg_sampling=negatives, disjoint=True):
        count = batch[BUYS].input_id.numel()
        owner = {name: batch[name].batch for name in batch.node_types}
        if negatives[0] == "binary":
            links = batch[BUYS].edge_label_index
            expected = torch.arange(links.size(1)) % count
            assert torch.equal(owner["user"][links[0]], expected)
            assert torch.equal(owner["item"][links[1]], expected)
        else:
            assert owner["user"][batch["user"].src_index].tolist() == list(range(count))
            assert owner["item"][batch["item"].dst_pos_index].tolist() == list(range(count))
            negative = owner["item"][batch["item"].dst_neg_index]
            assert torch.equal(negative, torch.arange(count).repeat(3, 1).t())
        for relation in batch.edge_types:
            source, target = batch[relation].edge_index
            assert torch.equal(owner[relation[0]][source], owner[relation[2]][target])


@pytest.mark.parametrize("negatives", ["binary", ("triplet", 2)])
@pytest.mark.parametrize("attribute", ["time", "stamp"])
def test_nothing_is_later_than_its_link(negatives: Any, attribute: str) -> None:
    times = times_of(160)
    first = {name: torch.full((DATA[name].num_nodes,), 99) for name in DATA.node_types}
    for relation in DATA.edge_types:
        for end, node in zip((relation[0], relation[2]), DATA[relation].edge_index, strict=True):
            first[end].scatter_reduce_(0, node, DATA[relation].stamp, "amin")
    loader = make_links(neg_sampling=negatives, edge_label_time=times, time_attr=attribute, shuffle=True)
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


# The same bits always #############################################################################


def test_settings_and_resuming() -> None:
    options = {
        "index": {BUYS: None, KNOWS: None},
        "neg_sampling": "binary",
        "shuffle": True,
        "exclude_seed_edges": True,
        "exclude_existing": True,
    }
    expected = list(make_links(**options))
    for change in (
        {"threads": 1, "macrobatch_size": 1, "fetch_size": 1},
        {"prefetch": 1},
        {"num_workers": 2},
    ):
        assert_same(make_links(**options, **change), expected)
    loader = make_links(**options)
    running = iter(loader)
    for _ in range(5):
        next(running)
    resumed = make_links(**options)
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert_same(resumed, expected[5:])
