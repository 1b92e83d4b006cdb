"""What the user iterates."""

from pyg_batchgnn.loader.neighbor_loader import MacrobatchNeighborLoader
from pyg_batchgnn.loader.stats import Counters, LoaderStats

__all__ = ["Counters", "LoaderStats", "MacrobatchNeighborLoader"]
