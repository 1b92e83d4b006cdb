"""The progress of a run, and its time by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar

from torch import Tensor

from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.ranks import Ranks


class Phase(str, Enum):
    """The phases of a step, in their order. The loader measures the first three."""

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


class StepFigures(NamedTuple):
    """One rank's part of a step: sums over its minibatch, and the seconds of computing."""

    minibatches: float  # 0 if it was empty, else 1
    seeds: float
    weight: float
    loss: float
    score: float
    score_of: float
    nodes: float
    edges: float
    seconds: float


@dataclass
class RunProgress:
    """The progress of a run. Sums are over the steps of the current epoch and all ranks."""

    epoch: int = 0  # number of finished epochs, evaluation included
    step: int = 0  # number of finished steps of the current epoch. A step has one minibatch per rank.
    minibatches: int = 0  # number of minibatches that were not empty
    weight: float = 0.0  # sum of the weights of the seed nodes; their number if all weigh the same
    loss: float = 0.0  # sum of the weighed loss of each seed node
    score: float = 0.0  # numerator of the task's metric on training minibatches
    score_of: float = 0.0  # its denominator
    seeds: int = 0  # number of seed nodes
    nodes: int = 0  # number of sampled nodes
    edges: int = 0  # number of sampled edges
    seconds: float = 0.0  # sum of the seconds of computing
    most_edges: int = 0  # sum of the edges of the rank that had most in a step
    most_seconds: float = 0.0  # sum of the seconds of the rank that computed longest in a step
    epoch_seconds: float = 0.0  # wall time of the current epoch
    elapsed_seconds: float = 0.0  # wall time of the finished epochs
    best_epoch: int = 0  # the epoch with the best validation so far, counted from 1; 0 before the first
    #: that validation's loss and metrics by their names; None before the first
    best: dict[str, float] | None = None
    validations_since_best: int = 0  # number of validations after it, none of which was better

    @property
    def mean_loss(self) -> float:
        """The mean loss of the epoch's training nodes so far."""
        return self.loss / self.weight

    @property
    def train_score(self) -> float:
        """The task's metric on the epoch's training minibatches so far."""
        return self.score / self.score_of if self.score_of else 0.0

    def add(self, figures: Tensor) -> None:
        """Adds a step. ``figures``: [R, 9] float64, the `StepFigures` of every rank."""
        sums, most = figures.sum(dim=0).tolist(), figures.amax(dim=0).tolist()
        step, most_of = StepFigures(*sums), StepFigures(*most)
        self.step += 1
        self.minibatches += int(step.minibatches)
        self.seeds += int(step.seeds)
        self.loss += step.loss
        self.weight += step.weight
        self.score += step.score
        self.score_of += step.score_of
        self.nodes += int(step.nodes)
        self.edges += int(step.edges)
        self.seconds += step.seconds
        self.most_edges += int(most_of.edges)
        self.most_seconds += most_of.seconds

    def imbalance(self, ranks: int) -> dict[str, float]:
        """Returns the imbalance of the epoch: the rank with most over the mean of all ranks."""
        if ranks == 1:
            return {}
        return {
            "edges": ranks * self.most_edges / self.edges if self.edges else 1.0,
            "seconds": ranks * self.most_seconds / self.seconds if self.seconds else 1.0,
        }

    def next_epoch(self) -> None:
        """Finishes the current epoch. Its sums start again at zero."""
        self.epoch += 1
        self.elapsed_seconds += self.epoch_seconds
        self.step = self.minibatches = self.seeds = self.nodes = self.edges = 0
        self.weight = self.loss = self.score = self.score_of = 0.0
        self.seconds = self.most_seconds = self.epoch_seconds = 0.0
        self.most_edges = 0


@dataclass(frozen=True)
class PhaseSpread:
    """The mean and the range of each phase's seconds over the ranks."""

    mean: dict[str, float]  # seconds of each phase by its name, the mean over ranks
    ranks: int  # the number of ranks
    ranges: dict[str, list[float]]  # least and most seconds of a rank by phase; empty with one rank


def spread_over_ranks(clock: PhaseClock, ranks: Ranks) -> PhaseSpread:
    """Returns the spread of all ranks' clocks; collective."""
    seconds = clock.to_dict()
    table = ranks.table(list(seconds.values()))
    mean = dict(zip(seconds, table.mean(dim=0).tolist(), strict=True))
    if ranks.is_alone:
        return PhaseSpread(mean, 1, {})
    least, most = table.amin(dim=0).tolist(), table.amax(dim=0).tolist()
    ranges = {name: list(ends) for name, *ends in zip(seconds, least, most, strict=True)}
    return PhaseSpread(mean, ranks.size, ranges)


class DiskFigure(str, Enum):
    """The figures of reading features and edges from files."""

    BYTES = "bytes"
    USEFUL = "useful_bytes"
    ROWS = "rows"
    NEEDED = "needed_rows"
    OPERATIONS = "operations"
    READING = "reading_seconds"
    AHEAD = "ahead_seconds"
    EDGES = "edges"
    EDGE_BYTES = "edge_bytes"
    EDGE_OPERATIONS = "edge_operations"
    EDGE_READING = "edge_reading_seconds"


class DiskAccount:
    """An account of what a loader reads from files, epoch by epoch."""

    def __init__(self, loader: MacrobatchNeighborLoader) -> None:
        self._loader = loader
        self._before = self._total()

    def since_last(self, ranks: Ranks) -> dict[str, float]:
        """Returns what was read since the last call; collective."""
        total = self._total()
        own = [now - before for now, before in zip(total, self._before, strict=True)]
        self._before = total
        sums = ranks.table(own).sum(dim=0).tolist()
        found = {figure.value: value for figure, value in zip(DiskFigure, sums, strict=True)}
        return found if found[DiskFigure.BYTES.value] or found[DiskFigure.EDGE_BYTES.value] else {}

    def _total(self) -> list[float]:
        total = self._loader.stats().total
        return [
            total.disk_bytes,
            total.disk_useful,
            total.disk_rows,
            total.disk_hits,
            total.disk_operations,
            total.disk_seconds,
            total.ahead_seconds,
            total.topology_edges,
            total.topology_bytes,
            total.topology_operations,
            total.topology_seconds,
        ]


T = TypeVar("T")


class LoaderClock:
    """Splits the time that training spends in a loader, by the loader's own statistics. The time
    that it works is then no part of the time that training waits for it."""

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
