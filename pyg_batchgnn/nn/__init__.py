"""The native layers: PyG's convolutions with the same arguments and ``state_dict``.

They reuse memory, work in place where the backward pass allows it, and read features in place.
What PyG's layers support and these do not raises a ValueError.
"""

from pyg_batchgnn.nn.aggregated import Aggregated
from pyg_batchgnn.nn.decoders import DotProductDecoder, MLPDecoder
from pyg_batchgnn.nn.gat import ActivatedGATConv, GATConv
from pyg_batchgnn.nn.gatv2 import GATv2Conv
from pyg_batchgnn.nn.gcn import GCNConv
from pyg_batchgnn.nn.gin import GINConv
from pyg_batchgnn.nn.halo import HaloPass
from pyg_batchgnn.nn.hetero import HeteroConv, TypedEdges
from pyg_batchgnn.nn.inference import (
    ComputeInputs,
    HasNodes,
    LayerStep,
    check_cpu,
    check_row_wise,
    evaluating,
    infer_layers,
    nodes_of,
)
from pyg_batchgnn.nn.inputs import ConvInput, Rows, RowView, conv_input, features_by_type
from pyg_batchgnn.nn.layer_edges import (
    LayerGraph,
    LayerRows,
    dropout_node,
    has_halo,
    is_sampled,
    is_typed,
    layer_graph,
    layer_rows,
    named_key,
    whole_graph,
)
from pyg_batchgnn.nn.linear import HeteroDictLinear, Linear, is_watched
from pyg_batchgnn.nn.matmul import ProductChoice, default_products, probe_products, use_products
from pyg_batchgnn.nn.models import (
    GAT,
    GCN,
    GIN,
    SAGE,
    ActivatedGAT,
    ModelOutput,
    NativeModel,
    TypedModel,
    to_hetero,
)
from pyg_batchgnn.nn.native_conv import AsMade, NativeConv, as_made, fits_bias, layer_name
from pyg_batchgnn.nn.norm import BatchNorm, Dropout, ReLU, row_norm, row_norm_of
from pyg_batchgnn.nn.sage import SAGEConv
from pyg_batchgnn.nn.terms import RowProduct, Terms, Update, total
from pyg_batchgnn.nn.transformer import TransformerConv
from pyg_batchgnn.ops import current_products
from pyg_batchgnn.types import OwnedNodes, SampledMinibatch

#: Other names of a minibatch.
SampledBatch = TypedBatch = SampledMinibatch

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "SAGE",
    "ActivatedGAT",
    "ActivatedGATConv",
    "Aggregated",
    "AsMade",
    "BatchNorm",
    "ComputeInputs",
    "ConvInput",
    "DotProductDecoder",
    "Dropout",
    "GATConv",
    "GATv2Conv",
    "GCNConv",
    "GINConv",
    "HaloPass",
    "HasNodes",
    "HeteroConv",
    "HeteroDictLinear",
    "LayerGraph",
    "LayerRows",
    "LayerStep",
    "Linear",
    "MLPDecoder",
    "ModelOutput",
    "NativeConv",
    "NativeModel",
    "OwnedNodes",
    "ProductChoice",
    "ReLU",
    "RowProduct",
    "RowView",
    "Rows",
    "SAGEConv",
    "SampledBatch",
    "Terms",
    "TransformerConv",
    "TypedBatch",
    "TypedEdges",
    "TypedModel",
    "Update",
    "as_made",
    "check_cpu",
    "check_row_wise",
    "conv_input",
    "current_products",
    "default_products",
    "dropout_node",
    "evaluating",
    "features_by_type",
    "fits_bias",
    "has_halo",
    "infer_layers",
    "is_sampled",
    "is_typed",
    "is_watched",
    "layer_graph",
    "layer_name",
    "layer_rows",
    "named_key",
    "nodes_of",
    "probe_products",
    "row_norm",
    "row_norm_of",
    "to_hetero",
    "total",
    "use_products",
    "whole_graph",
]
