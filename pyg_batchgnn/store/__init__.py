"""What a process holds of a graph."""

from pyg_batchgnn.store.graph import CscGraph

__all__ = ["CscGraph"]
