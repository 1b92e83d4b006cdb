"""The phases of a run, and a clock that adds up their time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum


class Phase(str, Enum):
    """The phases of a step, in their order.

    The loader measures the first three. With prefetching they run during training.
    """

    SAMPLE = "sample"
    FETCH = "fetch"
    EXPORT = "export"
    WAIT = "wait"
    FORWARD = "forward"
    BACKWARD = "backward"
    EXCHANGE = "exchange"
    OPTIMISER = "optimiser"
    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"


PHASE_LABELS: Mapping[Phase, str] = {
    Phase.SAMPLE: "sampling",
    Phase.FETCH: "fetching features",
    Phase.EXPORT: "exporting minibatches",
    Phase.WAIT: "waiting for the loader",
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.EXCHANGE: "summing over ranks",
    Phase.OPTIMISER: "optimiser",
    Phase.EVALUATION: "evaluation",
    Phase.CHECKPOINT: "checkpoints",
}


class PhaseClock:
    """The wall seconds of each phase, added up."""

    def __init__(self, seconds: Mapping[str, float] | None = None) -> None:
        self._seconds = dict.fromkeys(Phase, 0.0)
        for name, value in (seconds or {}).items():
            self._seconds[Phase(name)] = float(value)

    @contextmanager
    def measure(self, phase: Phase) -> Iterator[None]:
        """Adds the time of the block to `phase`."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[phase] += time.perf_counter() - begin

    def add(self, phase: Phase, seconds: float) -> None:
        """Adds time that was measured elsewhere."""
        self._seconds[phase] += seconds

    def move(self, source: Phase, target: Phase, seconds: float) -> None:
        """Moves time that was measured as one phase to another."""
        self._seconds[source] -= seconds
        self._seconds[target] += seconds

    def merge(self, other: PhaseClock) -> None:
        """Adds the times of another clock."""
        for phase, seconds in other._seconds.items():
            self._seconds[phase] += seconds

    def work(self) -> float:
        """Returns the seconds of computing: forward, backward and optimiser."""
        return sum(self._seconds[phase] for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMISER))

    def __getitem__(self, phase: Phase) -> float:
        return self._seconds[phase]

    def to_dict(self) -> dict[str, float]:
        """Returns the seconds by the phases' names."""
        return {phase.value: seconds for phase, seconds in self._seconds.items()}
