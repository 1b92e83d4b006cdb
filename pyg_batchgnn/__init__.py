"""Macrobatch neighbour sampling and training for PyTorch Geometric on CPUs."""

from pyg_batchgnn.loader import MacrobatchNeighborLoader
from pyg_batchgnn.sample import MacrobatchSampler, Minibatch, PygNeighborSampler, Replacement, SamplingPlan
from pyg_batchgnn.store import CscGraph

__version__ = "0.1.0"

__all__ = [
    "CscGraph",
    "MacrobatchNeighborLoader",
    "MacrobatchSampler",
    "Minibatch",
    "PygNeighborSampler",
    "Replacement",
    "SamplingPlan",
    "__version__",
]
