"""How far a run is, and the sums of the epoch that it is in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


class StepFigures(NamedTuple):
    """One rank's part of a step: sums over its minibatch, and the seconds that it computed for it."""

    minibatches: float  # 0 where it was empty
    seeds: float
    loss: float
    correct: float
    nodes: float
    edges: float
    seconds: float


@dataclass
class RunProgress:
    """How far a run is.

    Attributes:
        epoch: epochs that are finished, evaluation included.
        step: steps trained in the epoch that is not finished, one minibatch of every rank each.
        minibatches: those of all ranks that were not empty.
        loss, correct, seeds: sums over those minibatches (loss a node, right predictions, nodes).
        nodes, edges: sampled for them.
        seconds: spent on computing them.
        most_edges, most_seconds: of the rank that had most in a step, summed over steps.
        epoch_seconds: wall time of the unfinished epoch.
        elapsed_seconds: wall time of the finished epochs.
        best_epoch: epoch with the best validation accuracy so far, 0 before the first.
        best_accuracy: that accuracy.
    """

    epoch: int = 0
    step: int = 0
    minibatches: int = 0
    loss: float = 0.0
    correct: int = 0
    seeds: int = 0
    nodes: int = 0
    edges: int = 0
    seconds: float = 0.0
    most_edges: int = 0
    most_seconds: float = 0.0
    epoch_seconds: float = 0.0
    elapsed_seconds: float = 0.0
    best_epoch: int = 0
    best_accuracy: float = -1.0

    def add(self, figures: Tensor) -> None:
        """One step more.

        Args:
            figures: [R, 7] float64, `StepFigures` of every rank.
        """
        sums, most = figures.sum(dim=0).tolist(), figures.amax(dim=0).tolist()
        step, most_of = StepFigures(*sums), StepFigures(*most)
        self.step += 1
        self.minibatches += int(step.minibatches)
        self.seeds += int(step.seeds)
        self.loss += step.loss
        self.correct += int(step.correct)
        self.nodes += int(step.nodes)
        self.edges += int(step.edges)
        self.seconds += step.seconds
        self.most_edges += int(most_of.edges)
        self.most_seconds += most_of.seconds

    def imbalance(self, ranks: int) -> dict[str, float]:
        """What the rank with most has over the mean of all ranks, over the epoch's steps; empty with one
        rank."""
        if ranks == 1:
            return {}
        return {
            "edges": ranks * self.most_edges / self.edges if self.edges else 1.0,
            "seconds": ranks * self.most_seconds / self.seconds if self.seconds else 1.0,
        }

    def next_epoch(self) -> None:
        """The unfinished epoch is finished: its sums start anew."""
        self.epoch += 1
        self.elapsed_seconds += self.epoch_seconds
        self.step = self.minibatches = self.seeds = self.correct = self.nodes = self.edges = 0
        self.loss = self.seconds = self.most_seconds = self.epoch_seconds = 0.0
        self.most_edges = 0
