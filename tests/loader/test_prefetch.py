"""Prefetching on a thread: how far, after the user stops, and that nothing is left behind."""

from __future__ import annotations

import gc
import multiprocessing
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from pyg_batchgnn.loader.prefetch import ThreadExecutor, prefetch
from tests.support.limits import join_all
from tests.support.loader_cases import assert_same, make_data, make_loader

KINDS: dict[str, dict[str, Any]] = {
    "in this thread": {},
    "prefetch 1": {"prefetch": 1},
    "prefetch 3": {"prefetch": 3},
    "a device": {"device": "cpu"},
    "a worker": {"num_workers": 1},
    "two workers": {"num_workers": 2, "prefetch_factor": 1},
}


def helpers() -> tuple[list[str], list[Any]]:
    """The package's threads, and child processes."""
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("macrobatch")]
    return threads, multiprocessing.active_children()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before = helpers()
    yield
    gc.collect()
    deadline = time.monotonic() + 60
    while helpers() != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert helpers() == before


@pytest.mark.parametrize("kind", KINDS)
def test_stopping_early(kind: str) -> None:
    loader = make_loader(make_data(), **KINDS[kind])
    for batch in loader:
        assert batch.num_nodes
        break
    assert helpers() == ([], [])
    assert len(list(loader)) == 10


@pytest.mark.parametrize("kind", KINDS)
def test_closing_and_dropping_an_iterator(kind: str) -> None:
    loader = make_loader(make_data(), **KINDS[kind])
    closed = iter(loader)
    next(closed)
    closed.close()  # type: ignore[attr-defined]
    with pytest.raises(StopIteration):
        next(closed)
    never_begun, dropped = iter(loader), iter(loader)
    next(dropped)
    del never_begun, dropped
    assert helpers() == ([], [])


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_in_the_loop(kind: str, error: type[BaseException]) -> None:
    loader = make_loader(make_data(), **KINDS[kind])

    def train() -> None:
        for number, _ in enumerate(loader):
            if number == 1:
                raise error("stop")

    with pytest.raises(error, match="stop"):
        train()
    assert helpers() == ([], [])
    assert len(list(loader)) == 10


class Failing:
    """Fails at the third batch that it sees."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, batch: Any) -> Any:
        self.seen += 1
        if self.seen == 3:
            raise ArithmeticError("the third batch")
        return batch


@pytest.mark.parametrize("hook", ["transform", "transform_sampler_output"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_in_a_hook(kind: str, hook: str) -> None:
    loader = make_loader(make_data(), **KINDS[kind], **{hook: Failing()})
    with pytest.raises(ArithmeticError, match="the third batch") as caught:
        list(loader)
    assert helpers() == ([], []), "while the traceback is still held"
    del caught


def test_how_far_ahead() -> None:
    """When a minibatch of macrobatch k is in use, k + prefetch and no later one has been begun."""
    for depth in (1, 2):
        loader = make_loader(make_data(), macrobatch_size=2, prefetch=depth)
        for number, _ in enumerate(loader):
            time.sleep(0.01)
            begun = loader.stats().total.minibatches
            assert begun <= min(10, 2 * (number // 2 + 1 + depth))
        assert loader.stats().total.minibatches == 10


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_the_garbage_collector_on_the_thread_that_prepares() -> None:
    """It may find a dropped iterator there, and must not wait for the thread it is on."""
    let_go, collected = threading.Event(), threading.Event()

    def make(item: Any) -> list[Any]:
        if item == 1:
            assert let_go.wait(60)
            gc.collect()
            collected.set()
        return [item]

    batches: list[Any] = [prefetch(ThreadExecutor(), make, iter(range(9)), 1)]
    next(batches[0])
    batches.append(batches)  # a cycle
    del batches
    let_go.set()
    assert collected.wait(60)


def test_it_works_beside_the_user() -> None:
    """The next macrobatch is made while the user has not come back for it."""
    loader = make_loader(make_data(), macrobatch_size=2, prefetch=1)
    batches = iter(loader)
    next(batches)
    deadline = time.monotonic() + 60
    while loader.stats().total.minibatches < 4:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_transforms_run_on_the_users_thread() -> None:
    names: list[str] = []
    loader = make_loader(
        make_data(),
        prefetch=2,
        transform=lambda batch: names.append(threading.current_thread().name) or batch,
    )
    list(loader)
    assert set(names) == {threading.current_thread().name}


def test_iterating_on_another_thread() -> None:
    expected = list(make_loader(make_data()))
    for kind in KINDS:
        made: list[Any] = []
        thread = threading.Thread(
            target=lambda made=made, kind=kind: made.extend(make_loader(make_data(), **KINDS[kind]))
        )
        thread.start()
        join_all([thread])
        assert_same(made, expected)


def test_gradient_mode_is_the_users() -> None:
    data = make_data()
    data.x = torch.nn.Parameter(data.x)
    with torch.no_grad():
        assert not any(batch.x.requires_grad for batch in make_loader(data, prefetch=2))
    assert all(batch.x.requires_grad for batch in make_loader(data, prefetch=2))
