"""Predictions of what training on several machines takes, before it starts."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.planner.degrees import Degrees, PowerOverlap, probe_degrees
    from pyg_batchgnn.planner.machine import PlannerMachine, PlannerNetwork, measure_machine
    from pyg_batchgnn.planner.plans import Choices, Plan, plan, search, seed_type_of, workload_of
    from pyg_batchgnn.planner.prediction import HistoricalPrediction, predict, predict_historical
    from pyg_batchgnn.planner.probe import SAMPLES, owners_of, probe_graph
    from pyg_batchgnn.planner.workload import (
        MinibatchMeans,
        Overlaps,
        PlannerProbe,
        PlannerSetting,
        Prediction,
        TypeRows,
        Workload,
    )
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "SAMPLES",
    "Choices",
    "Degrees",
    "HistoricalPrediction",
    "MinibatchMeans",
    "Overlaps",
    "Plan",
    "PlannerMachine",
    "PlannerNetwork",
    "PlannerProbe",
    "PlannerSetting",
    "PowerOverlap",
    "Prediction",
    "TypeRows",
    "Workload",
    "measure_machine",
    "owners_of",
    "plan",
    "predict",
    "predict_historical",
    "probe_degrees",
    "probe_graph",
    "search",
    "seed_type_of",
    "workload_of",
]
