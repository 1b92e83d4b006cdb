"""The loader, which is what the user iterates."""

from pyg_batchgnn.loader.neighbor_loader import (
    MacrobatchHGTLoader,
    MacrobatchLinkNeighborLoader,
    MacrobatchNeighborLoader,
)
from pyg_batchgnn.loader.rank_setup import balanced_trainers
from pyg_batchgnn.loader.schedule import ScheduleName
from pyg_batchgnn.loader.stats import LoaderCounters, LoaderStats

__all__ = [
    "LoaderCounters",
    "LoaderStats",
    "MacrobatchHGTLoader",
    "MacrobatchLinkNeighborLoader",
    "MacrobatchNeighborLoader",
    "ScheduleName",
    "balanced_trainers",
]
