"""The refusals of wrong options, with the value and the remedy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NeighborLoader, NodeLoader

from pyg_batchgnn import (
    MacrobatchHGTLoader,
    MacrobatchLinkNeighborLoader,
    MacrobatchNeighborLoader,
    PygNeighborSampler,
)
from pyg_batchgnn.sample import SamplingPlan
from pyg_batchgnn.store import graph_from_pyg
from tests.support.loader_cases import NODES, assert_same, contents, flat, make_data, make_loader, seeds_of

MASK = torch.rand(NODES, generator=torch.Generator().manual_seed(2)) < 0.3
IDS = MASK.nonzero().view(-1)

NATIVE = {"export": "native"}
TOKENS = {"tokens": 4, "disjoint": True}


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
        ({"directed": torch.ones(3)}, TypeError, ["directed", "True or False"]),
        ({"data": HeteroData()}, ValueError, ["node types"]),
        ({"subgraph_type": "both"}, ValueError, ["subgraph_type", "'both'", "'induced'"]),
        ({"temporal_strategy": "first"}, ValueError, ["temporal_strategy", "'first'", "'last'"]),
        ({"num_neighbors": [1.5]}, TypeError, ["1.5", "integer", "(0, 1]"]),
        ({"num_neighbors": {("a", "to", "b"): [1]}}, ValueError, ["Not all edge types", "'a'"]),
        ({**NATIVE, "subgraph_type": "bidirectional"}, ValueError, ["'bidirectional'", "export='pyg'"]),
        ({"time_window": 3}, ValueError, ["time_window=3", "time_attr"]),
        ({"freeze": 0}, ValueError, ["freeze=0", "needs time_attr"]),
        ({"freeze": "2024-03-01", "time_attr": "time"}, TypeError, ["freeze", "integer", "'2024-03-01'"]),
        ({"freeze": 1 << 63, "time_attr": "time"}, ValueError, ["freeze", "-2**63 to 2**63 - 1"]),
        ({"time_attr": "time"}, ValueError, ["'time'", "neither"]),
        ({"tokens": 4}, ValueError, ["tokens=4", "give time_attr or disjoint=True"]),
        ({"tokens": 0, "disjoint": True}, ValueError, ["tokens", "at least 1, got 0"]),
        ({**TOKENS, "tokens": 2.0}, TypeError, ["tokens", "integer", "2.0"]),
        ({**TOKENS, "subgraph_type": "induced"}, ValueError, ["tokens=4", "leave subgraph_type out"]),
        ({**TOKENS, "transform_sampler_output": print}, ValueError, ["tokens=4", "use transform"]),
        ({"labor": "batch"}, ValueError, ["'hop', 'layers', 'epoch'", "'batch'"]),
        ({"labor": "hop", "time_attr": "time"}, ValueError, ["labor='hop'", "times"]),
        ({"weight_attr": "weight"}, ValueError, ["'weight'", "no attribute of edges"]),
        ({"weight_attr": "x"}, ValueError, ["'x'", "nodes have it"]),
        ({"num_neighbors": 5}, TypeError, ["5", "list"]),
        ({"macrobatch_size": 0}, ValueError, ["macrobatch_size", "0", "auto"]),
        ({"macrobatch_size": "many"}, ValueError, ["macrobatch_size", "many", "auto"]),
        ({"macrobatch_size": 2.0}, ValueError, ["macrobatch_size", "2.0"]),
        ({"fetch_size": -1}, ValueError, ["fetch_size", "-1", "auto"]),
        ({"shuffle": torch.ones(3)}, TypeError, ["shuffle", "True or False"]),
        ({"macrobatch_size": 2, "fetch_size": 3}, ValueError, ["fetch_size (3)", "macrobatch_size (2)"]),
        ({"memory_budget": 0}, ValueError, ["memory_budget", "bytes", "0"]),
        ({"memory_budget": "lots"}, ValueError, ["lots", "bytes", "2GiB"]),
        ({"threads": 2**63}, ValueError, ["threads", str(2**63)]),
        ({"input_nodes": object()}, TypeError, ["input_nodes", "a list of numbers"]),
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
        ({"input_nodes": MASK.to_sparse()}, TypeError, ["input_nodes", "sparse_coo", ".to_dense()"]),
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


def test_it_is_a_neighbor_loader() -> None:
    loader = make_loader(make_data())
    assert isinstance(loader, NeighborLoader) and isinstance(loader, NodeLoader)
    assert isinstance(loader, torch.utils.data.DataLoader)


def test_a_loader_shows_in_one_line() -> None:
    whole = make_loader(make_data(), [4, -1], batch_size=8)
    assert repr(whole) == f"MacrobatchNeighborLoader({NODES} seeds, fanouts=[4, -1], batch_size=8)"
    some = make_loader(make_data(), input_nodes=IDS)
    assert repr(some) == f"MacrobatchNeighborLoader({len(IDS)} seeds, fanouts=[4, 3], batch_size=32)"
    fanouts = {("a", "to", "b"): [3], ("b", "to", "a"): [2]}
    typed = SamplingPlan([1], by_relation=fanouts)
    assert typed.summary() == "fanouts={'a-to-b': [3], 'b-to-a': [2]}"


def test_attributes_after_construction() -> None:
    data = make_data()
    loader = make_loader(data, input_nodes=MASK, drop_last=True)
    assert loader.data is data and torch.equal(loader.input_nodes, MASK) and loader.input_time is None
    assert loader.batch_size == 32 and loader.drop_last and loader.num_workers == 0
    assert len(loader.dataset) == IDS.numel() and loader.filter_per_worker is True
    assert loader.node_sampler.num_neighbors.values == [4, 3]
    assert torch.equal(loader.input_data.node, IDS)


@pytest.mark.parametrize(
    ("given", "nodes", "input_id"),
    [
        (None, torch.arange(NODES), torch.arange(NODES)),
        (MASK, IDS, IDS),  # the trap: node ids
        (IDS, IDS, torch.arange(IDS.numel())),  # positions
        (IDS.int(), IDS, torch.arange(IDS.numel())),
        (IDS.flip(0), IDS.flip(0), torch.arange(IDS.numel())),
        (IDS.tolist(), IDS, torch.arange(IDS.numel())),
        (IDS.numpy(), IDS, torch.arange(IDS.numel())),
        (torch.tensor([5, 5, 2]), torch.tensor([5, 5, 2]), torch.arange(3)),
        (torch.arange(0, NODES, 7), torch.arange(0, NODES, 7), torch.arange(len(range(0, NODES, 7)))),
        ([], torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long)),
        (torch.zeros(NODES, dtype=torch.bool), torch.empty(0), torch.empty(0)),
    ],
)
def test_input_nodes(given: Any, nodes: Tensor, input_id: Tensor) -> None:
    batches = list(make_loader(make_data(), input_nodes=given))
    assert len(batches) == math.ceil(nodes.numel() / 32)
    assert flat(seeds_of(batches)) == nodes.tolist()
    assert flat(batch.input_id.tolist() for batch in batches) == input_id.tolist()


@pytest.mark.parametrize("given", [MASK, IDS])
def test_input_id_of_the_users_own(given: Tensor) -> None:
    own = torch.arange(IDS.numel()) * 10
    batches = make_loader(make_data(), input_nodes=given, input_id=own, shuffle=True)
    assert all(
        torch.equal(batch.input_id // 10, torch.searchsorted(IDS, batch.n_id[:32][: batch.batch_size]))
        for batch in batches
    )


def test_transform_sees_what_pyg_would_give_it() -> None:
    def transform(batch: Data) -> tuple[Data, int]:
        assert {"n_id", "num_sampled_nodes", "batch_size", "input_id"} <= contents(batch).keys()
        return batch, batch.num_nodes

    plain = list(make_loader(make_data()))
    for way in ({}, {"prefetch": 1}, {"num_workers": 1}):
        made = list(make_loader(make_data(), transform=transform, **way))
        assert [number for _, number in made] == [batch.num_nodes for batch in plain]
        assert_same([batch for batch, _ in made], plain)


@pytest.mark.parametrize("prefetch", [0, 1])
def test_transform_sampler_output(prefetch: int) -> None:
    def halve(out: Any) -> Any:
        keep = torch.arange(0, out.row.numel(), 2)
        out.row, out.col, out.edge = out.row[keep], out.col[keep], out.edge[keep]
        return out

    data = make_data()
    for batch, whole in zip(
        make_loader(data, transform_sampler_output=halve, prefetch=prefetch), make_loader(data), strict=True
    ):
        assert torch.equal(batch.edge_index, whole.edge_index[:, ::2])
        assert torch.equal(batch.edge_attr, whole.edge_attr[::2]) and torch.equal(batch.e_id, whole.e_id[::2])


def test_pin_memory_does_nothing_without_an_accelerator() -> None:
    if not torch.cuda.is_available():
        assert_same(make_loader(make_data(), pin_memory=True), make_loader(make_data()))


@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize(
    "index", [[0], [4, 4, 2], torch.tensor([3, 1]), torch.tensor(5).view(1), np.array([1, 2]), []]
)
def test_call(index: Any, export: str) -> None:
    loader = make_loader(make_data(), input_nodes=IDS, export=export)
    batch = contents(loader(index))
    positions = [int(position) for position in index]
    assert batch["n_id"][: len(positions)].tolist() == IDS[positions].tolist()
    assert batch["input_id"].tolist() == positions and batch["batch_size"] == len(positions)


def test_call_takes_positions_and_uses_the_current_epoch() -> None:
    loader = make_loader(make_data(), input_nodes=IDS)
    for index in (MASK, torch.ones(2), torch.ones(2, dtype=torch.int64).to_sparse()):
        with pytest.raises(TypeError, match="positions must be dense integers"):
            loader(index)
    next(iter(loader))
    first = loader([0, 1])
    next(iter(loader))
    second = loader([0, 1])
    assert not torch.equal(first.e_id, second.e_id)
    loader.set_epoch(0)
    assert_same([loader([0, 1])], [first])


@pytest.mark.parametrize("filter_per_worker", [True, False, None])
def test_collate_fn_does_what_pygs_does(filter_per_worker: bool | None) -> None:
    """Other loaders are built around it: `DataLoader(range(n), collate_fn=loader.collate_fn)`."""
    loader = make_loader(make_data(), filter_per_worker=filter_per_worker)
    loader.set_epoch(3)
    made = loader.collate_fn([1, 2])
    assert isinstance(made, Data) == (filter_per_worker is not False)
    assert_same([made if isinstance(made, Data) else loader.filter_fn(made)], [loader([1, 2])])


def test_a_sampler_of_the_users() -> None:
    data = make_data()
    sampler = PygNeighborSampler(graph_from_pyg(data), [2, 2], seed=5)
    loader = MacrobatchNeighborLoader(data, [9], neighbor_sampler=sampler, batch_size=32)
    assert loader.seed == 5
    assert_same(loader, make_loader(data, [2, 2], seed=5))


def test_the_seed_comes_from_torchs_generator() -> None:
    seeds = []
    for start in (1, 1, 2):
        torch.manual_seed(start)
        seeds.append(make_loader(make_data(), seed=None).seed)
    assert seeds[0] == seeds[1] != seeds[2]


@pytest.mark.parametrize("seed", [0, -1, 2**63, 2**64 + 5, 10**30])
def test_any_integer_is_a_seed(seed: int) -> None:
    loader = make_loader(make_data(), seed=seed, shuffle=True)
    assert loader.seed == seed
    assert_same(loader, make_loader(make_data(), seed=seed % 2**64, shuffle=True))


@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize(
    "value", [["a"] * 4, ("a",) * 4, np.array([1, "b", None, 2], object), np.array(["a"] * 4)]
)
def test_attributes_of_which_no_batch_can_be_made_are_named(export: Any, value: Any) -> None:
    data, typed = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), x=torch.ones(4, 1)), HeteroData()
    data.names = value
    typed["user"].x, typed["user"].names = torch.ones(4, 1), value
    typed["user", "to", "user"].edge_index = data.edge_index
    for one, nodes in ((data, None), (typed, "user")):
        if export == "native" and not isinstance(value, np.ndarray):  # lists are left out
            assert next(iter(MacrobatchNeighborLoader(one, [2], nodes, export=export))).num_nodes
            continue
        with pytest.raises(TypeError, match=r"node attribute 'names' is an? .* \(del data.*\.names\)"):
            MacrobatchNeighborLoader(one, [2], nodes, export=export)
    if export == "native":
        batch = next(iter(MacrobatchNeighborLoader(data, [2], export=export, attributes=["x"])))
        assert batch.x.size(1) == 1


@pytest.mark.parametrize("name", ["weight_attr", "time_attr"])
def test_names_of_attributes_are_texts(name: str) -> None:
    data = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2)
    with pytest.raises(TypeError, match=f"{name} must be the name of an attribute, got .*'weight'"):
        MacrobatchNeighborLoader(data, [2], **{name: {("a", "to", "b"): "weight"}})
