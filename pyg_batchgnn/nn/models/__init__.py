"""The models SAGE, GCN, GIN and GAT of their papers, built from native layers."""

from pyg_batchgnn.nn.gin import Perceptron
from pyg_batchgnn.nn.models.native import (
    GAT,
    GCN,
    GIN,
    SAGE,
    ActivatedGAT,
    GATStack,
    GINStack,
    LayerEdges,
    LayerStack,
    ModelOutput,
    NativeModel,
)
from pyg_batchgnn.nn.models.typed import TypedModel, to_hetero

__all__ = [
    "GAT",
    "GCN",
    "GIN",
    "SAGE",
    "ActivatedGAT",
    "GATStack",
    "GINStack",
    "LayerEdges",
    "LayerStack",
    "ModelOutput",
    "NativeModel",
    "Perceptron",
    "TypedModel",
    "to_hetero",
]
