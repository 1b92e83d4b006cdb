"""The loader, which is what the user iterates."""

from pyg_batchgnn.loader.hgt_loader import MacrobatchHGTLoader
from pyg_batchgnn.loader.link_neighbor_loader import MacrobatchLinkNeighborLoader
from pyg_batchgnn.loader.neighbor_loader import MacrobatchNeighborLoader
from pyg_batchgnn.loader.schedule import ScheduleName
from pyg_batchgnn.loader.stats import LoaderCounters, LoaderStats
from pyg_batchgnn.loader.trained_seeds import balanced_trainers

__all__ = [
    "LoaderCounters",
    "LoaderStats",
    "MacrobatchHGTLoader",
    "MacrobatchLinkNeighborLoader",
    "MacrobatchNeighborLoader",
    "ScheduleName",
    "balanced_trainers",
]
