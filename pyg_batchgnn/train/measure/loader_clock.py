"""The loader's share of a run's time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TypeVar

from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.measure.phases import Phase, PhaseClock

T = TypeVar("T")


class LoaderClock:
    """Splits the time spent in a loader by the loader's own account.

    Args:
        loader: whose `stats` are read.
        ahead: whether it works beside training; its account is then no part of the time spent waiting for it.
    """

    def __init__(self, loader: MacrobatchNeighborLoader, ahead: bool) -> None:
        self._loader = loader
        self._ahead = ahead
        self._waited = 0.0
        self._charged = self._account()

    def timed(self, batches: Iterator[T]) -> Iterator[T]:
        """The same iterator, its time measured."""
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
        """Put what was measured since the last call on `clock`."""
        account = self._account()
        inside = 0.0
        for phase, seconds in account.items():
            clock.add(phase, seconds - self._charged[phase])
            inside += seconds - self._charged[phase]
        clock.add(Phase.WAIT, self._waited if self._ahead else max(0.0, self._waited - inside))
        self._charged, self._waited = account, 0.0

    def _account(self) -> dict[Phase, float]:
        total = self._loader.stats().total
        return {
            Phase.SAMPLE: total.sample_seconds,
            Phase.FETCH: total.fetch_seconds,
            Phase.EXPORT: total.export_seconds,
        }
