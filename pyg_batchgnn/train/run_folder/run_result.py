"""The final figures of a run, as ``result.json`` keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RunResult:
    """The final figures.

    Attributes:
        metric: the name of the metric that chose the best epoch.
        best_epoch: the epoch with the best validation, counted from 1.
        val: loss and metrics of that epoch's weights on validation nodes, by name; None if there
            are none.
        test: the same on test nodes.
        seconds: wall time of all epochs.
        phases: seconds per phase, the mean over ranks.
        ranks: the number of ranks that trained.
        phase_ranges: the least and the most seconds of a rank per phase; empty with one rank.
        historical: the figures of historical embeddings (`history_figures`), or None without them.
    """

    metric: str
    best_epoch: int
    val: dict[str, float] | None
    test: dict[str, float] | None
    seconds: float
    phases: dict[str, float]
    ranks: int
    phase_ranges: dict[str, list[float]]
    historical: dict[str, Any] | None = None
