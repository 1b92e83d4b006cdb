"""Waiting for a collective: interruptible, no longer than told, and watchful."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

_SLICE = timedelta(milliseconds=100)

#: What one slice counts at most, in seconds: when the whole job was stopped for a while (a batch system's
#: suspension, SIGSTOP to all), the time in between is nobody's fault.
_LONGEST = 1.0


class TransportError(RuntimeError):
    """A collective failed; the text is the backend's."""


class TransportTimeout(RuntimeError):  # noqa: N818
    """A collective did not end within the time it had."""


class Work(Protocol):
    """The part of torch's ``Work`` that is used."""

    def wait(self, timeout: timedelta = ...) -> bool: ...
    def is_completed(self) -> bool: ...


def wait_for(work: Work, patience: float, watch: Callable[[float], None]) -> None:
    """Waits until a collective has ended.

    The wait is cut into slices, so that Ctrl-C is heard, which a wait inside torch would put off to its end.
    (Backends whose ``wait`` knows no timeout lose that, and are bounded by the group's own timeout.)

    Args:
        work: what an asynchronous collective returned.
        patience: seconds that it may take.
        watch: called after every slice with the seconds waited; may raise what it finds.

    Raises:
        TransportError: the backend reports a failure.
        TransportTimeout: it has not ended in time.
    """
    waited, looked = 0.0, time.monotonic()
    while True:
        try:
            work.wait(_SLICE)
        except RuntimeError as error:
            if work.is_completed():
                _outcome(work, error)
                return
        else:
            return
        now = time.monotonic()
        waited, looked = waited + min(now - looked, _LONGEST), now
        watch(waited)
        if waited >= patience:
            raise TransportTimeout(f"not ended after {waited:.1f} s")


def _outcome(work: Work, error: RuntimeError) -> None:
    """Of a collective that has ended, perhaps between the end of a slice and our looking."""
    try:
        work.wait()
    except RuntimeError as final:
        raise TransportError(str(final)) from error
