"""The loader, which is what the user iterates."""

from pyg_batchgnn.loader.bytes import parse_bytes
from pyg_batchgnn.loader.neighbor_loader import MacrobatchNeighborLoader
from pyg_batchgnn.loader.stats import LoaderCounters, LoaderStats

__all__ = ["LoaderCounters", "LoaderStats", "MacrobatchNeighborLoader", "parse_bytes"]
