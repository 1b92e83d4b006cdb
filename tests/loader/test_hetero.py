"""Typed minibatches are those that PyG's own loader makes of the samples, and right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NodeLoader
from torch_geometric.loader.utils import filter_hetero_data as pygs_filter
from torch_geometric.sampler import NodeSamplerInput, NumNeighbors
from torch_geometric.testing import MyFeatureStore, MyGraphStore

from pyg_batchgnn import MacrobatchNeighborLoader, PygNeighborSampler
from pyg_batchgnn.loader.filter import Gatherer, filter_hetero_data
from pyg_batchgnn.sample import Placement
from tests.support import loader_cases
from tests.support.hetero_cases import (
    BOTH,
    CITES,
    RELATIONS,
    as_hetero,
    check_batch,
    make_hetero,
    make_loader,
    make_timed,
)
from tests.support.loader_cases import assert_same, contents, equal
from tests.support.tiers import each

OF_CITES = {"num_neighbors": NumNeighbors({CITES: [-1, 2]}, default=[3, 0.5])}


@pytest.mark.parametrize(
    "kwargs", [{}, {"replace": True}, {"disjoint": True}, {"subgraph_type": "induced"}, OF_CITES]
)
def test_the_same_as_pygs_own_node_loader(kwargs: dict[str, Any]) -> None:
    data, kwargs = make_hetero(), kwargs.copy()
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
            assert_same([one], [other])
            continue
        held = {name: value for (_, name), value in contents(other).items()}
        for name, value in contents(one).items():
            assert equal(value, held[name]), name


def test_a_typed_graph_with_the_names_of_a_homogeneous_one_stays_typed() -> None:
    hetero = as_hetero(loader_cases.make_data(), "node", "to")
    (made, *_), (native, *_) = (
        list(make_loader(hetero, input_nodes="node", export=export)) for export in ("pyg", "native")
    )
    for batch in (made, native.to_data()):
        assert isinstance(batch, HeteroData) and batch["node"].batch_size == 8
        assert torch.equal(batch["node"].x, hetero["node"].x[made["node"].n_id])


def test_seeds_of_several_types() -> None:
    data = make_hetero()
    ids = {"author": torch.arange(14) * 10, "paper": None}
    loader = make_loader(data, input_nodes=BOTH, input_id=ids, batch_size=10, disjoint=True)
    assert len(loader) == 5 and len(loader.dataset) == 44
    batches = list(loader)
    sizes = [(batch["author"].batch_size, batch["paper"].batch_size) for batch in batches]
    assert sizes == [(10, 0), (4, 6), (0, 10), (0, 10), (0, 4)]
    assert torch.equal(torch.cat([batch["author"].input_id for batch in batches]), torch.arange(14) * 10)
    # A mask's are node ids, as they are with one type.
    assert torch.equal(torch.cat([batch["paper"].input_id for batch in batches]), torch.arange(0, 60, 2))
    assert "input_id" not in batches[0]["venue"]
    assert batches[1]["author"].batch[:4].tolist() == [0, 1, 2, 3]  # examples run on over types
    assert batches[1]["paper"].batch[:6].tolist() == [4, 5, 6, 7, 8, 9]


def test_native_tables_are_the_users_own() -> None:
    data = make_hetero()
    groups = {group.name: rows for group, rows in native(data, attributes=["x"]).attributes.items()}
    assert groups["paper"].placement is Placement.IN_PLACE and groups["paper"].tables["x"] is data["paper"].x
    assert list(groups["author"].tables) == [] and list(groups["lonely"].tables) == ["x"]
    copied = native(data, features="copy")
    placements = {(group.is_node, rows.placement) for group, rows in copied.attributes.items()}
    assert placements == {(True, Placement.BLOCK), (False, Placement.MINIBATCH)}
    with pytest.raises(ValueError, match="'z'"):
        native(data, attributes=["z"])


def native(data: HeteroData, **kwargs: Any) -> Any:
    return next(iter(make_loader(data, input_nodes="paper", export="native", **kwargs)))


def test_the_same_as_pygs_filter() -> None:
    """A user's hook may leave out the ids of edges, and relations: these are empty."""
    data = make_hetero()
    inputs = NodeSamplerInput(None, torch.arange(8), input_type="paper")
    out: Any = PygNeighborSampler(data, [4, 3]).sample_from_nodes(inputs)
    for edge in (out.edge, dict.fromkeys(out.edge)):
        out.edge = edge
        theirs = pygs_filter(data, out.node, out.row, out.col, out.edge)
        assert_same([filter_hetero_data(data, out, Gatherer())], [theirs])
    for part in (out.row, out.col, out.edge):
        del part[CITES]
    batch = filter_hetero_data(data, out, Gatherer())
    assert batch[CITES].edge_index.shape == (2, 0) and batch[CITES].edge_attr.shape == (0, 2)


def with_float_times(data: HeteroData) -> None:
    data["paper"].time = torch.rand(60)


def with_negative_weights(data: HeteroData) -> None:
    data[CITES].weight = torch.full((300,), -1.0)


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
        ({"time_attr": "time", "input_time": torch.rand(60)}, TypeError, ["input_time", "float32"]),
        ({"time_attr": "time", "input_time": torch.arange(9)}, ValueError, ["input_time", "9", "60"]),
        (
            {"time_attr": "time", "input_nodes": BOTH, "input_time": {"paper": torch.arange(30)}},
            ValueError,
            ["input_time", "'author'"],
        ),
        ({"num_neighbors": {CITES: [2]}}, ValueError, ["Missing number of neighbors", "'writes'"]),
        ({"change": with_float_times, "time_attr": "time"}, TypeError, ["float32", "torch.int64"]),
        ({"change": with_negative_weights, "weight_attr": "weight"}, ValueError, ["-1.0", "cites"]),
        ({"change": lambda data: data["author"].pop("num_nodes")}, ValueError, ["'author'", "num_nodes"]),
        (
            {"time_attr": "stamp", "is_sorted": True, "input_time": torch.arange(60)},
            ValueError,
            ["is_sorted"],
        ),
    ],
)
def test_refused_at_construction(kwargs: dict[str, Any], error: type[Exception], words: list[str]) -> None:
    data = make_timed()
    kwargs.pop("change", len)(data)
    chosen = {"input_nodes": "paper", "num_neighbors": [2], **kwargs}
    with pytest.raises(error) as caught:
        MacrobatchNeighborLoader(data, **chosen)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("own", "beside", "words"),
    [
        ({"subgraph_type": "bidirectional"}, {"export": "native"}, "subgraph_type='bidirectional' is for"),
        ({"sample_direction": "backward"}, {"export": "native"}, "'backward' is for export='pyg'"),
        ({}, {"disjoint": True}, "disjoint=True would have no effect"),
        ({}, {"replace": True}, "replace=True would have no effect"),
        ({"weight_attr": "weight"}, {"weight_attr": "other"}, "weight_attr='other' .* has 'weight'"),
    ],
)
def test_the_rules_of_a_sampler(own: dict[str, Any], beside: dict[str, Any], words: str) -> None:
    data = make_timed()
    sampler = PygNeighborSampler(data, [2], **own)
    with pytest.raises(ValueError, match=words):
        MacrobatchNeighborLoader(data, [2], "paper", neighbor_sampler=sampler, **beside)
    same = {name: value for name, value in own.items() if name != "sample_direction"}
    MacrobatchNeighborLoader(data, [2], "paper", neighbor_sampler=sampler, **same)


def test_a_sampler_of_a_graph_with_other_types() -> None:
    data = make_timed()
    sampler = PygNeighborSampler(data, [2])
    counts = sampler.graph.num_nodes
    other = HeteroData({name: {"num_nodes": count} for name, count in zip("abc", counts, strict=False)})
    with pytest.raises(ValueError, match=r"'paper': 60.* but data has {'a'"):
        MacrobatchNeighborLoader(other, [2], "a", neighbor_sampler=sampler)
    with pytest.raises(ValueError, match="typed graph, but data is homogeneous"):
        MacrobatchNeighborLoader(Data(num_nodes=sum(counts)), [2], neighbor_sampler=sampler)


PAPERS = ("paper", None)
SETTINGS: list[dict[str, Any]] = [
    {"threads": 2},
    {"macrobatch_size": 1, "fetch_size": 1},
    {"macrobatch_size": 7, "fetch_size": 5},
    {"macrobatch_size": "auto", "fetch_size": "auto"},
    {"prefetch": 2},
    {"num_workers": 2},
    {"num_workers": 1, "filter_per_worker": False},
]


@each
@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize("kwargs", SETTINGS)
def test_settings_change_no_bit(kwargs: dict[str, Any], export: str) -> None:
    if export == "native" and "filter_per_worker" in kwargs:
        return
    data = make_hetero()
    data["paper"].time = torch.arange(60) % 7
    common = {"input_nodes": PAPERS, "shuffle": True, "time_attr": "time", "export": export}
    assert_same(make_loader(data, **common, **kwargs), make_loader(data, **common))


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"weight_attr": "weight"}, "weight_attr"),
        ({"subgraph_type": "bidirectional"}, "subgraph_type"),
        ({"input_time": torch.full((60,), 50), "time_attr": "time"}, "times_digest|time_attr"),
        ({"fanouts": {relation: [4, 3 - (relation == CITES)] for relation in RELATIONS}}, "fanouts"),
        ({"input_nodes": BOTH}, "seed"),
    ],
)
def test_a_state_of_other_rules_is_refused(rules: dict[str, Any], words: str) -> None:
    data = make_timed()
    plain = make_loader(data, input_nodes="paper")
    rules = {"input_nodes": "paper", **rules}
    other = make_loader(data, **rules)
    for one, state in ((plain, other.state_dict()), (other, plain.state_dict())):
        with pytest.raises(ValueError, match=words):
            one.load_state_dict(state)
    other.load_state_dict(make_loader(data, **rules).state_dict())


@pytest.mark.parametrize("nodes", [BOTH, "paper"])
def test_positions_that_there_are_not(nodes: Any) -> None:
    loader = make_loader(make_hetero(), input_nodes=nodes)
    for position in (-1, 1000):
        with pytest.raises(IndexError, match=f"{position}, but positions"):
            loader([position])


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
        check_batch(data, one)
        assert one["author"].num_nodes == one["author"].n_id.numel() and one["lonely"].x.shape[1] == 2


def test_remote_stores_have_times_weights_and_custom_classes() -> None:
    class Mine(HeteroData):
        pass

    stores = stores_of(make_timed())
    timed = {"input_nodes": "paper", "input_time": torch.full((60,), 5), "time_attr": "stamp"}
    for batch in make_loader(stores, **timed, weight_attr="weight", custom_cls=Mine):
        assert type(batch) is Mine
        assert (batch[CITES].stamp <= 5).all() and (batch[CITES].weight > 0).all()


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
