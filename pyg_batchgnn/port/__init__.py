"""PyG models and users' own made fast: native layers, and the rows that are needed."""

from pyg_batchgnn.port.layerwise import inference
from pyg_batchgnn.port.replace import accelerate
from pyg_batchgnn.port.report import (
    AccelerationReport,
    CallReport,
    ForwardReport,
    NotReplaced,
    Replaced,
    log_report,
)

__all__ = [
    "AccelerationReport",
    "CallReport",
    "ForwardReport",
    "NotReplaced",
    "Replaced",
    "accelerate",
    "inference",
    "log_report",
]
