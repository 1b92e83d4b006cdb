"""What training on several machines will take, before it is started."""

from pyg_batchgnn.planner.degrees import Degrees, probe_degrees
from pyg_batchgnn.planner.machine import Machine, Network
from pyg_batchgnn.planner.make import plan
from pyg_batchgnn.planner.model import predict
from pyg_batchgnn.planner.probe import probe_graph
from pyg_batchgnn.planner.report import Plan
from pyg_batchgnn.planner.search import Choices, search
from pyg_batchgnn.planner.setting import Prediction, Setting
from pyg_batchgnn.planner.workload import Probe, Workload

__all__ = [
    "Choices",
    "Degrees",
    "Machine",
    "Network",
    "Plan",
    "Prediction",
    "Probe",
    "Setting",
    "Workload",
    "plan",
    "predict",
    "probe_degrees",
    "probe_graph",
    "search",
]
