"""Loaders of one graph share its edges, time orders and weights, and see changes of the data."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.testing import MyFeatureStore, MyGraphStore

from pyg_batchgnn.sample import PygNeighborSampler
from pyg_batchgnn.store import TypedGraph, typed_graph_from_pyg


def make_data() -> Data:
    generator = torch.Generator().manual_seed(0)
    return Data(
        edge_index=torch.randint(30, (2, 200), generator=generator),
        time=torch.randint(9, (30,), generator=generator),
        stamp=torch.randint(9, (200,), generator=generator),
        weight=torch.rand(200, generator=generator),
        num_nodes=30,
    )


def sampler(data: Any, **kwargs: Any) -> PygNeighborSampler:
    return PygNeighborSampler(data, [3, 3], **kwargs)


def parts(made: PygNeighborSampler) -> tuple[Any, Any, Any]:
    return made.graph.relations[0], made.macrobatch.times[0], made.macrobatch.weights[0]


def test_samplers_of_one_graph_share_what_they_made() -> None:
    data = make_data()
    for time_attr in ("time", "stamp"):
        one, other = (sampler(data, time_attr=time_attr, weight_attr="weight") for _ in range(2))
        for mine, theirs in zip(parts(one), parts(other), strict=True):
            assert mine is theirs
    plain = sampler(data, weight_attr="weight")
    assert plain.graph.relations[0] is one.graph.relations[0]
    assert plain.macrobatch.weights[0] is not one.macrobatch.weights[0]  # sums in another order


def test_changes_between_two_loaders_are_seen() -> None:
    data = make_data()
    first = sampler(data, time_attr="stamp", weight_attr="weight")
    data.stamp[7] += 3
    later = sampler(data, time_attr="stamp", weight_attr="weight")
    assert later.graph.relations[0] is first.graph.relations[0]
    assert not torch.equal(later.macrobatch.times[0].time, first.macrobatch.times[0].time)  # type: ignore[union-attr]
    data.weight = data.weight.numpy()
    data.weight[0] = 5
    fresh = sampler(data, weight_attr="weight")
    assert fresh.macrobatch.weights[0].weight.max() == 5  # type: ignore[union-attr]
    data.edge_index[0, 0] += 1
    assert sampler(data).graph.relations[0] is not first.graph.relations[0]


def test_what_no_loader_uses_is_released() -> None:
    data = make_data()
    made = sampler(data, time_attr="time", weight_attr="weight")
    held = [weakref.ref(one) for one in parts(made)]
    del made
    gc.collect()
    assert [one() for one in held] == [None, None, None]


def graphs_of(make: Any) -> tuple[TypedGraph, TypedGraph]:
    return typed_graph_from_pyg(make()), typed_graph_from_pyg(make())


def test_edges_in_the_users_memory_are_shared_if_it_is_the_same() -> None:
    ends, sources = torch.tensor([0, 2, 3]), torch.tensor([1, 0, 1])
    adj_t = torch.sparse_csr_tensor(ends, sources, torch.ones(3), size=(2, 2))

    def stores() -> tuple[MyFeatureStore, MyGraphStore]:
        graph = MyGraphStore()
        graph.put_edge_index((sources, ends), edge_type=None, layout="csc", size=(2, 2))
        return MyFeatureStore(), graph

    for make in (lambda: Data(adj_t=adj_t, num_nodes=2), stores):
        one, other = graphs_of(make)
        assert one.relations[0] is other.relations[0]
    mine = typed_graph_from_pyg(Data(adj_t=adj_t, num_nodes=2))
    copied = typed_graph_from_pyg(Data(adj_t=adj_t.clone(), num_nodes=2))
    assert mine.relations[0] is not copied.relations[0]


def test_a_typed_graph_may_use_the_names_of_a_homogeneous_one() -> None:
    """With as many edges as nodes, a node attribute is still one of nodes."""
    data = HeteroData()
    data["node"].num_nodes = 3
    data["node"].w = torch.tensor([9, 9, 9])
    data["node", "to", "node"].edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    data["node", "to", "node"].w = torch.tensor([0.5, 0.25, 0.125])
    made = sampler(data, weight_attr="w")
    assert made.macrobatch.weights[0].weight.sum() == 0.875  # type: ignore[union-attr]
    assert made.graph.schema.has_names and not typed_graph_from_pyg(make_data()).schema.has_names
