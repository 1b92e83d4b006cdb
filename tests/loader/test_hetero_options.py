"""Arguments about typed graphs that cannot be are refused when the loader is made."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NumNeighbors

from pyg_batchgnn import MacrobatchNeighborLoader, PygNeighborSampler
from tests.support.hetero_cases import (
    BOTH,
    CITES,
    make_timed,
)


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
