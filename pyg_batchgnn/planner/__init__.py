"""Predictions of what training on several machines takes, before it starts."""

from pyg_batchgnn.planner.degrees import Degrees, PowerOverlap, probe_degrees
from pyg_batchgnn.planner.historical import HistoricalPrediction, predict_historical
from pyg_batchgnn.planner.machine import PlannerMachine, PlannerNetwork
from pyg_batchgnn.planner.make import plan, seed_type_of, workload_of
from pyg_batchgnn.planner.measure import measure_machine
from pyg_batchgnn.planner.model import predict
from pyg_batchgnn.planner.owners import owners_of
from pyg_batchgnn.planner.probe import SAMPLES, probe_graph
from pyg_batchgnn.planner.report import Plan
from pyg_batchgnn.planner.search import Choices, search
from pyg_batchgnn.planner.setting import PlannerSetting, Prediction
from pyg_batchgnn.planner.workload import MinibatchMeans, Overlaps, PlannerProbe, TypeRows, Workload

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
