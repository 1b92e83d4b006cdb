"""The number of threads that operators use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class _Setting(threading.local):
    """The setting of one thread of the program, such as a thread that prefetches."""

    count: int | None = None


_setting = _Setting()


def thread_count() -> int:
    """Returns the largest number of threads of an operator that this thread calls now.

    It is torch's number, or that of the innermost `thread_limit`.
    """
    return _setting.count or torch.get_num_threads()


@contextmanager
def thread_limit(count: int | None) -> Iterator[None]:
    """Lets operators that this thread calls in the block use at most `count` threads.

    None changes nothing, nor does a limit above that of a block around it.
    """
    before = _setting.count
    _setting.count = min(filter(None, (before, count)), default=None)
    try:
        yield
    finally:
        _setting.count = before
