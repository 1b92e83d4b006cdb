"""Preparing macrobatches ahead, beside what the user does with the current one."""

from __future__ import annotations

import atexit
import contextlib
import functools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import torch

from pyg_batchgnn.comm import Communicator, Handle, SerialExecutor

T = TypeVar("T")
Item = TypeVar("Item")


class Executor(Protocol):
    """Does pieces of work in order, on a thread."""

    def start(self, work: Callable[[], T]) -> Callable[[], T]:
        """Starts a piece of work. Returns a function that waits for its result."""

    def close(self, wait: bool) -> None:
        """Lets what has started run to its end, and waits for that if told to."""


class ThreadExecutor:
    """A thread of its own. Closing it drops work that has not begun."""

    def __init__(self) -> None:
        self._thread = SerialExecutor("macrobatch")
        self._closed = False
        _OPEN.add(self)

    def start(self, work: Callable[[], T]) -> Callable[[], T]:
        """Starts a piece of work; see `Executor`."""
        return self._thread.start(functools.partial(self._work, work)).wait

    def close(self, wait: bool) -> None:
        """Ends the thread; see `Executor`."""
        self._closed = True
        self._thread.stop(None if wait else 0.0)

    def _work(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise RuntimeError("the iterator was closed: nobody waits for this")
        return work()


#: Executors that are in use. Their threads must end before the interpreter does.
_OPEN: weakref.WeakSet[ThreadExecutor] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for executor in list(_OPEN):
        executor.close(wait=True)


class RankExecutor:
    """The communicator's thread, for work in which all ranks take part.

    What was started runs to its end also after `close`. So ranks that stop at the same minibatch
    have made the same exchanges.
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._started: list[Handle[Any]] = []

    def start(self, work: Callable[[], T]) -> Callable[[], T]:
        """Starts a piece of work; see `Executor`."""
        handle = self._comm.start_job(work)
        self._started = [*(one for one in self._started if not one.done()), handle]
        return handle.wait

    def close(self, wait: bool) -> None:
        """Waits for what was started, if told to; see `Executor`."""
        for handle in self._started if wait else ():
            # The next use of the communicator tells of a failure.
            with contextlib.suppress(Exception):
                handle.wait()


def prefetch(
    executor: Executor, make: Callable[[Item], list[T]], items: Iterator[Item], depth: int
) -> Iterator[T]:
    """Yields what ``make`` returns for all items, one by one, ``depth`` items ahead.

    How many pieces of work were started depends only on how many results were asked for. Closing
    the iterator waits for what has started, unless another thread than the consumer's closes it:
    the garbage collector may find a dropped iterator on the very thread that works for it.
    """
    pending: deque[Callable[[], list[T]]] = deque()
    consumer = threading.current_thread()
    try:
        for item in items:
            work = functools.partial(_in_mode, torch.is_grad_enabled(), make, item)
            pending.append(executor.start(work))
            del work
            if len(pending) > depth:
                yield from drain(pending.popleft()())
        while pending:
            yield from drain(pending.popleft()())
    finally:
        executor.close(wait=threading.current_thread() is consumer)


def drain(made: list[T]) -> Iterator[T]:
    """Hands over a list's entries one by one and keeps none.

    So their memory returns when the user is done with them.
    """
    made.reverse()
    while made:
        yield made.pop()


def _in_mode(wants_grad: bool, make: Callable[[Item], T], item: Item) -> T:
    """Works in the consumer's gradient mode.

    A thread has a mode of its own, which begins as enabled.
    """
    with torch.set_grad_enabled(wants_grad):
        return make(item)
