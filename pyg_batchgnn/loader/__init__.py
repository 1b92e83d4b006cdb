"""The loader, which is what the user iterates."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.loader.disk_sizes import DiskForecast
    from pyg_batchgnn.loader.lightning import LightningLinkData, LightningNodeData
    from pyg_batchgnn.loader.neighbor_loader import (
        MacrobatchHGTLoader,
        MacrobatchLinkNeighborLoader,
        MacrobatchNeighborLoader,
    )
    from pyg_batchgnn.loader.rank_inputs import balanced_trainers
    from pyg_batchgnn.loader.schedule import ScheduleName
    from pyg_batchgnn.loader.stats import LoaderCounters, LoaderStats
else:
    __getattr__ = late_names(__name__)

__all__ = [
    "DiskForecast",
    "LightningLinkData",
    "LightningNodeData",
    "LoaderCounters",
    "LoaderStats",
    "MacrobatchHGTLoader",
    "MacrobatchLinkNeighborLoader",
    "MacrobatchNeighborLoader",
    "ScheduleName",
    "balanced_trainers",
]
