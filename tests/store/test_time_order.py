"""Time orders and prefix sums of weights, against obvious references; what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.testing import MyFeatureStore, MyGraphStore

from pyg_batchgnn.data import EDGES, HOMOGENEOUS
from pyg_batchgnn.store import (
    CscGraph,
    Sortedness,
    TimeLevel,
    TimeOrder,
    Times,
    attribute_by_group,
    sum_weights,
    typed_graph_from_pyg,
    weight_by_group,
)


def test_lists_in_the_order_of_time_need_no_positions() -> None:
    graph = CscGraph.from_edge_index(torch.tensor([[0, 1, 2, 0, 1], [2, 0, 0, 0, 2]]), 3)
    time = torch.tensor([4, 4, 9, 1, 2])
    order = TimeOrder.of(graph.in_edges, time)
    assert order.position.numel() == 0 and order.time.equal(time)
    assert order.time.data_ptr() != time.data_ptr()  # the user may write to theirs
    assert order.by_place(time).equal(time)
    assert TimeOrder.of(graph.in_edges, time.flip(0)).position.numel() == 5


def hetero() -> HeteroData:
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = 3, 2
    data["a"].time = torch.tensor([5, 1, 3])
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1, 2, 0], [0, 0, 0, 1]])
    data["b", "to", "a"].edge_index = torch.tensor([[0, 1], [2, 0]])
    data["a", "to", "b"].stamp = torch.tensor([4, 9, 2, 7])
    data["a", "to", "b"].weight = torch.tensor([1.0, 0.0, 2.0, 0.5])
    return data


def times_of(data: Any, name: str) -> Times:
    graph = typed_graph_from_pyg(data)
    return Times.of(name, attribute_by_group(data, name, graph), graph.rows_by_group)


def test_times_of_nodes_are_those_of_the_sources() -> None:
    data = hetero()
    times, graph = times_of(data, "time"), typed_graph_from_pyg(data)
    assert times.level is TimeLevel.NODE
    order, none = times.orders(graph, Sortedness.UNKNOWN)
    assert none is None and order is not None
    assert order.position.tolist() == [1, 2, 0, 3] and order.time.tolist() == [1, 3, 5, 5]
    assert times.of_seeds(graph.schema.node_groups[0], torch.tensor([2, 0])).tolist() == [3, 5]
    with pytest.raises(ValueError, match="input_time"):
        times.of_seeds(graph.schema.node_groups[1], torch.tensor([0]))


def test_times_of_edges() -> None:
    data = hetero()
    times, graph = times_of(data, "stamp"), typed_graph_from_pyg(data)
    order, none = times.orders(graph, Sortedness.UNKNOWN)
    assert none is None and order is not None and times.level is TimeLevel.EDGE
    assert order.position.tolist() == [2, 0, 1, 3] and order.time.tolist() == [2, 4, 9, 7]
    with pytest.raises(ValueError, match="edges have 'stamp': give input_time"):
        times.of_seeds(graph.schema.node_groups[0], torch.tensor([0]))


def test_times_of_nodes_and_of_edges() -> None:
    """An edge is as late as the later of itself and its source."""
    data = hetero()
    data["a", "to", "b"].time = torch.tensor([4, 9, 0, 7])
    data["b", "to", "a"].time = torch.tensor([3, 1])
    times, graph = times_of(data, "time"), typed_graph_from_pyg(data)
    assert times.level is TimeLevel.BOTH
    later, own = times.orders(graph, Sortedness.UNKNOWN)
    assert later is not None and own is not None
    edges = graph.relations[0]
    assert edges.edge_ids is not None or later.time.numel() == 4
    source, target = data["a", "to", "b"].edge_index
    wanted = torch.maximum(data["a", "to", "b"].time, data["a"].time[source])
    expected = [time for node in range(3) for time in sorted(wanted[target == node].tolist())]
    assert later.time.tolist() == expected
    assert sorted(own.time.tolist()) == [1, 3]
    assert times.of_seeds(graph.schema.node_groups[0], torch.tensor([2, 0])).tolist() == [3, 5]
    with pytest.raises(ValueError, match="nodes of type 'b' have no 'time': give input_time"):
        times.of_seeds(graph.schema.node_groups[1], torch.tensor([0]))


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32, torch.float64])
def test_times_of_another_dtype(dtype: torch.dtype) -> None:
    data = hetero()
    data["a"].time = data["a"].time.to(dtype)
    with pytest.raises(TypeError, match=r"'time' of a is .*\.to\(torch\.int64\)"):
        times_of(data, "time")


def with_too_few(data: HeteroData) -> None:
    data["a"].time = torch.arange(2)


@pytest.mark.parametrize(
    ("change", "name", "words"),
    [(len, "nothing", ["nothing", "neither"]), (with_too_few, "time", ["[2]", "3 rows"])],
)
def test_times_that_cannot_be(change: Any, name: str, words: list[str]) -> None:
    data = hetero()
    change(data)
    with pytest.raises(ValueError) as caught:
        times_of(data, name)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (torch.arange(5), "has shape [5]"),
        (torch.arange(6).view(2, 3), "has shape [2, 3]"),
        (7, "is of type int"),
    ],
)
def test_attributes_of_neither_nodes_nor_edges(values: Any, found: str) -> None:
    data = Data(edge_index=torch.tensor([[0, 1, 2, 0], [1, 1, 2, 2]]), num_nodes=3, time=values)
    with pytest.raises(ValueError) as caught:
        times_of(data, "time")
    assert str(caught.value).startswith(f"'time' {found} in a graph of 3 nodes and 4 edges; give one value")


def test_times_of_the_edges_of_a_store_without_types() -> None:
    features, graphs = MyFeatureStore(), MyGraphStore()
    edges = (torch.tensor([0, 1, 2, 0]), torch.tensor([1, 1, 2, 2]))
    graphs.put_edge_index(edges, edge_type=None, layout="coo", size=(3, 3))
    features.put_tensor(torch.tensor([4, 2, 1, 3]), group_name="default", attr_name="stamp", index=None)
    times = times_of((features, graphs), "stamp")
    assert times.level is TimeLevel.EDGE and times.by_group[EDGES].tolist() == [4, 2, 1, 3]


def test_a_promise_of_sorted_edges_is_checked() -> None:
    data = Data(edge_index=torch.tensor([[0, 1, 2], [1, 1, 2]]), num_nodes=3)
    data.edge_time = torch.tensor([4, 2, 1])
    times, graph = times_of(data, "edge_time"), typed_graph_from_pyg(data)
    with pytest.raises(ValueError, match=r"time 2 comes after 4.*leave is_sorted out"):
        times.orders(graph, Sortedness.PROMISED)
    data.edge_time = torch.tensor([2, 4, 1])
    (order,) = times_of(data, "edge_time").orders(graph, Sortedness.PROMISED)
    assert order is not None and order.position.numel() == 0 and order.time.tolist() == [2, 4, 1]
    data.edge_index = data.edge_index.flip(1)
    with pytest.raises(ValueError, match="not sorted by destination"):
        times.orders(typed_graph_from_pyg(data), Sortedness.PROMISED)


def sums_of(data: Any, name: str) -> Any:
    graph = typed_graph_from_pyg(data)
    return sum_weights(name, weight_by_group(data, name, graph), graph, [None] * len(graph.relations))


def test_weights_of_some_relations() -> None:
    sums, none = sums_of(hetero(), "weight")
    assert none is None and sums.sums.tolist() == [1.0, 1.0, 3.0, 0.5]


def test_weights_where_there_are_as_many_edges_as_nodes() -> None:
    data = Data(edge_index=torch.tensor([[0, 1], [1, 1]]), num_nodes=2, w=torch.tensor([0.5, 0.25]))
    assert typed_graph_from_pyg(data).schema == HOMOGENEOUS
    assert sums_of(data, "w")[0].sums.tolist() == [0.5, 0.75]


@pytest.mark.parametrize("nodes_first", [False, True])
def test_weights_of_a_store_whose_nodes_have_the_attribute_too(nodes_first: bool) -> None:
    features, graphs = MyFeatureStore(), MyGraphStore()
    edges = (torch.tensor([0, 1]), torch.tensor([1, 1]))
    graphs.put_edge_index(edges, edge_type=None, layout="coo", size=(2, 2))
    tables = [("default", torch.tensor([3.0, 4.0])), (EDGES.name, torch.tensor([0.5, 0.25]))]
    for name, table in tables if nodes_first else reversed(tables):
        features.put_tensor(table, group_name=name, attr_name="w", index=None)
    assert sums_of((features, graphs), "w")[0].sums.tolist() == [0.5, 0.75]


@pytest.mark.parametrize(
    ("weight", "error", "words"),
    [
        (torch.tensor([1.0, -1.0, 0.0, 0.0]), ValueError, ["negative", "-1.0", "edge 1"]),
        (torch.tensor([1.0, 0.0, float("nan"), 0.0]), ValueError, ["finite", "nan", "edge 2"]),
        (torch.tensor([float("inf"), 0.0, 0.0, 0.0]), ValueError, ["finite", "inf"]),
        (torch.tensor([1, 2, 3, 4]), TypeError, ["int64", ".float()"]),
        (torch.ones(3), ValueError, ["[3]", "4 edges"]),
    ],
)
def test_weights_that_cannot_be(weight: Tensor, error: type[Exception], words: list[str]) -> None:
    data = hetero()
    data["a", "to", "b"].weight = weight
    with pytest.raises(error) as caught:
        sums_of(data, "weight")
    assert all(word in str(caught.value) for word in ["weight", "a__to__b", *words]), caught.value


@pytest.mark.parametrize("name", ["nothing", "time"])
def test_weights_of_no_edges(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is no attribute of edges"):
        sums_of(hetero(), name)
