"""Threads that prepare macrobatches and batches ahead of their user."""

from __future__ import annotations

import atexit
import functools
import itertools
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Protocol, TypeAlias, TypeVar

import torch

from pyg_batchgnn.comm import SerialExecutor

T = TypeVar("T")
Item = TypeVar("Item")
#: Tells whether the user still wants items.
IsWanted: TypeAlias = Callable[[], bool]
#: Seconds after which a thread that waits looks whether anybody still wants its work.
_LOOK = 0.2


class Executor(Protocol):
    """Runs tasks in order, on a thread."""

    def start(self, work: Callable[[], T]) -> Callable[[], T]:
        """Starts a task. Returns a function that waits for its result."""

    def close(self, wait: bool) -> None:
        """Lets tasks that have started run to their end; ``wait`` waits for them."""


class _Worker(SerialExecutor):
    """The thread of an executor. Work that has not begun is dropped once it is closed."""

    closed = False

    def end(self, seconds: float | None) -> None:
        self.closed = True
        self.stop(seconds)

    def work(self, work: Callable[[], T]) -> T:
        if self.closed:
            del work  # or the error's traceback would keep it alive
            raise RuntimeError("the iterator was closed: nobody waits for this")
        return work()


#: Threads that are in use. They must end before the interpreter does.
_OPEN: weakref.WeakSet[_Worker] = weakref.WeakSet()


class ThreadExecutor:
    """A thread of its own. It ends when the executor is closed or no longer referenced, for
    instance after a Ctrl-C."""

    def __init__(self, name: str = "macrobatch") -> None:
        self._thread = thread = _Worker(name)
        self.is_wanted: IsWanted = lambda: not thread.closed
        _OPEN.add(thread)
        weakref.finalize(self, thread.end, 0.0).atexit = False

    def start(self, work: Callable[[], T]) -> Callable[[], T]:
        return self._thread.start(functools.partial(self._thread.work, work)).wait

    def close(self, wait: bool, last: Callable[[], None] | None = None) -> None:
        """Ends the thread. ``last``: called on the thread at its end."""
        self._thread.closed = True
        if last is not None:
            self._thread.start(last)
        self._thread.stop(None if wait else 0.0)


@atexit.register
def _close_all() -> None:
    for thread in list(_OPEN):
        thread.end(None)


def prefetch(
    executor: Executor, make: Callable[[Item], list[T]], items: Iterator[Item], depth: int
) -> Iterator[T]:
    """Calls ``make`` on the executor for each item, up to ``depth`` items ahead, and yields the
    entries of the lists that it returns."""
    pending: deque[Callable[[], list[T]]] = deque()
    consumer = threading.current_thread()
    try:
        for item in items:
            work = functools.partial(in_mode, torch.is_grad_enabled(), make, item)
            pending.append(executor.start(work))
            del work
            if len(pending) > depth:
                yield from drain(pending.popleft()())
        while pending:
            yield from drain(pending.popleft()())
    finally:
        executor.close(wait=threading.current_thread() is consumer)


def beside(
    make: Callable[[IsWanted], Iterator[T]], depth: int, name: str = "macrobatch"
) -> Generator[T, None, None]:
    """Runs the iterator that ``make`` returns on a thread, at most ``depth`` items ahead, and
    yields its items."""
    executor, pending = ThreadExecutor(name), deque[Callable[[], list[T]]]()
    consumer, is_wanted, wants_grad = threading.current_thread(), executor.is_wanted, torch.is_grad_enabled()
    source: list[Iterator[T]] = []

    def following() -> list[T]:
        with torch.set_grad_enabled(wants_grad):
            if not source:
                source.append(make(is_wanted))
            return list(itertools.islice(source[0], 1))

    def end() -> None:
        for one in source:
            if hasattr(one, "close"):
                one.close()
        source.clear()

    try:
        while True:
            while len(pending) <= depth:
                pending.append(executor.start(following))
            made = pending.popleft()()
            if not made:
                return
            yield made.pop()  # the consumer alone holds a batch
    finally:
        pending.clear()
        executor.close(threading.current_thread() is consumer, end)


def waiting(asked: queue.SimpleQueue[T | None], is_wanted: IsWanted) -> Iterator[T]:
    """Yields what is put into a queue until it is None, or until ``is_wanted`` is false."""
    while is_wanted():
        try:
            found = asked.get(timeout=_LOOK)
        except queue.Empty:
            continue
        if found is None:
            return
        yield found


def drain(made: list[T]) -> Iterator[T]:
    """Yields a list's entries and drops each from the list, so that their memory is free once the
    user drops them."""
    made.reverse()
    while made:
        yield made.pop()


def in_mode(wants_grad: bool, make: Callable[[Item], T], item: Item) -> T:
    """Calls ``make(item)`` with the consumer's gradient mode; each thread has its own."""
    with torch.set_grad_enabled(wants_grad):
        return make(item)
