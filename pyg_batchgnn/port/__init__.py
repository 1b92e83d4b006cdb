"""PyG models made fast: their layers are replaced by native ones in place."""

from pyg_batchgnn.port.replace import AccelerationReport, NotReplaced, Replaced, accelerate, log_report

__all__ = ["AccelerationReport", "NotReplaced", "Replaced", "accelerate", "log_report"]
