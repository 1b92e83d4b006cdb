"""The final figures of a run, as ``result.json`` keeps them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunResult:
    """The final figures. An accuracy is None if its split is empty.

    Attributes:
        best_epoch: the epoch with the best validation accuracy, counted from 1.
        val_accuracy: validation accuracy of that epoch's weights.
        test_accuracy: test accuracy of that epoch's weights.
        seconds: wall time of all epochs.
        phases: seconds per phase, the mean over ranks.
        ranks: the number of ranks that trained.
        phase_ranges: the least and the most seconds of a rank per phase; empty with one rank.
    """

    best_epoch: int
    val_accuracy: float | None
    test_accuracy: float | None
    seconds: float
    phases: dict[str, float]
    ranks: int
    phase_ranges: dict[str, list[float]]
