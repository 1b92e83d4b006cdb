"""A queue of bounded depth: an iterator that works on a thread of its own, beside its consumer."""

from __future__ import annotations

import atexit
import queue
import threading
import weakref
from collections.abc import Generator, Iterator
from typing import Any, Generic, TypeVar

import torch

from pyg_batchgnn.comm import interrupts_held_back

T = TypeVar("T")

#: What a consumer finds after the last result.
_END = object()


def beside(items: Iterator[T], depth: int, name: str = "macrobatch") -> Generator[T, None, None]:
    """Yields what an iterator yields, which is made on a thread at most ``depth`` items ahead.

    The order is kept. An exception of the iterator is raised where its item would have come.
    Closing ends the thread after the item that it is at, closes the iterator on that thread and
    drops what was made. It waits for that, unless another thread than the consumer's closes it: the
    garbage collector may find a dropped iterator on the very thread that works for it.

    ``name``: that of the thread.
    """
    worker = _Worker(items, depth, torch.is_grad_enabled())
    del items  # the thread alone holds and closes it
    consumer = threading.current_thread()
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
            yield made
            del made  # the consumer alone holds a batch
    finally:
        worker.close(wait=threading.current_thread() is consumer)


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

    def __init__(self, items: Iterator[T], depth: int, wants_grad: bool) -> None:
        self.ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.room: queue.SimpleQueue[bool] = queue.SimpleQueue()
        for _ in range(depth):
            self.room.put(True)
        self._items: Iterator[T] | None = items
        self._wants_grad = wants_grad
        self._closed = False
        self._thread: threading.Thread | None = None

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
        items, self._items = self._items, None
        assert items is not None
        last: Any = _END
        try:
            with torch.set_grad_enabled(self._wants_grad):
                try:
                    self._make(items)
                finally:
                    if hasattr(items, "close"):
                        items.close()
        except BaseException as error:
            last = _Failure(error)
        finally:
            self.ready.put(last)
            del last, items  # or the error's traceback would keep both alive
            _OPEN.discard(self)

    def _make(self, items: Iterator[T]) -> None:
        while self.room.get() and not self._closed:
            try:
                made = next(items)
            except StopIteration:
                return
            self.ready.put(made)
            del made


#: Queues that are in use. Their threads must end before the interpreter does.
_OPEN: weakref.WeakSet[_Worker[Any]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for worker in list(_OPEN):
        worker.close(wait=True)
