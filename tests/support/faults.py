"""A process that stops for good, a clock that stops with the machine, and reports of errors."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

from pyg_batchgnn.comm import CommError


class AwakeClock:
    """The seconds since it was made, without those in which all tests were stopped."""

    def __init__(self) -> None:
        self.seconds = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        last = time.monotonic()
        while True:
            time.sleep(0.02)
            now = time.monotonic()
            self.seconds += min(now - last, 0.5)
            last = now


def stop_for_good() -> None:
    """Stops this process again and again, also after a signal that continues it."""
    while True:
        os.kill(os.getpid(), signal.SIGSTOP)


def told(error: CommError, clock: AwakeClock) -> dict[str, Any]:
    """The report of an error and of the seconds until it came, for a rank to return."""
    what = {"error": type(error).__name__, "text": str(error), "ranks": list(error.ranks)}
    return {**what, "seconds": clock.seconds}
