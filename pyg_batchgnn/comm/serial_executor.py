"""One task at a time, in the order of asking: on the calling thread or on one of the executor."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Generic, TypeVar

from pyg_batchgnn.comm.diagnosis import BrokenCommunicatorError

T = TypeVar("T")


class Handle(Generic[T]):
    """The result of a task that was started. It uses no `threading.Condition`, as `threading.Event`
    and `concurrent.futures` do: a Ctrl-C at the wrong moment would leave its lock taken, and the
    executor would wait for ever."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._ended = False
        self._running = threading.Lock()
        self._running.acquire()  # released at the end
        self._value: list[T] = []
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Returns whether `wait` would return or raise at once."""
        return self._ended

    def wait(self) -> T:
        """Waits for the end of the task. Returns its result or raises its error at every call."""
        while not self._ended:
            # In slices: a waiter that was interrupted here may never release the lock.
            if self._running.acquire(timeout=0.1):
                self._running.release()
        if self._error is None:
            return self._value[0]
        try:
            raise self._error
        finally:
            del self  # or the error's traceback would keep the error alive

    def run(self) -> None:
        """Runs the task; the executor calls it once."""
        try:
            self._value.append(self._work())
        except BaseException as error:
            self._error = error
        finally:
            self._end()

    def refuse(self, error: BaseException) -> None:
        """Ends the task with an error, instead of `run`."""
        self._error = error
        self._end()

    def _end(self) -> None:
        del self._work  # it may hold large tensors
        self._ended = True
        self._running.release()


class SerialExecutor:
    """Runs tasks one after the other, in the order of the calls. The thread starts with the first
    asynchronous task. Calls from two threads at once have no order and are an error. ``name``: of
    the owner, for messages and the thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._busy = threading.Lock()
        self._queue: queue.SimpleQueue[Handle | None] = queue.SimpleQueue()
        self._stopped = False
        # The thread counts without a lock: the garbage collector may call `stop` on it at any time.
        self._started = self._served = 0
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def __str__(self) -> str:
        return self._name

    def run(self, work: Callable[[], T]) -> T:
        """Runs a task on the calling thread, after the tasks that were started before."""
        if self._pending:
            return self.start(work).wait()
        if not self._busy.acquire(blocking=False):
            if self._pending:
                return self.start(work).wait()
            raise RuntimeError(
                f"{self._name} is used by two threads at once; exchanges would be in another order "
                "on another rank: give each thread a communicator of its own"
            )
        try:
            return work()
        finally:
            self._busy.release()

    def start(self, work: Callable[[], T]) -> Handle[T]:
        """Starts a task on the executor's thread and returns at once. After `stop` the handle
        raises BrokenCommunicatorError."""
        handle = Handle(work)
        with self._starting:
            if self._stopped:
                text = f"{self._name} was closed: nothing can be started any more"
                handle.refuse(BrokenCommunicatorError(text))
                return handle
            self._started += 1
            if self._thread is None:
                with interrupts_held_back():
                    thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                    thread.start()  # raises where the system has no more threads
                    self._thread = thread
            self._queue.put(handle)
        return handle

    def stop(self, seconds: float | None) -> bool:
        """Ends the thread after the tasks that were started; returns whether it ended within
        ``seconds``, None for no limit."""
        with self._starting:
            if not self._stopped:
                self._stopped = True
                self._queue.put(None)
        if self._thread is None:
            return True
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def _pending(self) -> bool:
        return self._started != self._served

    def _serve(self) -> None:
        while (handle := self._queue.get()) is not None:
            with self._busy:
                handle.run()
            self._served += 1
            del handle


@contextlib.contextmanager
def interrupts_held_back() -> Iterator[None]:
    """A context that delays a Ctrl-C to its end. The block must be short. It is for
    `threading.Thread.start`, which waits on a condition: an interrupt in the middle leaves its lock
    taken, and the new thread waits for ever."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield  # signals are handled on the main thread alone
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if came:
            previous(*came[0])
