"""The time that a run spends in its loader, by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TypeVar

from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.measure.phases import Phase, PhaseClock

T = TypeVar("T")


class LoaderClock:
    """Splits the time that training spends in a loader, by the loader's own statistics.

    Args:
        loader: its `stats` are read.
        prefetches: True if the loader works during training. The time that it works is then no part
            of the time that training waits for it.
    """

    def __init__(self, loader: MacrobatchNeighborLoader, prefetches: bool) -> None:
        self._loader = loader
        self._prefetches = prefetches
        self._waited = 0.0
        self._charged = self._account()

    def timed(self, batches: Iterator[T]) -> Iterator[T]:
        """Yields what `batches` yields, and measures the time that it takes."""
        while True:
            begin = time.perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                return
            finally:
                self._waited += time.perf_counter() - begin
            yield batch

    def charge(self, clock: PhaseClock) -> None:
        """Adds what was measured since the last call to `clock`."""
        account = self._account()
        inside = 0.0
        for phase, seconds in account.items():
            clock.add(phase, seconds - self._charged[phase])
            inside += seconds - self._charged[phase]
        clock.add(Phase.WAIT, self._waited if self._prefetches else max(0.0, self._waited - inside))
        self._charged, self._waited = account, 0.0

    def _account(self) -> dict[Phase, float]:
        total = self._loader.stats().total
        return {
            Phase.SAMPLE: total.sample_seconds,
            Phase.FETCH: total.fetch_seconds,
            Phase.EXPORT: total.export_seconds,
        }
