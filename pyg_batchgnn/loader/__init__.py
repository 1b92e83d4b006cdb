"""The loader, which is what the user iterates."""

from typing import TYPE_CHECKING

from pyg_batchgnn.late_imports import late_names

if TYPE_CHECKING:
    from pyg_batchgnn.loader.disk_sizes import DiskForecast as DiskForecast
    from pyg_batchgnn.loader.lightning import LightningLinkData as LightningLinkData
    from pyg_batchgnn.loader.lightning import LightningNodeData as LightningNodeData
    from pyg_batchgnn.loader.neighbor_loader import MacrobatchHGTLoader as MacrobatchHGTLoader
    from pyg_batchgnn.loader.neighbor_loader import (
        MacrobatchLinkNeighborLoader as MacrobatchLinkNeighborLoader,
    )
    from pyg_batchgnn.loader.neighbor_loader import MacrobatchNeighborLoader as MacrobatchNeighborLoader
    from pyg_batchgnn.loader.rank_inputs import balanced_trainers as balanced_trainers
    from pyg_batchgnn.loader.schedule import ScheduleName as ScheduleName
    from pyg_batchgnn.loader.stats import LoaderCounters as LoaderCounters
    from pyg_batchgnn.loader.stats import LoaderStats as LoaderStats
else:
    __getattr__ = late_names(__name__)
