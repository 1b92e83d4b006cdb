"""A queue of bounded depth: an iterator that works on a thread of its own, beside its consumer."""

from __future__ import annotations

import atexit
import queue
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any, Generic, TypeAlias, TypeVar

import torch

from pyg_batchgnn.comm import interrupts_held_back

T = TypeVar("T")

#: What a consumer finds after the last result.
_END = object()


#: Seconds after which a thread that waits looks whether anybody still wants its work.
_LOOK = 0.2

#: Tells whether the consumer still wants items.
IsWanted: TypeAlias = Callable[[], bool]


def beside(
    make: Callable[[IsWanted], Iterator[T]], depth: int, name: str = "macrobatch"
) -> Generator[T, None, None]:
    """Yields what an iterator yields, which is made on a thread at most ``depth`` items ahead.

    The order is kept. An exception of the iterator is raised where its item would have come.
    Closing ends the thread after the item that it is at, closes the iterator on that thread and
    drops what was made. It waits for that, unless another thread than the consumer's closes it: the
    garbage collector may find a dropped iterator on the very thread that works for it.

    Args:
        make: makes the iterator, on the thread. An iterator that waits for something must look
            whether it is still wanted.
        name: that of the thread.
    """
    consumer, living = threading.current_thread(), _Living()
    worker = _Worker(make, depth, torch.is_grad_enabled(), weakref.ref(living))
    try:
        worker.start(name)
        while True:
            made = worker.ready.get()
            if made is _END:
                return
            if isinstance(made, _Failure):
                try:
                    raise made.error
                finally:
                    del made  # or the error's traceback would keep the error alive
            worker.room.put(True)
            only = [made]
            del made
            yield only.pop()  # the consumer alone holds a batch
    finally:
        worker.close(wait=threading.current_thread() is consumer)


def waiting(asked: queue.SimpleQueue[T | None], is_wanted: IsWanted) -> Iterator[T]:
    """Yields what is put into a queue, until that is None or nobody wants it any more."""
    while is_wanted():
        try:
            found = asked.get(timeout=_LOOK)
        except queue.Empty:
            continue
        if found is None:
            return
        yield found


class _Living:
    """An object that the consumer's frame alone holds. A Ctrl-C may come before the consumer has
    said that it ends. Its frame is gone then."""


class _Failure:
    """An exception of the iterator, on its way to the consumer."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Worker(Generic[T]):
    """The thread of a queue.

    Nothing here takes a `threading.Condition`: a Ctrl-C at the wrong moment would leave its lock
    taken, and the other side would wait for ever.

    Attributes:
        ready: what was made, in order.
        room: an entry for each item that may be made.
    """

    def __init__(
        self,
        make: Callable[[IsWanted], Iterator[T]],
        depth: int,
        wants_grad: bool,
        living: weakref.ref[_Living],
    ) -> None:
        self.ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.room: queue.SimpleQueue[bool] = queue.SimpleQueue()
        for _ in range(depth):
            self.room.put(True)
        self._make: Callable[[IsWanted], Iterator[T]] | None = make
        self._wants_grad, self._living = wants_grad, living
        self._closed = False
        self._thread: threading.Thread | None = None

    def is_wanted(self) -> bool:
        return not self._closed and self._living() is not None

    def start(self, name: str) -> None:
        with interrupts_held_back():
            self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
            _OPEN.add(self)
            self._thread.start()

    def close(self, wait: bool) -> None:
        self._closed = True
        self.room.put(False)
        thread = self._thread
        if wait and thread is not None and thread is not threading.current_thread():
            thread.join()
        while not self.ready.empty():  # what was made holds memory
            self.ready.get()

    def _serve(self) -> None:
        make, self._make = self._make, None
        assert make is not None
        last: Any = _END
        try:
            with torch.set_grad_enabled(self._wants_grad):
                items = make(self.is_wanted)
                try:
                    self._work(items)
                finally:
                    if hasattr(items, "close"):
                        items.close()
                    del items
        except BaseException as error:
            last = _Failure(error)
        finally:
            self.ready.put(last)
            del last, make  # or the error's traceback would keep both alive
            _OPEN.discard(self)

    def _work(self, items: Iterator[T]) -> None:
        while self._has_room():
            try:
                made = next(items)
            except StopIteration:
                return
            self.ready.put(made)
            del made

    def _has_room(self) -> bool:
        """Waits until another item may be made. Returns False if none is wanted."""
        while self.is_wanted():
            try:
                return self.room.get(timeout=_LOOK) and self.is_wanted()
            except queue.Empty:
                continue
        return False


#: Queues that are in use. Their threads must end before the interpreter does.
_OPEN: weakref.WeakSet[_Worker[Any]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for worker in list(_OPEN):
        worker.close(wait=True)
