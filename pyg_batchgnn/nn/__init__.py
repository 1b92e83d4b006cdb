"""The native layers: PyG's convolutions with the same arguments and ``state_dict``.

They reuse memory, work in place where the backward pass allows it, and read features in place.
"""

from pyg_batchgnn.nn.activation import Dropout, ReLU
from pyg_batchgnn.nn.aggregated import Aggregated
from pyg_batchgnn.nn.gat import GATConv
from pyg_batchgnn.nn.gcn import GCNConv
from pyg_batchgnn.nn.gin import GINConv
from pyg_batchgnn.nn.graph import LayerGraph, layer_graph, whole_graph
from pyg_batchgnn.nn.linear import Linear
from pyg_batchgnn.nn.matmul import ProductChoice, current_products, probe_products, use_products
from pyg_batchgnn.nn.models import GAT, GCN, GIN, SAGE, ModelOutput, NativeModel
from pyg_batchgnn.nn.norm import BatchNorm
from pyg_batchgnn.nn.rows import RowView
from pyg_batchgnn.nn.sage import SAGEConv
from pyg_batchgnn.nn.update import Update

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "SAGE",
    "Aggregated",
    "BatchNorm",
    "Dropout",
    "GATConv",
    "GCNConv",
    "GINConv",
    "LayerGraph",
    "Linear",
    "ModelOutput",
    "NativeModel",
    "ProductChoice",
    "ReLU",
    "RowView",
    "SAGEConv",
    "Update",
    "current_products",
    "layer_graph",
    "probe_products",
    "use_products",
    "whole_graph",
]
