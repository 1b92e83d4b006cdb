"""The progress of a run: finished epochs and steps, and sums over the current epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


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
    """The progress of a run.

    The sums are over the steps of the current epoch, and over all ranks.

    Attributes:
        epoch: number of finished epochs, evaluation included.
        step: number of finished steps of the current epoch. A step has one minibatch per rank.
        minibatches: number of minibatches that were not empty.
        weight: sum of the weights of the seed nodes; their number if all weigh the same.
        loss: sum of the weighed loss of each seed node.
        score: numerator of the task's metric on training minibatches.
        score_of: its denominator.
        seeds: number of seed nodes.
        nodes: number of sampled nodes.
        edges: number of sampled edges.
        seconds: sum of the seconds of computing.
        most_edges: sum of the edges of the rank that had most in a step.
        most_seconds: sum of the seconds of the rank that computed longest in a step.
        epoch_seconds: wall time of the current epoch.
        elapsed_seconds: wall time of the finished epochs.
        best_epoch: the epoch with the best validation so far, counted from 1; 0 before the first.
        best: that validation's loss and metrics by their names; None before the first.
        validations_since_best: number of validations after it, none of which was better.
    """

    epoch: int = 0
    step: int = 0
    minibatches: int = 0
    weight: float = 0.0
    loss: float = 0.0
    score: float = 0.0
    score_of: float = 0.0
    seeds: int = 0
    nodes: int = 0
    edges: int = 0
    seconds: float = 0.0
    most_edges: int = 0
    most_seconds: float = 0.0
    epoch_seconds: float = 0.0
    elapsed_seconds: float = 0.0
    best_epoch: int = 0
    best: dict[str, float] | None = None
    validations_since_best: int = 0

    @property
    def mean_loss(self) -> float:
        """The mean loss of the epoch's training nodes so far."""
        return self.loss / self.weight

    @property
    def train_score(self) -> float:
        """The task's metric on the epoch's training minibatches so far."""
        return self.score / self.score_of if self.score_of else 0.0

    def add(self, figures: Tensor) -> None:
        """Adds a step.

        Args:
            figures: [R, 9] float64, the `StepFigures` of every rank.
        """
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
        self.step = self.minibatches = self.seeds = self.nodes = self.edges = 0
        self.weight = self.loss = self.score = self.score_of = 0.0
        self.seconds = self.most_seconds = self.epoch_seconds = 0.0
        self.most_edges = 0
