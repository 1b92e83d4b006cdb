"""The progress of a run, and its time by phase."""

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
    """The phases of a step, in order, with labels to show. The loader measures the first three;
    with prefetching they overlap with training."""

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
    """Adds up the wall seconds of each phase. ``seconds``: initial values by name."""

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
    """One rank's part of a step: sums over its minibatch, and seconds of computing."""

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
        """Returns the epoch's imbalance: the largest value of a rank over the mean of all ranks."""
        if ranks == 1:
            return {}
        shares = {"edges": (self.most_edges, self.edges), "seconds": (self.most_seconds, self.seconds)}
        return {name: ranks * most / total if total else 1.0 for name, (most, total) in shares.items()}


def spread_over_ranks(clock: PhaseClock, ranks: Ranks) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Returns each phase's mean seconds over ranks, and range if there are several; collective."""
    seconds = clock.to_dict()
    table = ranks.table(list(seconds.values()))
    mean = dict(zip(seconds, table.mean(dim=0).tolist(), strict=True))
    ends = torch.stack([table.amin(dim=0), table.amax(dim=0)], dim=1).tolist()
    return mean, {} if ranks.is_alone else dict(zip(seconds, ends, strict=True))


#: The figures of reading features and edges from files, by their names in metrics.jsonl, and the
#: statistics of a loader that they are.
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
    """The training loader's seconds per phase and bytes from files, from its statistics. With
    prefetching, training only spends the seconds that it waits for the loader."""

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
        """Returns `DISK_FIGURES` since the last call over all ranks, empty without; collective."""
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
