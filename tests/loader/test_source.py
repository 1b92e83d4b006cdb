"""Attributes from feature stores, and from what the user put in `loader.data` since."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from tests.support.loader_cases import NODES, assert_same, contents, make_data, make_loader
from tests.support.memory_stores import EDGES as EDGE_GROUP
from tests.support.memory_stores import stores_of


def sorted_data(layout: str) -> Data:
    data = make_data()
    if layout != "coo":
        data.edge_index = data.edge_index[
            :, data.edge_index[1 if layout == "csc" else 0].argsort(stable=True)
        ]
    return data


@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize("layout", ["coo", "csc", "csr"])
def test_stores_give_what_data_gives(layout: str, export: str) -> None:
    data = sorted_data(layout)
    expected = list(make_loader(data, input_nodes=torch.arange(100), export=export))
    for workers in (0, 2):
        stores = stores_of(data, layout)
        loader = make_loader(stores, input_nodes=torch.arange(100), export=export, num_workers=workers)
        assert_same(loader, expected, ignore=["num_nodes"])


def test_all_attributes_come_in_one_request() -> None:
    features, graph = stores_of(make_data(), "coo")
    loader = make_loader((features, graph), input_nodes=torch.arange(NODES))
    assert features.requests == []
    batches = list(loader)
    assert features.requests == [3] * len(batches)
    assert all(attr.index is not batch.n_id for attr in features.attrs.values() for batch in batches[-1:])


@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize("group", ["default", None])
def test_attributes_of_edges_under_the_name_of_the_nodes(group: Any, export: str) -> None:
    """PyG names no group of a store without types, and then reads edges by node."""
    data = make_data()
    features, graph = stores_of(data, "coo")
    features.remove_tensor(group_name=EDGE_GROUP, attr_name="edge_attr", index=None)
    del features.attrs[EDGE_GROUP, "edge_attr"]
    features.put_tensor(data.edge_attr, group_name=group, attr_name="edge_attr", index=None)
    loaders = [make_loader(given, export=export) for given in (data, (features, graph))]
    assert_same(*loaders, ignore=("num_nodes",))


def test_native_batches_ask_once_a_fetch_group() -> None:
    features, graph = stores_of(make_data(), "coo")
    loader = make_loader(
        (features, graph), input_nodes=None, export="native", macrobatch_size=4, fetch_size=2
    )
    assert len(list(loader)) == 10
    assert features.requests == [3] * 5


def test_no_attribute_beyond_pygs() -> None:
    data = make_data()
    batch = next(iter(make_loader(stores_of(data, "coo"), input_nodes=torch.arange(50))))
    assert contents(batch).keys() == {
        *("edge_index", "num_nodes", "x", "y", "edge_attr", "n_id", "e_id", "num_sampled_nodes"),
        *("num_sampled_edges", "input_id", "batch_size"),
    }


def test_custom_class() -> None:
    class Mine(Data):
        pass

    loader = make_loader(stores_of(make_data(), "coo"), input_nodes=torch.arange(50), custom_cls=Mine)
    assert {type(batch) for batch in loader} == {Mine}


def test_stores_without_attributes() -> None:
    features, graph = stores_of(make_data(), "coo")
    features.attrs.clear()
    for batch in make_loader((features, graph), input_nodes=[1, 2, 3]):
        assert batch.num_nodes == batch.n_id.numel() and "x" not in batch


@pytest.mark.parametrize("given", [None, [3, 1, 2], torch.tensor([3, 1, 2]), torch.arange(NODES) < 5])
def test_input_nodes_of_stores(given: Any) -> None:
    data = make_data()
    assert_same(
        make_loader(stores_of(data, "coo"), input_nodes=given),
        make_loader(data, input_nodes=given),
        ignore=["num_nodes"],
    )


def test_attributes_are_read_when_a_batch_is_made() -> None:
    data = make_data()
    loader = make_loader(data)
    batches = iter(loader)
    assert torch.equal((first := next(batches)).x, data.x[first.n_id])
    loader.data.x = data.x + 1000
    assert torch.equal((second := next(batches)).x, data.x[second.n_id]) and second.x.min() >= 1000
    data.x[:] = -1.0  # in place
    assert (next(batches).x == -1).all()
    data.late = torch.arange(NODES)
    assert torch.equal((fourth := next(batches)).late, fourth.n_id)


@pytest.mark.parametrize("kwargs", [{}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}])
def test_data_can_be_assigned(kwargs: dict[str, Any]) -> None:
    loader = make_loader(make_data(), **kwargs)
    assert all((batch.x >= 0).all() for batch in loader)
    other = make_data()
    other.x = -other.x - 1
    loader.data = other
    assert loader.data is other
    for batch in loader:
        assert torch.equal(batch.x, other.x[batch.n_id])


@pytest.mark.parametrize("features", ["auto", "in_place", "copy"])
def test_native_blocks_hold_every_node_attribute(features: str) -> None:
    data = make_data(table=torch.randn(NODES, 2).numpy(), half=torch.randn(NODES).half())
    for batch in make_loader(data, export="native", features=features):
        assert batch.block.keys() == {"x", "y", "table", "half"}
        for name in batch.block:
            assert torch.equal(batch.attribute(name), torch.as_tensor(data[name])[batch.node])
        assert torch.equal(data.edge_attr[batch.edge], data.edge_attr[batch.edge]) and batch.edge is not None


def test_native_edge_ids_only_where_an_attribute_needs_them() -> None:
    data = make_data()
    del data.edge_attr
    assert all(batch.edge is None for batch in make_loader(data, export="native"))


def test_native_batches_have_the_attributes_of_the_moment() -> None:
    data = make_data()
    batches = iter(make_loader(data, export="native", macrobatch_size=1, fetch_size=1))
    assert next(batches).block.keys() == {"x", "y"}
    data.late = torch.arange(NODES)
    assert torch.equal((second := next(batches)).attribute("late"), second.node)
    data.renamed = data.late
    del data.late
    assert next(batches).block.keys() == {"x", "y", "renamed"}
    data.x = data.x + 1
    assert torch.equal((fourth := next(batches)).x, data.x[fourth.node])
    data.x[:] = -1.0  # in place
    assert (next(batches).x == -1).all()
