"""The queue of bounded depth: order, depth, exceptions, and ends at any moment."""

from __future__ import annotations

import gc
import queue
import threading
import time
import weakref
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.loader.prefetch import beside, waiting
from tests.support.limits import wait_until


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("macrobatch")]


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    yield
    gc.collect()
    wait_until(lambda: not threads(), "threads that ended")


class Source:
    """Yields numbers, and knows how many were asked for and whether it was closed."""

    def __init__(self, count: int, fails_at: int | None = None) -> None:
        self.count, self.fails_at, self.made, self.closed = count, fails_at, 0, 0

    def __iter__(self) -> Iterator[int]:
        try:
            for number in range(self.count):
                if number == self.fails_at:
                    raise ArithmeticError(f"item {number}")
                self.made += 1
                yield number
        finally:
            self.closed += 1


@given(count=st.integers(0, 20), depth=st.integers(1, 5), taken=st.integers(0, 25), fails=st.booleans())
def test_order_exceptions_and_ends(count: int, depth: int, taken: int, fails: bool) -> None:
    source = Source(count + fails, count if fails else None)
    made = beside(lambda _: iter(source), depth)
    found = []
    try:
        for _ in range(taken):
            found.append(next(made))
    except StopIteration:
        assert not fails
    except ArithmeticError as error:
        assert fails and error.args == (f"item {count}",)
    made.close()
    assert found == list(range(min(count, taken)))
    assert not threads()
    assert source.closed == (taken > 0) and source.made <= min(count, taken + depth)


def test_depth() -> None:
    source = Source(100)
    made = beside(lambda _: iter(source), 3)
    for taken in range(1, 10):
        next(made)
        wait_until(lambda taken=taken: source.made == taken + 3, "items ahead")
        time.sleep(0.001)
        assert source.made == taken + 3
    made.close()


def test_the_consumer_alone_holds_an_item() -> None:
    made = beside(lambda _: (torch.ones(1) for _ in range(2)), 1)
    held = weakref.ref(next(made))
    assert held() is None
    made.close()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_the_thread_itself_may_drop_the_iterator() -> None:
    """As the garbage collector does, which runs on any thread."""
    held: list[Iterator[int]] = []

    def source() -> Iterator[int]:
        for number in range(10):
            if number == 2:
                held.clear()
            yield number

    held.append(beside(lambda _: source(), 3))
    next(held[0])
    wait_until(lambda: not threads(), "the thread")


def test_a_source_that_fails_when_it_is_closed() -> None:
    def source() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            raise ArithmeticError("at the end")

    made = beside(lambda _: source(), 1)
    assert next(made) == 1
    made.close()
    whole = beside(lambda _: source(), 1)
    with pytest.raises(ArithmeticError, match="at the end"):
        list(whole)


@pytest.mark.parametrize("wants", [True, False])
def test_the_gradient_mode_is_the_consumers(wants: bool) -> None:
    with torch.set_grad_enabled(wants):
        modes = beside(lambda _: (torch.is_grad_enabled() for _ in range(2)), 1)
        assert list(modes) == [wants, wants]


def test_a_consumer_that_never_says_that_it_ends() -> None:
    """As after a Ctrl-C in the middle of its end: the threads see that its frame is gone."""
    asked: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    asked.put(3)
    worker = beside(lambda is_wanted: waiting(asked, is_wanted), 5)
    assert next(worker) == 3
    frame = worker.gi_frame  # type: ignore[attr-defined]
    frame.f_locals["executor"].close = lambda *_: None
    del frame
    worker.close()
    wait_until(lambda: not threads(), "the thread")
