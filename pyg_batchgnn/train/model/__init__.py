"""The models that a run trains, and the parts around them that work over several ranks."""

from pyg_batchgnn.train.model.batch_norm_statistics import RunningStatistics
from pyg_batchgnn.train.model.matrix_product import (
    apply_product,
    product_line,
    product_shapes,
    settle_product,
)
from pyg_batchgnn.train.model.network import Network, Output, build_network
from pyg_batchgnn.train.model.replica import Replica

__all__ = [
    "Network",
    "Output",
    "Replica",
    "RunningStatistics",
    "apply_product",
    "build_network",
    "product_line",
    "product_shapes",
    "settle_product",
]
