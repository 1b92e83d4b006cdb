"""Worker processes that neither a Ctrl-C nor the death of one can leave in a state in which closing
them never ends.

A terminal sends Ctrl-C to all processes of its group, at any moment. If it comes while one of them
holds a lock of a queue or of an event, the lock may stay taken, and whoever waits for it next waits
for ever. Therefore workers ignore Ctrl-C, and the main process, which ends them, holds it back for
as long as it puts something into a queue.
"""

from __future__ import annotations

import ctypes
import functools
import multiprocessing.queues
import signal
from collections.abc import Callable
from multiprocessing.context import BaseContext
from typing import Any

import torch

from pyg_batchgnn.comm import interrupts_held_back


class _Queue(multiprocessing.queues.Queue):
    """A queue whose lock an interrupted `put` does not leave taken."""

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        with interrupts_held_back():
            super().put(obj, block, timeout)


class _Event:
    """An event in shared memory, without a lock. It can be set and looked at, not waited for.

    An event of `multiprocessing` has a lock, which torch's workers take whenever they look at it. A
    worker that is killed at that moment keeps the lock, and ending the workers never ends.
    """

    def __init__(self, context: BaseContext) -> None:
        self._flag = context.RawValue(ctypes.c_bool, False)

    def set(self) -> None:
        self._flag.value = True

    def is_set(self) -> bool:
        return bool(self._flag.value)


class WorkerContext(BaseContext):
    """A context of `multiprocessing` whose queues can be interrupted, and whose events no killed
    process can block.

    Args:
        context: the context that starts processes; None: torch's default one.
    """

    def __init__(self, context: BaseContext | None) -> None:
        self._context: Any = context or torch.multiprocessing.get_context()
        self.Process = self._context.Process  # type: ignore[attr-defined]

    def get_context(self, method: str | None = None) -> Any:
        return self._context.get_context(method)

    def Queue(self, maxsize: int = 0) -> _Queue:  # noqa: N802  (the name in multiprocessing)
        return _Queue(maxsize, ctx=self.get_context())

    def Event(self) -> _Event:  # type: ignore[override]  # noqa: N802
        return _Event(self.get_context())


def ignoring_interrupts(init: Callable[[int], None] | None) -> Callable[[int], None]:
    """Returns a `worker_init_fn` that makes a worker ignore Ctrl-C and then calls `init`."""
    return functools.partial(_ignore_interrupts, init)


def _ignore_interrupts(init: Callable[[int], None] | None, worker: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if init is not None:
        init(worker)
