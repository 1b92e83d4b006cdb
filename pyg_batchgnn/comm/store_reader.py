"""Questions to torch's key-value store that may never be answered."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from torch._C._distributed_c10d import Store

T = TypeVar("T")


class StoreReader:
    """Asks the store without waiting longer than told. Threads may ask at the same time: a channel
    that diagnoses a failure reads the boards of the process's other channels.

    A question that is not answered in time keeps its thread and the connection. Until it is
    answered, later questions return None at once.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asking = threading.Lock()
        self._pending: threading.Thread | None = None

    def ask(self, question: Callable[[Store], T], seconds: float) -> T | None:
        """Returns the answer, or None where none came within `seconds`, other threads' questions
        included."""
        started = time.monotonic()
        if not self._asking.acquire(timeout=seconds):
            return None
        try:
            return self._ask(question, max(0.0, seconds - (time.monotonic() - started)))
        finally:
            self._asking.release()

    def _ask(self, question: Callable[[Store], T], seconds: float) -> T | None:
        if self._pending is not None and self._pending.is_alive():
            return None
        answers: list[T] = []

        def run() -> None:
            with contextlib.suppress(RuntimeError):  # the store is gone: no answer
                answers.append(question(self._store))

        self._pending = threading.Thread(target=run, name="comm status", daemon=True)
        self._pending.start()
        self._pending.join(seconds)
        return answers[0] if answers else None
