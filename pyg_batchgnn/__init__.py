"""Macrobatch neighbour sampling and training for PyTorch Geometric on CPUs.

In one process, replace PyG's ``NeighborLoader`` by `MacrobatchNeighborLoader` (likewise for links
and for HGT sampling), and give the model to `accelerate`. Over several ranks, make a
`Communicator`, load this rank's part into a `DistFeatureStore` and a `DistGraphStore`, and give
both to the same loader. `AggregationCache` keeps aggregates of the input features, and `plan`
predicts what a setting costs. `SamplingPlan`, `MacrobatchSampler`, `Minibatch` and `CscGraph` are
for scripts that sample without a loader.

Importing the package imports neither torch nor PyTorch Geometric. Each name imports its room when
it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pyg_batchgnn.late_imports import late_names
from pyg_batchgnn.registration import register_ccl
from pyg_batchgnn.versions import check_versions

if TYPE_CHECKING:
    from pyg_batchgnn.cache import AggregationCache
    from pyg_batchgnn.comm import Communicator
    from pyg_batchgnn.data import quantize
    from pyg_batchgnn.loader import (
        LightningLinkData,
        LightningNodeData,
        MacrobatchHGTLoader,
        MacrobatchLinkNeighborLoader,
        MacrobatchNeighborLoader,
    )
    from pyg_batchgnn.planner import plan
    from pyg_batchgnn.port import accelerate, inference
    from pyg_batchgnn.sample import (
        MacrobatchSampler,
        Minibatch,
        PygHGTSampler,
        PygLinkSampler,
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
    "LightningLinkData",
    "LightningNodeData",
    "MacrobatchHGTLoader",
    "MacrobatchLinkNeighborLoader",
    "MacrobatchNeighborLoader",
    "MacrobatchSampler",
    "Minibatch",
    "PygHGTSampler",
    "PygLinkSampler",
    "PygNeighborSampler",
    "Replacement",
    "SampledMinibatch",
    "SamplingPlan",
    "__version__",
    "accelerate",
    "inference",
    "plan",
    "quantize",
]

#: The names that are modules of the package, such as ``pyg_batchgnn.nn``.
_MODULES = (
    "cache", "comm", "data", "doctor", "embed", "fetch", "loader", "nn", "ops", "partition", "planner",
    "port", "sample", "store", "train",
)  # fmt: skip


_late_name = late_names(__name__)


def __getattr__(name: str) -> Any:
    """Imports a room when it is first used, so that reading data does not import PyG."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    return _late_name(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})


check_versions()
register_ccl()
