"""The refusals of wrong options, with the value and the remedy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import (
    MacrobatchHGTLoader,
    MacrobatchLinkNeighborLoader,
    MacrobatchNeighborLoader,
    PygNeighborSampler,
)
from pyg_batchgnn.store import graph_from_pyg
from tests.support.loader_cases import NODES, make_data, make_loader
from tests.support.memory_stores import stores_of

MASK = torch.rand(NODES, generator=torch.Generator().manual_seed(2)) < 0.3
IDS = MASK.nonzero().view(-1)

NATIVE = {"export": "native"}


def test_integers_of_numpy_and_torch_are_integers() -> None:
    options = {"macrobatch_size": 2, "fetch_size": 1, "prefetch": 1, "threads": 1, "seed": 3}
    of_numpy = {name: np.int64(value) for name, value in options.items()}
    of_torch = {name: torch.tensor(value) for name, value in options.items()}
    plain = [batch.n_id for batch in make_loader(make_data(), **options)]
    for given in (of_numpy, of_torch):
        assert all(map(torch.equal, plain, [batch.n_id for batch in make_loader(make_data(), **given)]))


@pytest.mark.parametrize(
    ("kwargs", "error", "words"),
    [
        ({"input_time": torch.arange(NODES)}, ValueError, ["input_time", "time_attr"]),
        ({"input_nodes": "paper"}, ValueError, ["paper", "homogeneous"]),
        ({"input_nodes": ("paper", IDS)}, ValueError, ["paper", "homogeneous"]),
        ({"input_nodes": {"paper": None}}, ValueError, ["paper", "homogeneous"]),
        ({"data": HeteroData()}, ValueError, ["node types"]),
        ({"subgraph_type": "both"}, ValueError, ["subgraph_type", "'both'", "'induced'"]),
        ({"temporal_strategy": "first"}, ValueError, ["temporal_strategy", "'first'", "'last'"]),
        ({"num_neighbors": [1.5]}, TypeError, ["1.5", "integer", "(0, 1]"]),
        ({"num_neighbors": {("a", "to", "b"): [1]}}, ValueError, ["Not all edge types", "'a'"]),
        ({**NATIVE, "subgraph_type": "bidirectional"}, ValueError, ["'bidirectional'", "export='pyg'"]),
        ({"time_window": 3}, ValueError, ["time_window=3", "time_attr"]),
        ({"time_attr": "time"}, ValueError, ["'time'", "neither"]),
        ({"weight_attr": "weight"}, ValueError, ["'weight'", "no attribute of edges"]),
        ({"weight_attr": "x"}, ValueError, ["'x'", "nodes have it"]),
        ({"num_neighbors": 5}, TypeError, ["5", "list"]),
        ({"macrobatch_size": 0}, ValueError, ["macrobatch_size", "0", "auto"]),
        ({"macrobatch_size": "many"}, ValueError, ["macrobatch_size", "many", "auto"]),
        ({"macrobatch_size": 2.0}, ValueError, ["macrobatch_size", "2.0"]),
        ({"fetch_size": -1}, ValueError, ["fetch_size", "-1", "auto"]),
        ({"fetch_size": True}, ValueError, ["fetch_size", "True"]),
        ({"macrobatch_size": 2, "fetch_size": 3}, ValueError, ["fetch_size (3)", "macrobatch_size (2)"]),
        ({"memory_budget": 0}, ValueError, ["memory_budget", "bytes", "0"]),
        ({"memory_budget": 1.5}, TypeError, ["memory_budget", "1.5", "bytes"]),
        ({"memory_budget": "lots"}, ValueError, ["lots", "bytes", "2GiB"]),
        ({"prefetch": -1}, ValueError, ["prefetch", "-1"]),
        ({"prefetch": 1.5}, TypeError, ["prefetch", "1.5"]),
        ({"prefetch": True}, TypeError, ["prefetch", "True"]),
        ({"prefetch": 2, "num_workers": 1}, ValueError, ["prefetch=2", "num_workers=1", "prefetch_factor"]),
        ({"threads": 0}, ValueError, ["threads", "0"]),
        ({"threads": "all"}, TypeError, ["threads", "all"]),
        ({"seed": 1.5}, TypeError, ["seed", "1.5"]),
        ({"seed": True}, TypeError, ["seed", "True"]),
        ({"export": "dgl"}, ValueError, ["'dgl'", "'pyg'", "'native'"]),
        ({"export": "native", "transform_sampler_output": print}, ValueError, ["native", "transform"]),
        ({"features": "mmap"}, ValueError, ["features", "'mmap'", "'in_place'"]),
        ({"features": "copy"}, ValueError, ["features", "native"]),
        ({"attributes": ["x"]}, ValueError, ["attributes", "native"]),
        ({**NATIVE, "attributes": "x"}, TypeError, ["attributes", "'x'", '["x", "y"]']),
        ({**NATIVE, "attributes": [1]}, TypeError, ["attributes", "1"]),
        ({**NATIVE, "attributes": ["x", "z"]}, ValueError, ["'z'", "'x', 'y'"]),
        ({**NATIVE, "features": "in_place", "num_workers": 1}, ValueError, ["in_place", "num_workers=1"]),
        ({"batch_size": None}, ValueError, ["batch_size=None", "batch_size=1"]),
        ({"batch_size": 0}, ValueError, ["batch_size", "0"]),
        (
            {"input_nodes": torch.tensor([NODES])},
            IndexError,
            ["input_nodes", str(NODES), f"0 to {NODES - 1}"],
        ),
        ({"input_nodes": torch.tensor([-1])}, IndexError, ["input_nodes", "-1"]),
        ({"input_nodes": torch.tensor([0.5])}, TypeError, ["input_nodes", "float32", ".long()"]),
        ({"input_nodes": torch.tensor([[1, 2]])}, ValueError, ["input_nodes", "[1, 2]"]),
        ({"input_nodes": torch.ones(5, dtype=torch.bool)}, ValueError, ["input_nodes", "[5]", str(NODES)]),
        ({"input_nodes": MASK.view(-1, 1)}, ValueError, ["input_nodes", f"[{NODES}, 1]"]),
        ({"input_nodes": IDS, "input_id": torch.arange(3)}, ValueError, ["input_id", "3", str(IDS.numel())]),
        ({"neighbor_sampler": object()}, TypeError, ["PygNeighborSampler", "object", "NodeLoader"]),
        ({"data": torch.zeros(3)}, TypeError, ["data", "Tensor"]),
        ({"data": Data(edge_index=torch.tensor([[9], [0]]), num_nodes=3)}, IndexError, ["9", "0 to 2"]),
    ],
)
def test_wrong_arguments(kwargs: dict[str, Any], error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        MacrobatchNeighborLoader(**{"data": make_data(), "num_neighbors": [2], **kwargs})
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    "loader", [MacrobatchNeighborLoader, MacrobatchLinkNeighborLoader, MacrobatchHGTLoader]
)
def test_unknown_keywords(loader: Any) -> None:
    with pytest.raises(TypeError, match=f"{loader.__name__} got an unexpected keyword argument 'foo'"):
        loader(make_data(), [2], foo=3)


def test_a_sampler_decides_alone() -> None:
    data = make_data()
    sampler = PygNeighborSampler(graph_from_pyg(data), [2])
    with pytest.raises(ValueError, match=r"seed=3.*PygNeighborSampler"):
        MacrobatchNeighborLoader(data, [2], neighbor_sampler=sampler, seed=3)
    with pytest.raises(ValueError, match=r"300 nodes.*10"):
        MacrobatchNeighborLoader(make_data(10, 20), [2], neighbor_sampler=sampler)


@pytest.mark.parametrize("epoch", [1.0, "1", True, None])
def test_an_epoch_is_an_integer(epoch: Any) -> None:
    with pytest.raises(TypeError, match="epoch must be an integer"):
        make_loader(make_data()).set_epoch(epoch)


def test_stores_take_the_same_checks() -> None:
    with pytest.raises(IndexError, match="input_nodes"):
        make_loader(stores_of(make_data(), "coo"), input_nodes=torch.tensor([NODES]))
