"""Batches on a device: the device's stream, pinned memory, parcels and placed tables.

A device is a GPU, or the CPU: everything but the copies themselves is the same there, so that
tests see it.
"""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.device.lane import (
        CpuLane,
        CudaLane,
        FeaturePlacement,
        Ticket,
        checked_device,
        lane_of,
    )
    from pyg_batchgnn.device.likely import inclusion_of_nodes, likely_rows
    from pyg_batchgnn.device.parcel import Parcel, map_batch, map_minibatch, tensors_of
    from pyg_batchgnn.device.pinned import PinnedPool, locked_bytes
    from pyg_batchgnn.device.tables import BusTally, HostRows, PlacedTables, PlacingRules, is_table
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "BusTally",
    "CpuLane",
    "CudaLane",
    "FeaturePlacement",
    "HostRows",
    "Parcel",
    "PinnedPool",
    "PlacedTables",
    "PlacingRules",
    "Ticket",
    "checked_device",
    "inclusion_of_nodes",
    "is_table",
    "lane_of",
    "likely_rows",
    "locked_bytes",
    "map_batch",
    "map_minibatch",
    "tensors_of",
]
