"""The memory of batches: intact as long as anybody holds it, and returned afterwards."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pyg_batchgnn import ops
from tests.loader import job_huge_pages
from tests.support.limits import exit_code_of_child, join_all, wait_until
from tests.support.loader_cases import assert_same, contents, make_data, make_loader

ROOT = Path(__file__).resolve().parents[2]
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "prefetch": {"prefetch": 2},
    "native": {"export": "native"},
    "native, prefetch": {"export": "native", "prefetch": 1},
    "native, copied": {"export": "native", "features": "copy"},
}


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def copied(batch: Any) -> dict[str, Any]:
    return {name: v.clone() if isinstance(v, torch.Tensor) else v for name, v in contents(batch).items()}


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_a_whole_epoch_stay_intact(kind: str) -> None:
    held, copies = [], []
    for batch in make_loader(make_data(2000, 20_000), batch_size=64, **KINDS[kind]):
        held.append(batch)
        copies.append(copied(batch))
    ops.empty_cache()
    list(make_loader(make_data(seed=5), **KINDS[kind]))
    for batch, copy in zip(held, copies, strict=True):
        now = contents(batch)
        assert all(torch.equal(now[name], v) for name, v in copy.items() if isinstance(v, torch.Tensor))
    addresses = [batch.edge_index.data_ptr() for batch in held if batch.edge_index.numel()]
    assert "native" in kind or len(set(addresses)) == len(addresses)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_returns_when_a_batch_is_let_go_of(kind: str) -> None:
    loader = make_loader(make_data(2000, 20_000), batch_size=64, **KINDS[kind])
    list(loader)
    ops.empty_cache()
    before = ops.memory_stats().live
    for batch in loader:
        assert batch.num_nodes and ops.memory_stats().live > before
    del batch
    ops.empty_cache()
    assert ops.memory_stats().live == before


@pytest.mark.parametrize("kind", ["plain", "native", "native, copied"])
def test_a_generator_keeps_no_batch(kind: str) -> None:
    """Once the user is done with the last minibatch of a macrobatch, nothing of it is left."""
    loader = make_loader(make_data(2000, 20_000), batch_size=64, macrobatch_size=2, **KINDS[kind])
    list(loader)
    ops.empty_cache()
    before = ops.memory_stats().live
    batches = iter(loader)
    first, second = next(batches), next(batches)
    assert ops.memory_stats().live > before
    del first, second
    ops.empty_cache()  # of the sampler's scratch memory
    assert ops.memory_stats().live == before


def test_a_batch_alone_is_alive() -> None:
    """Minibatches that were handed out do not keep their macrobatch's others."""
    loader = make_loader(make_data(2000, 20_000), batch_size=64, macrobatch_size=8, fetch_size=8)
    batches = iter(loader)
    sizes = []
    for _ in range(8):
        batch = next(batches)
        del batch
        sizes.append(ops.memory_stats().live)
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1]


@pytest.mark.parametrize("kind", ["plain", "native", "native, copied"])
def test_the_steady_state_asks_the_system_for_nothing(kind: str) -> None:
    loader = make_loader(make_data(2000, 20_000), batch_size=64, shuffle=True, threads=1, **KINDS[kind])
    for _ in range(3):
        for _ in loader:
            pass
    before = ops.memory_stats().system_calls
    for _ in loader:
        pass
    assert ops.memory_stats().system_calls - before <= 2


@pytest.mark.parametrize("kwargs", [{}, {"prefetch": 1}, {"num_workers": 1, "persistent_workers": True}])
def test_a_dropped_loader_is_freed_without_the_collector(kwargs: dict[str, Any]) -> None:
    data = make_data()
    loader = make_loader(data, **kwargs)
    for _ in loader:
        break
    list(loader)
    gone = weakref.ref(loader), weakref.ref(data)
    del loader, data
    # The thread that prefetched may still be about to let go of its last task.
    wait_until(lambda: all(reference() is None for reference in gone), "the loader is freed")


def test_letting_go_on_another_thread() -> None:
    ops.empty_cache()  # scratch memory, which grows by which thread samples which minibatch
    before = ops.memory_stats().live
    batches = list(make_loader(make_data()))
    pool = [threading.Thread(target=batches.pop) for _ in range(len(batches))]
    for thread in pool:
        thread.start()
    join_all(pool)
    ops.empty_cache()
    assert batches == [] and ops.memory_stats().live == before


def test_threads_that_hold_and_let_go_at_the_same_time() -> None:
    data = make_data()
    expected = list(make_loader(data))
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                assert_same(make_loader(data), expected)
        except BaseException as failure:
            failures.append(failure)

    pool = [threading.Thread(target=work) for _ in range(4)]
    for thread in pool:
        thread.start()
    join_all(pool)
    assert failures == []


def test_a_forked_child_may_use_and_free_batches() -> None:
    loader = make_loader(make_data())
    batches = list(loader)
    expected = list(make_loader(make_data()))
    child = os.fork()
    if child == 0:
        try:
            assert_same(batches, expected)
            batches.clear()
            torch.set_num_threads(1)
            assert_same(make_loader(make_data(), threads=1), expected)
            assert_same(make_loader(make_data(), threads=3), expected)
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert exit_code_of_child(child) == 0
    assert_same(batches, expected)


TEARDOWN = """
import faulthandler, sys, threading, time
faulthandler.dump_traceback_later(110, exit=True)  # says where it hangs
from tests.support.loader_cases import make_data, make_loader
held = list(make_loader(make_data(2000, 20_000), batch_size=64))
running = iter(make_loader(make_data(), prefetch=2))
first = next(running)
workers = iter(make_loader(make_data(), num_workers=1))
next(workers)
local = threading.local()
def hold():
    local.batches = list(make_loader(make_data()))
    time.sleep(1000)
threading.Thread(target=hold, daemon=True).start()
time.sleep(0.3)
sys.modules["kept"] = held
class Last:
    def __del__(self):
        held.clear()
last = Last()
"""


def test_interpreter_teardown() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TEARDOWN], cwd=ROOT, timeout=120, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "Error" not in done.stderr, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="counts pages in Linux's /proc")
def test_private_memory_moves_and_memory_that_a_fork_shares_is_not_copied() -> None:
    command = [sys.executable, "-m", "tests.loader.job_huge_pages"]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as parent:
        try:
            status = parent.wait(timeout=60)
        finally:
            if parent.poll() is None:
                os.killpg(parent.pid, signal.SIGKILL)
    if status == job_huge_pages.REFUSED:
        pytest.skip("the system gives no huge pages at once")
    assert status == 0
