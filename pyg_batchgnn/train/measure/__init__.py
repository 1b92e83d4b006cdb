"""The times and figures that a run measures while it trains."""

from pyg_batchgnn.train.measure.loader_clock import LoaderClock
from pyg_batchgnn.train.measure.phase_spread import PhaseSpread, spread_over_ranks
from pyg_batchgnn.train.measure.phases import PHASE_LABELS, Phase, PhaseClock
from pyg_batchgnn.train.measure.progress import RunProgress, StepFigures

__all__ = [
    "PHASE_LABELS",
    "LoaderClock",
    "Phase",
    "PhaseClock",
    "PhaseSpread",
    "RunProgress",
    "StepFigures",
    "spread_over_ranks",
]
