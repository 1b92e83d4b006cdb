"""Predictions of what training on several machines takes, before it starts."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.planner.degrees import Degrees as Degrees
    from pyg_batchgnn.planner.degrees import PowerOverlap as PowerOverlap
    from pyg_batchgnn.planner.degrees import probe_degrees as probe_degrees
    from pyg_batchgnn.planner.machine import PlannerMachine as PlannerMachine
    from pyg_batchgnn.planner.machine import PlannerNetwork as PlannerNetwork
    from pyg_batchgnn.planner.machine import measure_machine as measure_machine
    from pyg_batchgnn.planner.plans import Choices as Choices
    from pyg_batchgnn.planner.plans import Plan as Plan
    from pyg_batchgnn.planner.plans import plan as plan
    from pyg_batchgnn.planner.plans import search as search
    from pyg_batchgnn.planner.plans import seed_type_of as seed_type_of
    from pyg_batchgnn.planner.plans import workload_of as workload_of
    from pyg_batchgnn.planner.prediction import HistoricalPrediction as HistoricalPrediction
    from pyg_batchgnn.planner.prediction import predict as predict
    from pyg_batchgnn.planner.prediction import predict_historical as predict_historical
    from pyg_batchgnn.planner.probe import SAMPLES as SAMPLES
    from pyg_batchgnn.planner.probe import owners_of as owners_of
    from pyg_batchgnn.planner.probe import probe_graph as probe_graph
    from pyg_batchgnn.planner.workload import MinibatchMeans as MinibatchMeans
    from pyg_batchgnn.planner.workload import Overlaps as Overlaps
    from pyg_batchgnn.planner.workload import PlannerProbe as PlannerProbe
    from pyg_batchgnn.planner.workload import PlannerSetting as PlannerSetting
    from pyg_batchgnn.planner.workload import Prediction as Prediction
    from pyg_batchgnn.planner.workload import TypeRows as TypeRows
    from pyg_batchgnn.planner.workload import Workload as Workload
else:
    __getattr__ = late_names(__name__)
