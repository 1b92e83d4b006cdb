"""Typed minibatches: PyG's batches, the same bits for all settings, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import NumNeighbors
from torch_geometric.testing import MyFeatureStore, MyGraphStore

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.sample import Placement
from tests.support import loader_cases
from tests.support.hetero_cases import (
    CITES,
    COUNTS,
    RELATIONS,
    REV_WRITES,
    WRITES,
    as_hetero,
    assert_same,
    contents,
    make_hetero,
    make_loader,
)

PAPERS = ("paper", None)
BOTH = {"author": torch.arange(0, 40, 3), "paper": torch.arange(60) % 2 == 0}


# Against PyG and against Data #####################################################################


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"replace": True},
        {"disjoint": True},
        {"subgraph_type": "induced"},
        {"num_neighbors": NumNeighbors({CITES: [-1, 2]}, default=[3, 0.5])},
    ],
)
def test_the_same_as_pygs_own_node_loader(kwargs: dict[str, Any]) -> None:
    data = make_hetero()
    fanouts = kwargs.pop("num_neighbors", (4, 3))
    for nodes in ("paper", ("author", torch.tensor([5, 3, 5, 9])), ("paper", data["paper"].train_mask)):
        loader = make_loader(data, fanouts, input_nodes=nodes, **kwargs)
        theirs = NodeLoader(data, loader.node_sampler, nodes, batch_size=8)
        assert_same(loader, theirs)


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_one_type_and_one_relation_are_the_same_data(export: str) -> None:
    data = loader_cases.make_data()
    hetero = as_hetero(data)
    nodes = torch.arange(0, 300, 2)
    plain = loader_cases.make_loader(data, input_nodes=nodes, shuffle=True, export=export)
    typed = make_loader(hetero, input_nodes=("thing", nodes), shuffle=True, batch_size=32, export=export)
    for one, other in zip(plain, typed, strict=True):
        if export == "native":
            loader_cases.assert_same([one], [other])
            continue
        held = {name: value for (_, name), value in contents(other).items()}
        for name, value in loader_cases.contents(one).items():
            assert loader_cases.equal(value, held[name]), name


def whole_neighbourhood(data: HeteroData, papers: list[int], hops: int) -> dict[Any, set[int]]:
    """The nodes of each type within some hops of papers, and the edges that lead there."""
    found: dict[Any, set[int]] = {name: set() for name in (*data.node_types, *data.edge_types)}
    found["paper"] |= set(papers)
    expanded: set[tuple[str, int]] = set()
    for _ in range(hops):
        frontier = {(name, node) for name in data.node_types for node in found[name]} - expanded
        expanded |= frontier
        for relation in data.edge_types:
            source, _, target = relation
            for edge, (one, other) in enumerate(data[relation].edge_index.t().tolist()):
                if (target, other) in frontier:
                    found[relation].add(edge)
                    found[source].add(one)
    return found


def test_all_neighbours() -> None:
    data = make_hetero()
    for batch in make_loader(data, (-1, -1), input_nodes=("paper", torch.arange(12)), batch_size=2):
        found = whole_neighbourhood(data, batch["paper"].n_id[:2].tolist(), 2)
        for name in data.node_types:
            assert sorted(batch[name].n_id.tolist()) == sorted(found[name])
        for relation in data.edge_types:
            assert sorted(batch[relation].e_id.tolist()) == sorted(found[relation])


def check(data: HeteroData, batch: HeteroData) -> None:
    """Rows and edges are those of the graph, and the counts add up."""
    for name in data.node_types:
        nodes = batch[name].n_id
        assert sum(batch[name].num_sampled_nodes) == nodes.numel()
        if "x" in data[name]:
            assert torch.equal(torch.as_tensor(batch[name].x), torch.as_tensor(data[name].x)[nodes])
    for relation in data.edge_types:
        source, _, target = relation
        row, col = batch[relation].edge_index
        ends = torch.stack([batch[source].n_id[row], batch[target].n_id[col]])
        assert torch.equal(ends, data[relation].edge_index[:, batch[relation].e_id])
        assert sum(batch[relation].num_sampled_edges) == row.numel()
    assert torch.equal(batch[CITES].edge_attr, data[CITES].edge_attr[batch[CITES].e_id])


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 99),
    fanouts=st.lists(st.one_of(st.integers(-1, 4), st.floats(0.1, 1.0)), min_size=1, max_size=3),
    replace=st.booleans(),
    disjoint=st.booleans(),
)
def test_any_graph_and_fanouts(seed: int, fanouts: list[Any], replace: bool, disjoint: bool) -> None:
    data = make_hetero(seed)
    loader = make_loader(data, fanouts, input_nodes=BOTH, replace=replace, disjoint=disjoint, shuffle=True)
    seen: dict[str, list[int]] = {"author": [], "paper": []}
    for batch in loader:
        check(data, batch)
        for name, nodes in seen.items():
            nodes += batch[name].n_id[: batch[name].batch_size].tolist()
    assert {name: sorted(nodes) for name, nodes in seen.items()} == {
        "author": list(range(0, 40, 3)),
        "paper": list(range(0, 60, 2)),
    }


# The same bits ####################################################################################

SETTINGS: list[dict[str, Any]] = [
    {"threads": 2},
    {"macrobatch_size": 1, "fetch_size": 1},
    {"macrobatch_size": 7, "fetch_size": 5},
    {"macrobatch_size": "auto", "fetch_size": "auto"},
    {"prefetch": 2},
    {"num_workers": 2},
    {"num_workers": 1, "filter_per_worker": False},
]


@pytest.mark.parametrize("kwargs", SETTINGS)
def test_settings_change_no_bit(kwargs: dict[str, Any]) -> None:
    data = make_hetero()
    data["paper"].time = torch.arange(60) % 7
    common = {"input_nodes": PAPERS, "shuffle": True, "time_attr": "time"}
    assert_same(make_loader(data, **common, **kwargs), make_loader(data, **common))


def native_contents(batch: Any) -> list[Any]:
    held = [one.node for one in batch.nodes] + [one.edge_index for one in batch.edges]
    for group, rows in batch.attributes.items():
        held += [table[rows.row] for _, table in sorted(rows.tables.items())] + [str(group)]
    return [*held, batch.input_id, batch.seed_types, [one.nodes_per_hop for one in batch.nodes]]


@pytest.mark.parametrize("kwargs", [*SETTINGS[:6], {"features": "copy"}])
def test_settings_change_no_bit_of_native_minibatches(kwargs: dict[str, Any]) -> None:
    common: dict[str, Any] = {"input_nodes": BOTH, "shuffle": True, "export": "native"}
    some, others = make_loader(make_hetero(), **common, **kwargs), make_loader(make_hetero(), **common)
    for one, other in zip(some, others, strict=True):
        pairs = zip(native_contents(one), native_contents(other), strict=True)
        assert all(loader_cases.equal(left, right) for left, right in pairs)


@pytest.mark.parametrize("taken", [0, 1, 4])
def test_resuming_in_an_epoch(taken: int) -> None:
    common: dict[str, Any] = {"input_nodes": BOTH, "shuffle": True, "disjoint": True}
    whole = list(make_loader(make_hetero(), **common))
    first = make_loader(make_hetero(), **common)
    head = list(itertools.islice(iter(first), taken))
    second = make_loader(make_hetero(), **common)
    second.load_state_dict(first.state_dict())
    assert_same([*head, *second], whole)


def test_a_state_of_other_fanouts_or_seeds_is_refused() -> None:
    data = make_hetero()
    fanouts = {relation: [2] for relation in RELATIONS}
    state = make_loader(data, fanouts, input_nodes=BOTH).state_dict()
    with pytest.raises(ValueError, match="fanouts_by_relation"):
        make_loader(data, {**fanouts, CITES: [1]}, input_nodes=BOTH).load_state_dict(state)
    with pytest.raises(ValueError, match="seed"):
        make_loader(data, fanouts, input_nodes="paper").load_state_dict(state)


# Seeds ############################################################################################


def test_seeds_of_several_types() -> None:
    data = make_hetero()
    ids = {"author": torch.arange(14) * 10, "paper": None}
    loader = make_loader(data, input_nodes=BOTH, input_id=ids, batch_size=10)
    assert len(loader) == 5 and len(loader.dataset) == 44
    batches = list(loader)
    sizes = [(batch["author"].batch_size, batch["paper"].batch_size) for batch in batches]
    assert sizes == [(10, 0), (4, 6), (0, 10), (0, 10), (0, 4)]
    assert torch.equal(torch.cat([batch["author"].input_id for batch in batches]), torch.arange(14) * 10)
    # A mask's are node ids, as they are with one type.
    assert torch.equal(torch.cat([batch["paper"].input_id for batch in batches]), torch.arange(0, 60, 2))
    assert "input_id" not in batches[0]["venue"]
    assert_same([loader([12, 20])], [make_loader(data, input_nodes=BOTH, input_id=ids)([12, 20])])


def test_examples_run_on_over_types() -> None:
    loader = make_loader(make_hetero(), input_nodes=BOTH, disjoint=True, batch_size=10)
    batch = list(loader)[1]
    assert batch["author"].batch[:4].tolist() == [0, 1, 2, 3]
    assert batch["paper"].batch[:6].tolist() == [4, 5, 6, 7, 8, 9]


def test_changed_features_show() -> None:
    data = make_hetero()
    loader = make_loader(data, input_nodes="paper")
    data["paper"].x = -data["paper"].x
    check(data, next(iter(loader)))
    other = make_hetero()
    other["paper"].x = other["paper"].x + 0.5
    loader.data = other
    check(other, next(iter(loader)))


def test_native_tables_are_the_users_own() -> None:
    data = make_hetero()
    groups = {group.name: rows for group, rows in native(data, attributes=["x"]).attributes.items()}
    assert groups["paper"].placement is Placement.IN_PLACE and groups["paper"].tables["x"] is data["paper"].x
    assert list(groups["author"].tables) == [] and list(groups["lonely"].tables) == ["x"]
    copied = native(data, features="copy")
    assert {rows.placement for rows in copied.attributes.values()} == {Placement.BLOCK}
    with pytest.raises(ValueError, match="'z'"):
        native(data, attributes=["z"])


def native(data: HeteroData, **kwargs: Any) -> Any:
    return next(iter(make_loader(data, input_nodes="paper", export="native", **kwargs)))


# Time and weights #################################################################################


def timed() -> HeteroData:
    data = make_hetero()
    data["paper"].time = torch.arange(60) % 10
    for number, relation in enumerate((CITES, WRITES)):
        data[relation].stamp = (torch.arange(RELATIONS[relation]) * 7 + number) % 10
        data[relation].weight = torch.arange(RELATIONS[relation]) % 3 / 2
    return data


@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize(("attr", "has_input_time"), [("time", False), ("time", True), ("stamp", True)])
def test_no_neighbour_is_younger_than_its_seed(
    strategy: str, window: int | None, attr: str, has_input_time: bool
) -> None:
    data, nodes = timed(), torch.arange(30)
    input_time = nodes % 5 + 3 if has_input_time else None
    seed_times = data["paper"].time[nodes] if input_time is None else input_time
    loader = make_loader(
        data,
        input_nodes=("paper", nodes),
        input_time=input_time,
        time_attr=attr,
        temporal_strategy=strategy,
        time_window=window,
    )
    relations = (CITES, WRITES) if attr == "stamp" else (CITES, REV_WRITES)
    for batch in loader:
        seed_time = seed_times[batch["paper"].input_id]
        assert ("seed_time" in batch["paper"]) == has_input_time
        assert not has_input_time or torch.equal(batch["paper"].seed_time, seed_time)
        for relation in relations:
            row, col = batch[relation].edge_index
            limit = seed_time[batch[relation[2]].batch[col]]
            time = batch[relation].stamp if attr == "stamp" else batch["paper"].time[row]
            assert (time <= limit).all() and (window is None or (time >= limit - window).all())


def test_types_without_time_need_input_time() -> None:
    with pytest.raises(ValueError, match=r"'author' have no 'time'.*input_time"):
        make_loader(timed(), input_nodes="author", time_attr="time")
    with pytest.raises(ValueError, match=r"edges have 'stamp'.*input_time"):
        make_loader(timed(), input_nodes="paper", time_attr="stamp")


def test_times_of_several_types() -> None:
    times = {"author": torch.arange(14), "paper": torch.arange(30)}
    loader = make_loader(timed(), input_nodes=BOTH, input_time=times, time_attr="stamp", batch_size=10)
    batch = list(loader)[1]
    assert batch["author"].seed_time.tolist() == [10, 11, 12, 13]
    assert batch["paper"].seed_time.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("kwargs", [{}, {"replace": True}, {"disjoint": True}, {"time_attr": "time"}])
def test_edges_of_weight_zero_are_not_picked(kwargs: dict[str, Any]) -> None:
    for batch in make_loader(timed(), (3, 3), input_nodes="paper", weight_attr="weight", **kwargs):
        assert (batch[CITES].weight > 0).all() and (batch[WRITES].weight > 0).all()


# Subgraphs ########################################################################################


def pairs(batch: HeteroData, relation: tuple[str, str, str]) -> set[tuple[int, int]]:
    return set(map(tuple, batch[relation].edge_index.t().tolist()))


def test_bidirectional() -> None:
    """PyG's cases: within a type, with a `rev_` partner, with the only type back, and without."""
    plain = make_loader(make_hetero(), input_nodes="paper", seed=3)
    with pytest.warns(UserWarning, match="reverse edge type"):
        both = list(make_loader(make_hetero(), input_nodes="paper", seed=3, subgraph_type="bidirectional"))
    for one, batch in zip(plain, both, strict=True):
        sampled = pairs(one, CITES)
        assert pairs(batch, CITES) == sampled | {(col, row) for row, col in sampled}
        writes = pairs(one, WRITES) | {(col, row) for row, col in pairs(one, REV_WRITES)}
        assert pairs(batch, WRITES) == writes == {(col, row) for row, col in pairs(batch, REV_WRITES)}
        assert "e_id" not in batch[CITES] and "edge_attr" not in batch[CITES]
        assert "num_sampled_nodes" not in batch["paper"] and "num_sampled_edges" not in batch[CITES]
        likes = ("lonely", "likes", "paper")
        assert pairs(batch, likes) == pairs(one, likes) and "e_id" in batch[likes]


@pytest.mark.parametrize("disjoint", [False, True])
def test_induced(disjoint: bool) -> None:
    data = make_hetero()
    loader = make_loader(data, (2, 2), input_nodes="paper", subgraph_type="induced", disjoint=disjoint)
    for batch in loader:
        for relation in data.edge_types:
            source, _, target = relation
            sides = []
            for name in (source, target):
                store = batch[name]
                example = store.batch.tolist() if disjoint else [0] * store.n_id.numel()
                sides.append(list(zip(store.n_id.tolist(), example, strict=True)))
            every = data[relation].edge_index.t().tolist()
            wanted = sorted(
                edge
                for edge, (one, other) in enumerate(every)
                for node, example in sides[1]
                if node == other and (one, example) in sides[0]
            )
            assert sorted(batch[relation].e_id.tolist()) == wanted
        assert "num_sampled_nodes" not in batch["paper"] and "num_sampled_edges" not in batch[CITES]


# Stores, dtypes, hooks ############################################################################


def stores_of(data: HeteroData) -> tuple[MyFeatureStore, MyGraphStore]:
    features, graph = MyFeatureStore(), MyGraphStore()
    for name in data.node_types:
        for key, value in data[name].items():
            if isinstance(value, (Tensor, np.ndarray)):
                features.put_tensor(torch.as_tensor(value), group_name=name, attr_name=key, index=None)
    for relation in data.edge_types:
        source, _, target = relation
        size = (data[source].num_nodes, data[target].num_nodes)
        graph.put_edge_index(tuple(data[relation].edge_index), edge_type=relation, layout="coo", size=size)
        for key, value in data[relation].items():
            if key != "edge_index":
                features.put_tensor(value, group_name=relation, attr_name=key, index=None)
    return features, graph


@pytest.mark.parametrize("nodes", ["paper", PAPERS, BOTH])
def test_remote_stores_give_what_data_gives(nodes: Any) -> None:
    data = make_hetero()
    expected = list(make_loader(data, input_nodes=nodes))
    made = list(make_loader(stores_of(data), input_nodes=nodes, weight_attr=None))
    # The order of types is another one: first those with attributes. It may change local ids.
    for one, other in zip(made, expected, strict=True):
        for name in data.node_types:
            assert sorted(one[name].n_id.tolist()) == sorted(other[name].n_id.tolist())
        for relation in data.edge_types:
            assert sorted(one[relation].e_id.tolist()) == sorted(other[relation].e_id.tolist())
        check(data, one)
        assert one["author"].num_nodes == one["author"].n_id.numel() and one["lonely"].x.shape[1] == 2


def test_remote_stores_have_times_weights_and_custom_classes() -> None:
    class Mine(HeteroData):
        pass

    stores = stores_of(timed())
    loader = make_loader(
        stores,
        input_nodes="paper",
        input_time=torch.full((60,), 5),
        time_attr="stamp",
        weight_attr="weight",
        custom_cls=Mine,
    )
    for batch in loader:
        assert type(batch) is Mine
        assert (batch[CITES].stamp <= 5).all() and (batch[CITES].weight > 0).all()


def test_native_minibatches_of_stores() -> None:
    data = make_hetero()
    minibatch = next(iter(make_loader(stores_of(data), input_nodes="paper", export="native")))
    rows = {group.name: rows for group, rows in minibatch.attributes.items()}
    node = minibatch.nodes_of("paper").node
    assert torch.equal(rows["paper"].tables["x"][rows["paper"].row], data["paper"].x[node])


def test_ids_have_the_dtype_of_the_edges() -> None:
    data = make_hetero()
    for relation in data.edge_types:
        data[relation].edge_index = data[relation].edge_index.int()
    wide = make_loader(make_hetero(), input_nodes="paper")
    for one, other in zip(make_loader(data, input_nodes="paper"), wide, strict=True):
        assert one["paper"].n_id.dtype is torch.int32 and one[CITES].edge_index.dtype is torch.int32
        assert one[CITES].e_id.dtype is torch.int64
        assert torch.equal(one["paper"].n_id, other["paper"].n_id.int())
        assert torch.equal(one[CITES].edge_index, other[CITES].edge_index.int())
        assert torch.equal(one["paper"].x, other["paper"].x)


def test_transform_sampler_output() -> None:
    def without_cites(out: Any) -> Any:
        none = torch.empty(0, dtype=torch.int64)
        out.row[CITES], out.col[CITES], out.edge[CITES] = none, none, none
        return out

    for batch in make_loader(make_hetero(), input_nodes="paper", transform_sampler_output=without_cites):
        assert batch[CITES].edge_index.shape == (2, 0) and batch[CITES].edge_attr.shape == (0, 2)


# Bad input ########################################################################################


def with_float_times(data: HeteroData) -> None:
    data["paper"].time = torch.rand(60)


def with_negative_weights(data: HeteroData) -> None:
    data[CITES].weight = torch.full((300,), -1.0)


def with_unknown_count(data: HeteroData) -> None:
    del data["author"].num_nodes


@pytest.mark.parametrize(
    ("kwargs", "error", "words"),
    [
        ({"input_nodes": None}, ValueError, ["node type", "'paper'"]),
        ({"input_nodes": "papers"}, ValueError, ["'papers'", "paper"]),
        ({"input_nodes": {}}, ValueError, ["no node type"]),
        ({"input_nodes": torch.arange(3)}, ValueError, ["node type", "Tensor"]),
        ({"input_nodes": ("paper", torch.tensor([60]))}, IndexError, ["'paper'", "60"]),
        ({"input_nodes": ("paper", torch.ones(3, dtype=torch.bool))}, ValueError, ["[3]", "60"]),
        ({"input_nodes": "paper", "input_id": torch.arange(3)}, ValueError, ["input_id", "3", "60"]),
        ({"input_nodes": BOTH, "input_id": torch.arange(44)}, TypeError, ["input_id", "dict"]),
        ({"input_nodes": BOTH, "input_id": {"venue": None}}, ValueError, ["input_id", "'venue'"]),
        ({"input_time": torch.arange(60)}, ValueError, ["input_time", "time_attr"]),
        ({"time_attr": "time", "input_time": torch.rand(60)}, TypeError, ["input_time", "float32"]),
        ({"time_attr": "time", "input_time": torch.arange(9)}, ValueError, ["input_time", "9", "60"]),
        (
            {"time_attr": "time", "input_nodes": BOTH, "input_time": {"paper": torch.arange(30)}},
            ValueError,
            ["input_time", "'author'"],
        ),
        ({"num_neighbors": {CITES: [2]}}, ValueError, ["Missing number of neighbors", "'writes'"]),
        ({"num_neighbors": {("paper", "x", "y"): [2]}}, ValueError, ["Not all edge types", "'x'"]),
        ({"num_neighbors": NumNeighbors({CITES: [2]}, [1, 1])}, ValueError, ["Number of hops"]),
        ({"change": with_float_times, "time_attr": "time"}, TypeError, ["float32", "torch.int64"]),
        ({"change": with_negative_weights, "weight_attr": "weight"}, ValueError, ["-1.0", "cites"]),
        ({"change": with_unknown_count}, ValueError, ["'author'", "num_nodes"]),
        (
            {"time_attr": "stamp", "is_sorted": True, "input_time": torch.arange(60)},
            ValueError,
            ["is_sorted"],
        ),
    ],
)
def test_refused_at_construction(kwargs: dict[str, Any], error: type[Exception], words: list[str]) -> None:
    data = timed()
    kwargs.pop("change", len)(data)
    chosen = {"input_nodes": "paper", "num_neighbors": [2], **kwargs}
    with pytest.raises(error) as caught:
        MacrobatchNeighborLoader(data, **chosen)
    assert all(word in str(caught.value) for word in words), caught.value


def test_counts_are_those_of_the_cases() -> None:
    data = make_hetero()
    assert {name: data[name].num_nodes for name in data.node_types} == COUNTS
