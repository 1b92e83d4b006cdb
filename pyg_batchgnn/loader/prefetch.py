"""Preparing macrobatches ahead, beside what the user does with the current one."""

from __future__ import annotations

import atexit
import functools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import torch

from pyg_batchgnn.comm import SerialExecutor

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
        return self._thread.start(functools.partial(self._work, work)).wait

    def close(self, wait: bool) -> None:
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
            work = functools.partial(in_mode, torch.is_grad_enabled(), make, item)
            pending.append(executor.start(work))
            del work
            if len(pending) > depth:
                yield from drain(pending.popleft()())
        while pending:
            yield from drain(pending.popleft()())
    finally:
        executor.close(wait=threading.current_thread() is consumer)


def drain(made: list[T]) -> Iterator[T]:
    """Hands over a list's entries one by one and keeps none. So their memory returns when the user
    is done with them."""
    made.reverse()
    while made:
        yield made.pop()


def in_mode(wants_grad: bool, make: Callable[[Item], T], item: Item) -> T:
    """Works in the consumer's gradient mode, since each thread has a mode of its own."""
    with torch.set_grad_enabled(wants_grad):
        return make(item)


#: The largest macrobatch that "auto" stands for in one process: its threads have enough to share.
MAX_AUTO = 32


class World:
    """The processes that make a loader's macrobatches together: here this one, alone."""

    size: int = 1  # the number of processes
    #: True if making a macrobatch takes all processes, which then have to do everything in the same
    #: order
    collective: bool = False

    def agree(self, arguments: Callable[[], Mapping[str, Any]]) -> None:
        """Raises AgreementError unless the arguments are the same everywhere."""

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all processes, by rank."""
        return [value]

    def seed(self, given: int | None) -> int:
        """Returns the given seed, or one that is drawn and is the same everywhere."""
        return drawn_seed() if given is None else given

    def max_macrobatch(self, steps: int | None) -> int:  # noqa: ARG002
        """Returns the largest macrobatch that "auto" stands for, in an epoch of ``steps`` steps."""
        return MAX_AUTO

    def now(self, work: Callable[[], T]) -> T:
        """Does a piece of work after all that was started before."""
        return work()

    def executor(self) -> Executor:
        """Makes what prepares macrobatches ahead, for one iterator."""
        return ThreadExecutor()


def drawn_seed() -> int:
    """Draws a seed from torch's default generator."""
    return int(torch.empty((), dtype=torch.int64).random_())
