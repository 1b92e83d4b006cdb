"""The time and the figures that a run measures while it trains."""

from pyg_batchgnn.train.measure.loader_clock import LoaderClock
from pyg_batchgnn.train.measure.phase_spread import Spread, spread_of
from pyg_batchgnn.train.measure.phases import LABELS, Phase, PhaseClock
from pyg_batchgnn.train.measure.progress import Progress, StepFigures

__all__ = ["LABELS", "LoaderClock", "Phase", "PhaseClock", "Progress", "Spread", "StepFigures", "spread_of"]
