"""PyG models made fast: their layers are replaced by native ones in place."""

from pyg_batchgnn.port.replace import accelerate, log_report
from pyg_batchgnn.port.report import AccelerationReport, Left, Replaced

__all__ = ["AccelerationReport", "Left", "Replaced", "accelerate", "log_report"]
