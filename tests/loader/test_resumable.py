"""Stopped after any minibatch, in this process or another, the rest is exactly what was left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import RandomSampler, WeightedRandomSampler

from tests.support.loader_cases import NODES, assert_same, contents, equal, make_data, make_loader, seeds_of
from tests.support.ranks import run_ranks
from tests.support.tiers import ALL, each


def seeded(number: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def weighted() -> WeightedRandomSampler:
    return WeightedRandomSampler(torch.arange(NODES) + 1.0, 150)


class OwnGenerator:
    def __init__(self) -> None:
        self.generator = seeded(11)

    def __iter__(self) -> Any:
        for _ in range(7):
            yield torch.randint(NODES, (20,), generator=self.generator).tolist()

    def __len__(self) -> int:
        return 7


#: Who decides the order, built anew for each loader.
ORDERS: dict[str, Callable[[], dict[str, Any]]] = {
    "sequential": lambda: {},
    "keyed": lambda: {"shuffle": True, "drop_last": True},
    "generator": lambda: {"shuffle": True, "generator": seeded()},
    "sampler, default generator": lambda: {"sampler": RandomSampler(range(NODES))},
    "weighted sampler, default generator": lambda: {"sampler": weighted()},
    "sampler, generator of its own": lambda: {"sampler": RandomSampler(range(NODES), generator=seeded())},
    "sampler beside another generator": lambda: {"sampler": weighted(), "generator": seeded()},
    "batch sampler with a generator": lambda: {"batch_sampler": OwnGenerator(), "batch_size": 1},
    "native": lambda: {"shuffle": True, "export": "native"},
}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "prefetch": {"prefetch": 2},
    "workers": {"num_workers": 1},
    "device": {"device": "cpu"},
}


def stop_after(loader: Any, number: int) -> list[Any]:
    batches = iter(loader)
    for _ in range(number):
        next(batches)
        torch.rand(3)  # training draws as well
    loader.saved = json.loads(json.dumps(loader.state_dict()))
    return list(batches)


@pytest.mark.parametrize("order", ORDERS)
def test_after_every_number_of_minibatches(order: str) -> None:
    length = len(make_loader(make_data(), **ORDERS[order]()))
    for number in range(length + 1) if ALL else (0, 3, length):
        torch.manual_seed(5)
        loader = make_loader(make_data(), **ORDERS[order]())
        list(loader)
        left = stop_after(loader, number)
        torch.manual_seed(1234)
        other = make_loader(make_data(), **ORDERS[order]())
        other.load_state_dict(loader.saved)
        assert other.epoch == 1
        if left:
            before = torch.get_rng_state()
            assert_same(other, left)
            assert torch.equal(torch.get_rng_state(), before)
        if "default" not in order and "beside" not in order:
            assert_same(other, loader)  # the epoch after that


@each
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ["keyed", "generator", "sampler, default generator", "native"])
def test_with_prefetching_workers_and_a_device(order: str, kind: str) -> None:
    for number in (0, 1, 4, 7) if ALL else (4,):
        torch.manual_seed(5)
        loader = make_loader(make_data(), **ORDERS[order](), **KINDS[kind])
        left = stop_after(loader, number)
        assert loader.saved["batches"] == number, "what was handed out, not what was prepared"
        for other_kind in ("plain", kind):
            other = make_loader(make_data(), **ORDERS[order](), **KINDS[other_kind], macrobatch_size=4)
            other.load_state_dict(loader.saved)
            assert_same(other, left)


def make_loader_of(order: str) -> Any:
    return make_loader(make_data(), **ORDERS[order]())


def resumed(folder: str) -> None:
    for order, state in json.loads(Path(folder, "states").read_text()).items():
        torch.manual_seed(99)
        loader = make_loader_of(order)
        loader.load_state_dict(state)
        torch.save([contents(batch) for batch in loader], Path(folder, order))


def test_in_a_new_process(tmp_path: Path) -> None:
    orders = ("keyed", "generator", "weighted sampler, default generator")
    loaders = {order: make_loader_of(order) for order in orders}
    left = {order: stop_after(loader, 4) for order, loader in loaders.items()}
    (tmp_path / "states").write_text(json.dumps({order: loader.saved for order, loader in loaders.items()}))
    run_ranks(resumed, 1, {"folder": str(tmp_path)})
    for order, expected in left.items():
        there = torch.load(tmp_path / order, weights_only=True)
        assert len(there) == len(expected)
        for one, other in zip(there, map(contents, expected), strict=True):
            assert one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_set_epoch_before_every_epoch(epoch: int) -> None:
    """What many training loops do; it must not throw away a loaded place."""
    loader = make_loader(make_data(), shuffle=True)
    loader.set_epoch(1)
    left = stop_after(loader, 4)
    other = make_loader(make_data(), shuffle=True)
    other.load_state_dict(loader.saved)
    other.set_epoch(epoch)
    plain = make_loader(make_data(), shuffle=True)
    plain.set_epoch(epoch)
    assert_same(other, left if epoch == 1 else plain)


def test_the_saved_seed_is_taken_over() -> None:
    loader = make_loader(make_data(), shuffle=True, seed=2**63 + 1)
    left = stop_after(loader, 3)
    other = make_loader(make_data(), shuffle=True, seed=None)
    other.load_state_dict(loader.saved)
    assert other.seed == 2**63 + 1
    assert_same(other, left)
    assert list(other.sampler) == list(loader.sampler)


def test_two_iterators_note_their_own_order() -> None:
    loader = make_loader(make_data(), shuffle=True, generator=seeded())
    first, second = iter(loader), iter(loader)
    next(first)
    next(second)
    state = loader.state_dict()
    left = list(second)
    other = make_loader(make_data(), shuffle=True, generator=seeded())
    other.load_state_dict(state)
    assert_same(other, left)


class Forgetful:
    asked = 0

    def __iter__(self) -> Any:
        Forgetful.asked += 1
        return iter([[Forgetful.asked], [2]])

    def __len__(self) -> int:
        return 2


def test_an_order_that_cannot_be_repeated_is_noticed() -> None:
    loader = make_loader(make_data(), batch_sampler=Forgetful(), batch_size=1)
    next(iter(loader))
    state = loader.state_dict()
    loader.load_state_dict(state)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"other minibatches.*epoch 0.*bring it back"):
            iter(loader)
    Forgetful.asked = 0  # the owner brings it back
    assert seeds_of(loader) == [[2]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batch_size": 16}, ["batch_size=32", "batch_size=16"]),
        ({"drop_last": True}, ["drop_last=False", "drop_last=True"]),
        ({"input_nodes": torch.arange(100)}, ["num_seeds=300", "num_seeds=100"]),
        ({"input_nodes": torch.arange(NODES).flip(0)}, ["seeds_digest"]),
        ({"fanouts": [4, 4]}, ["fanouts=[4, 3]", "fanouts=[4, 4]"]),
        ({"replace": True}, ["replacement='without'", "replacement='with'"]),
        ({"shuffle": False}, ["order='keyed'", "order='sequential'"]),
        ({"generator": torch.Generator()}, ["order='keyed'", "order='drawn'"]),
        ({"data": make_data(edges=1700)}, ["num_edges=1800", "num_edges=1700"]),
    ],
)
def test_another_loader_is_refused(change: dict[str, Any], words: list[str]) -> None:
    state = make_loader(make_data(), shuffle=True).state_dict()
    other = make_loader(**{"data": make_data(), "shuffle": True, **change})
    with pytest.raises(ValueError, match="to resume") as caught:
        other.load_state_dict(state)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 99}, ["version 1 expected", "99"]),
        ({"epoch": "1"}, ["epoch", "'1'"]),
        ({"batches": -1}, ["-1"]),
        ({"batches": 11}, ["11", "of 10"]),
        ({"seed": 0.5}, ["seed", "0.5"]),
        ({"settings": None}, ["settings"]),
        ({"generators": ["00"]}, ["1 generators", "have 0"]),
        ({"generators": None}, ["generators must be states"]),
        ({"generators": [0]}, ["generators must be states"]),
        ({"epoch": -1}, ["epoch", "found -1"]),
        ({"epoch": True}, ["epoch", "True"]),
        ({"version": True}, ["version 1 expected", "True"]),
        ({"num_batches": -1}, ["num_batches", "-1"]),
        ({"num_batches": "ten"}, ["num_batches", "'ten'"]),
        ({"drawn": 3}, ["drawn must be states"]),
        ({"drawn": {"digest": "00"}}, ["drawn must be states"]),
        ({"drawn": {"states": ["00"], "digest": 1}}, ["drawn must be states"]),
        ({"drawn": {"states": ["00", "00"], "digest": "00"}}, ["1 generators", "have 0"]),
        *(({name: ...}, [name]) for name in ("version", "seed", "epoch", "batches", "drawn", "settings")),
    ],
)
def test_an_altered_state_is_refused(change: dict[str, Any], words: list[str]) -> None:
    loader = make_loader(make_data())
    list(loader)
    state = loader.state_dict()
    with pytest.raises(ValueError, match=r".") as caught:
        loader.load_state_dict({name: one for name, one in {**state, **change}.items() if one is not ...})
    assert all(word in str(caught.value) for word in words), caught.value
    assert loader.state_dict() == state, "nothing was changed"


@pytest.mark.parametrize("state", [None, [], "state", 3])
def test_something_else_is_refused(state: Any) -> None:
    with pytest.raises(ValueError, match="not a state of this loader"):
        make_loader(make_data()).load_state_dict(state)
