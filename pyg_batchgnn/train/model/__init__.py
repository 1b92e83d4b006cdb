"""The model that a run trains, and its parts that work over several ranks."""

from pyg_batchgnn.train.model.batch_norm_statistics import BatchNormStatistics
from pyg_batchgnn.train.model.build import build_network
from pyg_batchgnn.train.model.inputs import ModelInputs
from pyg_batchgnn.train.model.link_network import LinkNetwork
from pyg_batchgnn.train.model.matrix_product import (
    apply_product,
    choose_product,
    product_line,
    product_shapes,
)
from pyg_batchgnn.train.model.network import GraphNetwork, NetworkOutput
from pyg_batchgnn.train.model.replica import Replica
from pyg_batchgnn.train.model.row_optimizer import row_optimizer

__all__ = [
    "BatchNormStatistics",
    "GraphNetwork",
    "LinkNetwork",
    "ModelInputs",
    "NetworkOutput",
    "Replica",
    "apply_product",
    "build_network",
    "choose_product",
    "product_line",
    "product_shapes",
    "row_optimizer",
]
