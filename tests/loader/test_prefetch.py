"""Prefetching on a thread, and worker processes with all of PyG's options."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.multiprocessing

from tests.support.limits import join_all
from tests.support.loader_cases import assert_same, make_data, make_loader
from tests.support.memory_stores import stores_of
from tests.support.tiers import all_only, each
from tests.support.worker_hooks import mark_output, note_worker, read_note, tag

KINDS: dict[str, dict[str, Any]] = {
    "in this thread": {},
    "prefetch 3": {"prefetch": 3},
    "a device": {"device": "cpu"},
    "two workers": {"num_workers": 2, "prefetch_factor": 1},
}


def helpers() -> tuple[list[str], list[Any]]:
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


@each
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
    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, batch: Any) -> Any:
        self.seen += 1
        if self.seen == 3:
            raise ArithmeticError("the third batch")
        return batch


@each
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


def test_transforms_run_on_the_users_thread() -> None:
    names: list[str] = []
    note = lambda batch: names.append(threading.current_thread().name) or batch  # noqa: E731
    loader = make_loader(make_data(), prefetch=2, transform=note)
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


#: What `tag` adds.
TAGS = ["pid", "worker", "threads", "cores", "noise"]


@pytest.fixture
def start_method() -> Iterator[None]:
    before = torch.multiprocessing.get_start_method()
    yield
    torch.multiprocessing.set_start_method(before, force=True)


def test_spawned_workers_take_stores_and_live_on() -> None:
    data = make_data()
    kwargs = {"num_workers": 1, "persistent_workers": True, "multiprocessing_context": "spawn"}
    loader = make_loader(stores_of(data, "coo"), input_nodes=torch.arange(70), export="native", **kwargs)
    plain = make_loader(data, input_nodes=torch.arange(70), export="native")
    for _ in range(2):
        assert_same(loader, plain)


@pytest.mark.parametrize("filter_per_worker", [True, False, None])
def test_who_filters(filter_per_worker: bool | None) -> None:
    loader = make_loader(make_data(), num_workers=2, filter_per_worker=filter_per_worker, transform=tag)
    pids = {batch.pid for batch in loader}
    assert (os.getpid() in pids) == (filter_per_worker is False)
    assert len(pids) == (1 if filter_per_worker is False else 2)


@pytest.mark.parametrize("filter_per_worker", [True, False])
def test_where_the_samplers_hook_runs(filter_per_worker: bool) -> None:
    loader = make_loader(
        make_data(), num_workers=1, filter_per_worker=filter_per_worker, transform_sampler_output=mark_output
    )
    assert all((int(batch.seed_time) == os.getpid()) != filter_per_worker for batch in loader)


@pytest.mark.parametrize("persistent", [False, True])
def test_epochs_advance(persistent: bool) -> None:
    plain = make_loader(make_data(), shuffle=True)
    loader = make_loader(
        make_data(), shuffle=True, num_workers=2, persistent_workers=persistent, transform=tag
    )
    pids = []
    for epoch in range(3):
        batches = list(loader)
        pids.append({batch.pid for batch in batches})
        assert_same(batches, list(plain), ignore=TAGS)
        assert loader.epoch == epoch
    assert (pids[0] == pids[1] == pids[2]) == persistent
    del loader, batches


def test_stopping_early_and_going_on_with_persistent_workers() -> None:
    plain = make_loader(make_data(), shuffle=True)
    loader = make_loader(make_data(), shuffle=True, num_workers=2, persistent_workers=True)
    for _ in range(3):
        batches = iter(loader)
        assert_same([next(batches)], [next(iter(plain))])
    assert_same(loader, plain)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_new_seed_reaches_the_workers(persistent: bool) -> None:
    loader = make_loader(make_data(), num_workers=1, persistent_workers=persistent, shuffle=True)
    list(loader)
    other = make_loader(make_data(), shuffle=True, seed=99)
    batches = iter(other)
    next(batches)
    loader.load_state_dict(other.state_dict())
    assert_same(loader, list(batches))


def test_noise_differs_between_workers_and_epochs() -> None:
    for persistent in (False, True):
        loader = make_loader(make_data(), num_workers=2, persistent_workers=persistent, transform=tag)
        noise = [batch.noise for _ in range(2) for batch in loader]
        assert len(set(noise)) == len(noise)
        del loader


def test_workers_sample_with_one_thread() -> None:
    loader = make_loader(make_data(), num_workers=1, transform=tag, threads=5)
    assert {batch.threads for batch in loader} == {1}


def test_worker_init_fn() -> None:
    loader = make_loader(make_data(), num_workers=2, worker_init_fn=note_worker, transform=read_note)
    assert {batch.noted for batch in loader} == {"0", "1"}
    assert "NOTED_WORKER" not in os.environ


def test_cpu_affinity() -> None:
    core = sorted(os.sched_getaffinity(0))[-1]
    loader = make_loader(make_data(), num_workers=1, transform=tag)
    with loader.enable_cpu_affinity(loader_cores=[core]):
        batches = iter(loader)
    assert all(batch.cores == [core] for batch in batches)


@all_only
def test_spawned_workers_with_several_threads(start_method: None) -> None:
    torch.multiprocessing.set_start_method("spawn", force=True)
    torch.set_num_threads(2)
    loader = make_loader(make_data(), num_workers=1, transform=tag)
    with loader.enable_multithreading(2):
        batches = list(loader)
    assert {batch.threads for batch in batches} == {2}
    assert_same(batches, make_loader(make_data()), ignore=TAGS)


def test_a_table_that_requires_gradients_cannot_travel() -> None:
    data = make_data()
    data.x = torch.nn.Parameter(data.x)
    with pytest.raises(RuntimeError, match="filter_per_worker=False"):
        list(make_loader(data, num_workers=1))
    batch = next(iter(make_loader(data, num_workers=1, filter_per_worker=False)))
    assert batch.x.requires_grad
