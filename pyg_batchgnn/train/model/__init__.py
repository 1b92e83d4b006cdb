"""The models that a run trains, and the parts around them that work over several ranks."""

from pyg_batchgnn.train.model.batch_norm_statistics import BatchNormStatistics
from pyg_batchgnn.train.model.matrix_product import (
    apply_product,
    product_line,
    product_shapes,
    settle_product,
)
from pyg_batchgnn.train.model.network import GraphNetwork, NetworkOutput, build_network
from pyg_batchgnn.train.model.replica import Replica

__all__ = [
    "BatchNormStatistics",
    "GraphNetwork",
    "NetworkOutput",
    "Replica",
    "apply_product",
    "build_network",
    "product_line",
    "product_shapes",
    "settle_product",
]
