"""Limits of waits in tests: what takes longer fails, and the children that it waited for end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable

SECONDS = 60.0
_PAUSE = 0.01


def wait_until(holds: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
    """Waits until a condition holds; fails if it does not in time."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(_PAUSE)


def join_all(threads: Iterable[threading.Thread], seconds: float = SECONDS) -> None:
    for thread in threads:
        thread.join(seconds)
        assert not thread.is_alive(), f"the thread {thread.name} still runs after {seconds} s"


def exit_code_of_child(pid: int, seconds: float = SECONDS) -> int:
    """Waits for a forked child to end and returns its exit code; kills it when time is over."""
    ended: list[int] = []

    def has_ended() -> bool:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            ended.append(status)
        return bool(found)

    try:
        wait_until(has_ended, f"the end of the child {pid}", seconds)
    finally:
        if not ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(ended[0])
