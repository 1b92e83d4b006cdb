"""The models SAGE, GCN, GIN and GAT of their papers, built from native layers."""

from pyg_batchgnn.nn.layer_loop import ModelOutput, is_row_wise_norm
from pyg_batchgnn.nn.models.native import GAT, GCN, GIN, SAGE, ActivatedGAT, LayerEdges, NativeModel
from pyg_batchgnn.nn.models.typed import TypedModel, to_hetero

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "SAGE",
    "ActivatedGAT",
    "LayerEdges",
    "ModelOutput",
    "NativeModel",
    "TypedModel",
    "is_row_wise_norm",
    "to_hetero",
]
