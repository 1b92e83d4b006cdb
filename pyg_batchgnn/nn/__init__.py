"""Native layers: PyG's convolutions with the same arguments and ``state_dict``, which reuse memory, work in
place where the backward pass allows, and read features where they lie."""

from pyg_batchgnn.nn.activation import Dropout, ReLU
from pyg_batchgnn.nn.norm import BatchNorm

__all__ = ["BatchNorm", "Dropout", "ReLU"]
