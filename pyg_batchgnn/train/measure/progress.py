"""The progress of a run: finished epochs and steps, and sums over the current epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


class StepFigures(NamedTuple):
    """One rank's part of a step: sums over its minibatch, and the seconds of computing."""

    minibatches: float  # 0 if it was empty, else 1
    seeds: float
    loss: float
    correct: float
    nodes: float
    edges: float
    seconds: float


@dataclass
class RunProgress:
    """The progress of a run.

    The sums are over the steps of the current epoch, and over all ranks.

    Attributes:
        epoch: number of finished epochs, evaluation included.
        step: number of finished steps of the current epoch. A step has one minibatch per rank.
        minibatches: number of minibatches that were not empty.
        loss: sum of the loss of each seed node.
        correct: number of seed nodes that were classified right.
        seeds: number of seed nodes.
        nodes: number of sampled nodes.
        edges: number of sampled edges.
        seconds: sum of the seconds of computing.
        most_edges: sum of the edges of the rank that had most in a step.
        most_seconds: sum of the seconds of the rank that computed longest in a step.
        epoch_seconds: wall time of the current epoch.
        elapsed_seconds: wall time of the finished epochs.
        best_epoch: the epoch with the best validation accuracy so far, counted from 1; 0 before the
            first.
        best_accuracy: that accuracy; -1 before the first.
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
        """Adds a step.

        Args:
            figures: [R, 7] float64, the `StepFigures` of every rank.
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
        """Returns the imbalance of the epoch: the rank with most over the mean of all ranks.

        It is given for edges and for seconds of computing, and is empty with one rank.
        """
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
        self.step = self.minibatches = self.seeds = self.correct = self.nodes = self.edges = 0
        self.loss = self.seconds = self.most_seconds = self.epoch_seconds = 0.0
        self.most_edges = 0
