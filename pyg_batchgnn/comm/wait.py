"""Waiting for a collective: interruptible, bounded in time, with a check of the peers."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

_SLICE = timedelta(milliseconds=100)

#: The most seconds that one slice counts. When the whole job was stopped for a while (suspended by
#: a batch system, or SIGSTOP to all ranks), the time in between must not count against a peer.
_LONGEST = 1.0


class TransportError(RuntimeError):
    """A collective failed. The text is the backend's."""


class TransportTimeout(RuntimeError):  # noqa: N818
    """A collective did not end in time."""


class Work(Protocol):
    """The part of torch's ``Work`` that is used."""

    def wait(self, timeout: timedelta = ...) -> bool: ...
    def is_completed(self) -> bool: ...


def wait_for(work: Work, timeout: float, check: Callable[[float], None]) -> None:
    """Waits until a collective has ended.

    The wait is cut into slices, so that Ctrl-C takes effect between them. A wait inside torch would
    delay it to the end of the collective. (A backend whose ``wait`` ignores its timeout cannot be
    interrupted, and is bounded by the process group's own timeout.)

    Args:
        work: what an asynchronous collective returned.
        timeout: seconds that it may take.
        check: called after every slice with the seconds waited. It may raise.

    Raises:
        TransportError: the backend reports a failure.
        TransportTimeout: the collective has not ended in time.
    """
    waited, last = 0.0, time.monotonic()
    while True:
        try:
            work.wait(_SLICE)
        except RuntimeError as error:
            if work.is_completed():
                _raise_failure(work, error)
                return
        else:
            return
        now = time.monotonic()
        waited, last = waited + min(now - last, _LONGEST), now
        check(waited)
        if waited >= timeout:
            raise TransportTimeout(f"not ended after {waited:.1f} s")


def _raise_failure(work: Work, error: RuntimeError) -> None:
    """Raises the failure of a collective that has ended. It may also have succeeded, between the
    end of a slice and the look at it."""
    try:
        work.wait()
    except RuntimeError as final:
        raise TransportError(str(final)) from error
