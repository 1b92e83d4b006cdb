"""The progress of a run, and its seconds by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.train.ranks import Ranks


class Phase(str, Enum):
    """The phases of a step, in their order, each with a label for people. The loader measures the
    first three. With prefetching they run beside training."""

    label: str

    def __new__(cls, value: str, label: str) -> Phase:
        one = str.__new__(cls, value)
        one._value_, one.label = value, label
        return one

    SAMPLE = "sample", "sampling"
    FETCH = "fetch", "fetching features"
    EXPORT = "export", "exporting minibatches"
    WAIT = "wait", "waiting for the loader"
    FORWARD = "forward", "forward"
    BACKWARD = "backward", "backward"
    EXCHANGE = "exchange", "summing over ranks"
    OPTIMISER = "optimiser", "optimiser"
    EVALUATION = "evaluation", "evaluation"
    CHECKPOINT = "checkpoint", "checkpoints"


class PhaseClock(dict[Phase, float]):
    """Wall seconds by phase, added up. ``seconds``: what to begin with, by phase name."""

    def __init__(self, seconds: Mapping[str, float] | None = None) -> None:
        super().__init__(dict.fromkeys(Phase, 0.0))
        self.update({Phase[name.upper()]: float(value) for name, value in (seconds or {}).items()})

    @contextmanager
    def measure(self, phase: Phase) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self[phase] += time.perf_counter() - begin

    def work(self) -> float:
        return sum(self[phase] for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMISER))

    def to_dict(self) -> dict[str, float]:
        return {phase.value: seconds for phase, seconds in self.items()}


class StepFigures(NamedTuple):
    """One rank's figures of a step: sums over its minibatch."""

    minibatches: float  # 0 if it had no seeds, else 1
    seeds: float  # the number of seeds
    weight: float  # the sum of the seeds' weights in the loss
    loss: float  # the sum of the weighted losses
    score: float  # numerator of the metric
    score_of: float  # denominator of the metric
    nodes: float  # sampled nodes
    edges: float  # sampled edges
    seconds: float  # seconds of forward, backward and optimiser


@dataclass
class RunProgress:
    """How far a run is. Sums are over the current epoch's steps so far, and over all ranks."""

    epoch: int = 0  # finished epochs, evaluation included
    step: int = 0  # finished steps of the current epoch. A step has one minibatch per rank
    minibatches: int = 0  # minibatches with seeds
    weight: float = 0.0  # sum of the seeds' weights; their number without class weights
    loss: float = 0.0  # sum of the seeds' weighted losses
    score: float = 0.0  # numerator of the metric on training minibatches
    score_of: float = 0.0  # denominator of that metric
    seeds: int = 0  # the number of seeds
    nodes: int = 0  # sampled nodes
    edges: int = 0  # sampled edges
    seconds: float = 0.0  # seconds of forward, backward and optimiser
    most_edges: int = 0  # sum over steps of the most edges that a rank had
    most_seconds: float = 0.0  # sum over steps of the most seconds that a rank took
    epoch_seconds: float = 0.0  # wall time of the current epoch
    elapsed_seconds: float = 0.0  # wall time of the finished epochs
    best_epoch: int = 0  # the epoch with the best validation, from 1; 0 before the first
    best: dict[str, float] | None = None  # loss and metrics of the best validation, or None
    validations_since_best: int = 0  # validations after the best one, none of which was better

    @property
    def mean_loss(self) -> float:
        return self.loss / self.weight

    @property
    def train_score(self) -> float:
        return self.score / self.score_of if self.score_of else 0.0

    def add(self, figures: Tensor) -> None:
        """Adds a step. ``figures``: [R, 9] float64, the `StepFigures` of each rank."""
        sums, most = (StepFigures(*row.tolist()) for row in (figures.sum(dim=0), figures.amax(dim=0)))
        self.step += 1
        for name, value in sums._asdict().items():
            before = getattr(self, name)
            setattr(self, name, before + type(before)(value))
        self.most_edges += int(most.edges)
        self.most_seconds += most.seconds

    def imbalance(self, ranks: int) -> dict[str, float]:
        """Returns, for "edges" and "seconds", the most of a rank in each step over the mean of all
        ``ranks``: 1.0 is even. Empty with one rank."""
        if ranks == 1:
            return {}
        shares = {"edges": (self.most_edges, self.edges), "seconds": (self.most_seconds, self.seconds)}
        return {name: ranks * most / total if total else 1.0 for name, (most, total) in shares.items()}


def spread_over_ranks(clock: PhaseClock, ranks: Ranks) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Returns seconds by phase, the mean over ranks, and [least, most] of the ranks by phase, which
    is empty with one rank; collective."""
    seconds = clock.to_dict()
    table = ranks.table(list(seconds.values()))
    mean = dict(zip(seconds, table.mean(dim=0).tolist(), strict=True))
    ends = torch.stack([table.amin(dim=0), table.amax(dim=0)], dim=1).tolist()
    return mean, {} if ranks.is_alone else dict(zip(seconds, ends, strict=True))


#: Figures of reading features and edges from files: names in metrics.jsonl, and the attributes of
#: the loader's statistics that they come from.
DISK_FIGURES = {
    "bytes": "disk_bytes",
    "useful_bytes": "disk_useful",
    "rows": "disk_rows",
    "needed_rows": "disk_hits",
    "operations": "disk_operations",
    "reading_seconds": "disk_seconds",
    "ahead_seconds": "ahead_seconds",
    "edges": "topology_edges",
    "edge_bytes": "topology_bytes",
    "edge_operations": "topology_operations",
    "edge_reading_seconds": "topology_seconds",
}
T = TypeVar("T")


class LoaderAccount:
    """The seconds that training spends in its loader, and what the loader reads from files, by the
    loader's own statistics. If it prefetches, training only waits for it."""

    def __init__(self, loader: MacrobatchNeighborLoader, prefetches: bool) -> None:
        self._loader, self._prefetches = loader, prefetches
        self._waited = 0.0
        self._charged, self._read = self._seconds(), self._figures()

    def timed(self, batches: Iterator[T]) -> Iterator[T]:
        begin = time.perf_counter()
        for batch in batches:
            self._waited += time.perf_counter() - begin
            yield batch
            begin = time.perf_counter()
        self._waited += time.perf_counter() - begin

    def charge(self, clock: PhaseClock) -> None:
        now, inside = self._seconds(), 0.0
        for phase, seconds in now.items():
            clock[phase] += seconds - self._charged[phase]
            inside += seconds - self._charged[phase]
        clock[Phase.WAIT] += self._waited if self._prefetches else max(0.0, self._waited - inside)
        self._charged, self._waited = now, 0.0

    def read_since_last(self, ranks: Ranks) -> dict[str, float]:
        """Returns what all ranks read since the last call, by the names of `DISK_FIGURES`; empty if
        nothing was read. Collective."""
        before, self._read = self._read, self._figures()
        own = [now - then for now, then in zip(self._read, before, strict=True)]
        found = dict(zip(DISK_FIGURES, ranks.table(own).sum(dim=0).tolist(), strict=True))
        return found if found["bytes"] or found["edge_bytes"] else {}

    def _seconds(self) -> dict[Phase, float]:
        total = self._loader.stats().total
        times = total.sample_seconds, total.fetch_seconds, total.export_seconds
        return dict(zip((Phase.SAMPLE, Phase.FETCH, Phase.EXPORT), times, strict=True))

    def _figures(self) -> list[float]:
        total = self._loader.stats().total
        return [getattr(total, name) for name in DISK_FIGURES.values()]
