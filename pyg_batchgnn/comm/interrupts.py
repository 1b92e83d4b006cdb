"""Holding Ctrl-C back where it would break Python's own locks."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def interrupts_held_back() -> Iterator[None]:
    """A context at whose end a Ctrl-C that came inside takes effect.

    `threading.Thread.start` waits on a condition. An interrupt in the middle of that leaves its
    lock taken, and the new thread waits for it for ever. The block must be short.
    """
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
