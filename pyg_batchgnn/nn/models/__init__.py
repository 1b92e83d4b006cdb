"""The models SAGE, GCN, GIN and GAT of their papers, built from native layers."""

from pyg_batchgnn.nn.layer_loop import (
    LayerEnd,
    ModelOutput,
    is_row_wise_norm,
    last_rows,
    run_layers,
    wrong_hops,
)
from pyg_batchgnn.nn.models.native import GAT, GCN, GIN, SAGE, ActivatedGAT, LayerEdges, NativeModel
from pyg_batchgnn.nn.models.typed import TypedModel, to_hetero

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "SAGE",
    "ActivatedGAT",
    "LayerEdges",
    "LayerEnd",
    "ModelOutput",
    "NativeModel",
    "TypedModel",
    "is_row_wise_norm",
    "last_rows",
    "run_layers",
    "to_hetero",
    "wrong_hops",
]
