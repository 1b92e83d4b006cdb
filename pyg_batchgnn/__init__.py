"""Macrobatch neighbour sampling and training for PyTorch Geometric on CPUs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pyg_batchgnn.registration import register_ccl
from pyg_batchgnn.versions import check_versions

if TYPE_CHECKING:
    from pyg_batchgnn.cache import AggregationCache
    from pyg_batchgnn.comm import Communicator
    from pyg_batchgnn.loader import MacrobatchNeighborLoader
    from pyg_batchgnn.planner import plan
    from pyg_batchgnn.sample import (
        MacrobatchSampler,
        Minibatch,
        PygNeighborSampler,
        Replacement,
        SampledMinibatch,
        SamplingPlan,
    )
    from pyg_batchgnn.store import CscGraph, DistFeatureStore, DistGraphStore

__version__ = "0.1.0"

__all__ = [
    "AggregationCache",
    "Communicator",
    "CscGraph",
    "DistFeatureStore",
    "DistGraphStore",
    "MacrobatchNeighborLoader",
    "MacrobatchSampler",
    "Minibatch",
    "PygNeighborSampler",
    "Replacement",
    "SampledMinibatch",
    "SamplingPlan",
    "__version__",
    "plan",
]

_ROOMS = {
    "AggregationCache": "cache",
    "Communicator": "comm",
    "CscGraph": "store",
    "DistFeatureStore": "store",
    "DistGraphStore": "store",
    "MacrobatchNeighborLoader": "loader",
    "plan": "planner",
}


def __getattr__(name: str) -> Any:
    """Imports a room when it is first used: reading data, say, need not wait for PyTorch Geometric."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ROOMS.get(name, 'sample')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


check_versions()
register_ccl()
