"""The reports of a trainer while it works, and the ways in which it ends."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from pyg_batchgnn.train.run_folder import EpochRecord


class RunObserver(Protocol):
    """An object that the trainer informs. The trainer itself prints nothing."""

    def epoch_begins(self, epoch: int, step: int, steps: int) -> None:
        """Handles the start of an epoch.

        Args:
            epoch: counted from 1.
            step: steps of the epoch that are done already.
            steps: all steps of the epoch.
        """

    def step_done(self, loss: float) -> None:
        """Handles the end of a step. `loss` is the epoch's mean loss so far."""

    def epoch_done(self, record: EpochRecord, is_best: bool) -> None:
        """Handles the end of an epoch, which is trained and evaluated."""

    def stopped_early(self, validations: int) -> None:
        """Handles the end of a run after this many validations without a better result."""


class RunOutcome(Enum):
    """The way in which a run ended."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"
