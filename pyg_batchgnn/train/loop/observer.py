"""What a run tells while it goes on, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from pyg_batchgnn.train.run_folder import EpochRecord


class RunObserver(Protocol):
    """Is told what happens; the trainer itself prints nothing."""

    def epoch_begins(self, epoch: int, step: int, steps: int) -> None:
        """`step` of `steps` minibatches of epoch number `epoch` (from 1) are done already."""

    def step_done(self, loss: float) -> None:
        """One minibatch more; `loss` is the epoch's mean so far."""

    def epoch_done(self, record: EpochRecord, is_best: bool) -> None:
        """An epoch is trained and evaluated."""


class RunOutcome(Enum):
    """How `Trainer.fit` ended."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class RunResult:
    """The final figures; accuracies are None where a split is empty.

    Attributes:
        best_epoch: counted from 1.
        val_accuracy, test_accuracy: of the weights of that epoch.
        seconds: wall time of all epochs.
        phases: seconds by phase, the mean over ranks.
        ranks: that trained.
        phase_ranges: the least and the most seconds of a rank by phase; empty with one rank.
    """

    best_epoch: int
    val_accuracy: float | None
    test_accuracy: float | None
    seconds: float
    phases: dict[str, float]
    ranks: int
    phase_ranges: dict[str, list[float]]
