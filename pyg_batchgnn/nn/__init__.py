"""The native layers: PyG's convolutions with the same arguments and ``state_dict``.

They reuse memory, work in place where the backward pass allows it, and read features in place.
"""

from pyg_batchgnn.nn.activated_gat import ActivatedGATConv
from pyg_batchgnn.nn.activation import Dropout, ReLU
from pyg_batchgnn.nn.aggregated import Aggregated
from pyg_batchgnn.nn.decoders import DotProductDecoder, MLPDecoder
from pyg_batchgnn.nn.features import features_by_type
from pyg_batchgnn.nn.gat import GATConv
from pyg_batchgnn.nn.gatv2 import GATv2Conv
from pyg_batchgnn.nn.gcn import GCNConv
from pyg_batchgnn.nn.gin import GINConv
from pyg_batchgnn.nn.graph import LayerGraph
from pyg_batchgnn.nn.halo import HaloPass, has_halo
from pyg_batchgnn.nn.hetero import HeteroConv
from pyg_batchgnn.nn.hetero_linear import HeteroDictLinear
from pyg_batchgnn.nn.inference import (
    HasNodes,
    LayerwiseOutput,
    check_cpu,
    check_row_wise,
    infer_model,
    nodes_of,
)
from pyg_batchgnn.nn.inputs import Rows
from pyg_batchgnn.nn.layerwise import ComputeInputs, LayerStep, infer_layers
from pyg_batchgnn.nn.linear import Linear, is_watched
from pyg_batchgnn.nn.matmul import (
    ProductChoice,
    current_products,
    default_products,
    probe_products,
    use_products,
)
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
from pyg_batchgnn.nn.native_conv import AsMade, NativeConv, as_made, fits_bias
from pyg_batchgnn.nn.norm import BatchNorm
from pyg_batchgnn.nn.owned_nodes import OwnedNodes
from pyg_batchgnn.nn.refusals import layer_name
from pyg_batchgnn.nn.rows import RowView
from pyg_batchgnn.nn.sage import SAGEConv
from pyg_batchgnn.nn.sampled import (
    SampledBatch,
    TypedBatch,
    is_sampled,
    is_typed,
    layer_graph,
    num_sampled_layers,
)
from pyg_batchgnn.nn.typed_aggregates import aggregates_by_relation
from pyg_batchgnn.nn.update import Update
from pyg_batchgnn.nn.whole_graph import whole_graph

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
    "LayerStep",
    "LayerwiseOutput",
    "Linear",
    "MLPDecoder",
    "ModelOutput",
    "NativeConv",
    "NativeModel",
    "OwnedNodes",
    "ProductChoice",
    "ReLU",
    "RowView",
    "Rows",
    "SAGEConv",
    "SampledBatch",
    "TypedBatch",
    "TypedModel",
    "Update",
    "aggregates_by_relation",
    "as_made",
    "check_cpu",
    "check_row_wise",
    "current_products",
    "default_products",
    "features_by_type",
    "fits_bias",
    "has_halo",
    "infer_layers",
    "infer_model",
    "is_sampled",
    "is_typed",
    "is_watched",
    "layer_graph",
    "layer_name",
    "nodes_of",
    "num_sampled_layers",
    "probe_products",
    "to_hetero",
    "use_products",
    "whole_graph",
]
