"""Every argument of PyG's loader and of PyTorch's, and what is said about wrong ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NeighborLoader, NodeLoader
from torch_geometric.sampler import NumNeighbors

from pyg_batchgnn import MacrobatchNeighborLoader, PygNeighborSampler
from pyg_batchgnn.store import graph_from_pyg

from .graphs import NODES, assert_same, contents, make_data, make_loader, seeds_of
from .stores import stores_of

MASK = torch.rand(NODES, generator=torch.Generator().manual_seed(2)) < 0.3
IDS = MASK.nonzero().view(-1)


def flat(lists: Iterable[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(lists))


def test_it_is_a_neighbor_loader() -> None:
    loader = make_loader(make_data())
    assert isinstance(loader, NeighborLoader) and isinstance(loader, NodeLoader)
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert repr(loader) == "MacrobatchNeighborLoader()"


def test_attributes_after_construction() -> None:
    data = make_data()
    loader = make_loader(data, input_nodes=MASK, drop_last=True)
    assert loader.data is data and torch.equal(loader.input_nodes, MASK) and loader.input_time is None
    assert loader.batch_size == 32 and loader.drop_last and loader.num_workers == 0
    assert len(loader.dataset) == IDS.numel() and loader.filter_per_worker is True
    assert loader.node_sampler.num_neighbors == [4, 3]
    assert torch.equal(loader.input_data.node, IDS)


# Input nodes ######################################################################################


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


@pytest.mark.parametrize("given", [None, MASK, IDS, IDS.flip(0)])
def test_input_id_is_pygs(given: Any) -> None:
    data = make_data()
    theirs = NodeLoader(data, PygNeighborSampler(graph_from_pyg(data), [4, 3], seed=7), given, batch_size=32)
    assert_same(make_loader(data, input_nodes=given), theirs)


# The order ########################################################################################


def test_no_shuffling_without_being_asked() -> None:
    assert flat(seeds_of(make_loader(make_data()))) == list(range(NODES))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [1, 7, 100, NODES, NODES + 1])
def test_length_and_drop_last(batch_size: int, drop_last: bool) -> None:
    loader = make_loader(make_data(), batch_size=batch_size, drop_last=drop_last, shuffle=True)
    expected = NODES // batch_size if drop_last else math.ceil(NODES / batch_size)
    sizes = [batch.batch_size for batch in loader]
    assert len(sizes) == len(loader) == expected
    assert all(size == batch_size for size in sizes[:-1])


def test_shuffle_is_a_new_permutation_every_epoch_and_the_same_in_every_process() -> None:
    loader = make_loader(make_data(), shuffle=True)
    first, second = flat(seeds_of(loader)), flat(seeds_of(loader))
    assert sorted(first) == sorted(second) == list(range(NODES)) and first != second
    again = make_loader(make_data(), shuffle=True)
    again.set_epoch(1)
    assert flat(seeds_of(again)) == second
    assert flat(seeds_of(make_loader(make_data(), shuffle=True, seed=8))) != first


def test_the_users_generator_decides() -> None:
    orders = [
        seeds_of(make_loader(make_data(), shuffle=True, generator=torch.Generator().manual_seed(s), seed=k))
        for s, k in [(1, 1), (1, 2), (2, 1)]
    ]
    assert orders[0] == orders[1] != orders[2]
    plain = torch.utils.data.DataLoader(
        range(NODES),
        batch_size=32,
        sampler=RandomSampler(range(NODES), generator=torch.Generator().manual_seed(1)),
    )
    assert orders[0] == [batch.tolist() for batch in plain]


@pytest.mark.parametrize(
    "sampler",
    [lambda: SequentialSampler(range(50)), lambda: [5, 3, 1], lambda: SubsetRandomSampler([1, 2, 3])],
)
def test_the_users_sampler_decides(sampler: Callable[[], Any]) -> None:
    torch.manual_seed(4)
    batches = seeds_of(make_loader(make_data(), sampler=sampler(), batch_size=2))
    torch.manual_seed(4)
    assert batches == list(BatchSampler(sampler(), 2, False))


class Halves:
    """A batch sampler that remembers how often it was asked."""

    def __init__(self) -> None:
        self.epoch = 0

    def __iter__(self) -> Any:
        self.epoch += 1
        for start in range(0, 20, 10):
            yield torch.arange(start, start + 10) + self.epoch

    def __len__(self) -> int:
        return 2


class Unsized:
    def __iter__(self) -> Any:
        return iter([[1, 2], [3]])


def test_a_batch_sampler_with_a_state_of_its_own() -> None:
    loader = make_loader(make_data(), batch_sampler=Halves(), batch_size=1)
    assert len(loader) == 2
    assert [seeds[0] for seeds in seeds_of(loader)] == [1, 11]
    assert [seeds[0] for seeds in seeds_of(loader)] == [2, 12]


def test_a_batch_sampler_without_length() -> None:
    loader = make_loader(make_data(), batch_sampler=Unsized(), batch_size=1, macrobatch_size="auto")
    assert seeds_of(loader) == [[1, 2], [3]]


def test_training_that_draws_does_not_change_the_order() -> None:
    """A sampler that draws while it is read must not see the numbers that training takes in between."""

    class Lazy:
        def __iter__(self) -> Any:
            return (int(torch.randint(NODES, ())) for _ in range(20))

        def __len__(self) -> int:
            return 20

    torch.manual_seed(0)
    expected = seeds_of(
        make_loader(make_data(), sampler=Lazy(), batch_size=2, macrobatch_size=1, fetch_size=1)
    )
    torch.manual_seed(0)
    seeds = []
    for batch in make_loader(make_data(), sampler=Lazy(), batch_size=2, macrobatch_size=1, fetch_size=1):
        torch.rand(5)
        seeds += seeds_of([batch])
    assert seeds == expected


# Other arguments ##################################################################################


def test_transform_sees_what_pyg_would_give_it() -> None:
    def transform(batch: Data) -> tuple[Data, int]:
        assert {"n_id", "num_sampled_nodes", "batch_size", "input_id"} <= contents(batch).keys()
        return batch, batch.num_nodes

    plain = list(make_loader(make_data()))
    for prefetch in (0, 1):
        made = list(make_loader(make_data(), transform=transform, prefetch=prefetch))
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


def test_call_uses_the_current_epoch() -> None:
    loader = make_loader(make_data(), input_nodes=IDS)
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


def test_num_neighbors_objects() -> None:
    data = make_data()
    assert_same(
        MacrobatchNeighborLoader(data, NumNeighbors([4, 3]), batch_size=32, seed=7), make_loader(data)
    )


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


# Refused ##########################################################################################

TIME = {"time_attr": "time"}


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"subgraph_type": "bidirectional"}, ["bidirectional"]),
        ({"subgraph_type": "induced"}, ["induced"]),
        ({"directed": False}, ["directed", "induced"]),
        ({"disjoint": True}, ["disjoint"]),
        (TIME, ["temporal", "time"]),
        ({**TIME, "input_time": torch.arange(NODES)}, ["temporal"]),
        ({"weight_attr": "edge_attr"}, ["weighted", "edge_attr"]),
        ({"num_neighbors": {("a", "to", "b"): [1]}}, ["edge type", "heterogeneous"]),
        ({"data": HeteroData()}, ["heterogeneous"]),
        ({"input_nodes": "paper"}, ["paper", "heterogeneous"]),
        ({"input_nodes": ("paper", IDS)}, ["paper", "heterogeneous"]),
    ],
)
def test_what_is_still_to_come(kwargs: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(NotImplementedError) as caught:
        MacrobatchNeighborLoader(**{"data": make_data(), "num_neighbors": [2], **kwargs})
    assert all(word in str(caught.value) for word in ["still to come", *words]), caught.value


@pytest.mark.parametrize(
    ("kwargs", "error", "words"),
    [
        ({"input_time": torch.arange(NODES)}, ValueError, ["input_time", "time_attr"]),
        ({"num_neighbors": []}, ValueError, ["fanout", "(15, 10, 5)"]),
        ({"num_neighbors": [-2]}, ValueError, ["-2", "-1"]),
        ({"num_neighbors": [1.5]}, TypeError, ["1.5", "integer"]),
        ({"num_neighbors": 5}, TypeError, ["5", "list"]),
        ({"macrobatch_size": 0}, ValueError, ["macrobatch_size", "0", "auto"]),
        ({"macrobatch_size": "many"}, ValueError, ["macrobatch_size", "many", "auto"]),
        ({"macrobatch_size": 2.0}, ValueError, ["macrobatch_size", "2.0"]),
        ({"fetch_size": -1}, ValueError, ["fetch_size", "-1", "auto"]),
        ({"fetch_size": True}, ValueError, ["fetch_size", "True"]),
        ({"macrobatch_size": 2, "fetch_size": 3}, ValueError, ["fetch_size (3)", "macrobatch_size (2)"]),
        ({"memory_budget": 0}, ValueError, ["memory_budget", "bytes", "0"]),
        ({"memory_budget": "1G"}, TypeError, ["memory_budget", "1G", "bytes"]),
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
