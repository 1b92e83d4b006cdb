"""Batches on a device: the device's stream, pinned memory, parcels and placed tables.

A device is a GPU, or the CPU: everything but the copies themselves is the same there, so that
tests see it.
"""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.device.lane import CpuLane as CpuLane
    from pyg_batchgnn.device.lane import CudaLane as CudaLane
    from pyg_batchgnn.device.lane import FeaturePlacement as FeaturePlacement
    from pyg_batchgnn.device.lane import Ticket as Ticket
    from pyg_batchgnn.device.lane import checked_device as checked_device
    from pyg_batchgnn.device.lane import lane_of as lane_of
    from pyg_batchgnn.device.likely import inclusion_of_nodes as inclusion_of_nodes
    from pyg_batchgnn.device.likely import likely_rows as likely_rows
    from pyg_batchgnn.device.parcel import Parcel as Parcel
    from pyg_batchgnn.device.parcel import map_batch as map_batch
    from pyg_batchgnn.device.parcel import map_minibatch as map_minibatch
    from pyg_batchgnn.device.parcel import tensors_of as tensors_of
    from pyg_batchgnn.device.pinned import PinnedPool as PinnedPool
    from pyg_batchgnn.device.pinned import locked_bytes as locked_bytes
    from pyg_batchgnn.device.tables import BusTally as BusTally
    from pyg_batchgnn.device.tables import HostRows as HostRows
    from pyg_batchgnn.device.tables import PlacedTables as PlacedTables
    from pyg_batchgnn.device.tables import PlacingRules as PlacingRules
    from pyg_batchgnn.device.tables import is_table as is_table
else:
    __getattr__ = late_names(__name__)
