"""The models SAGE, GCN, GIN and GAT of their papers, built from native layers."""

from pyg_batchgnn.nn.models.gat import GAT, ActivatedGAT, GATStack
from pyg_batchgnn.nn.models.gcn import GCN
from pyg_batchgnn.nn.models.gin import GIN, GINStack
from pyg_batchgnn.nn.models.layer_edges import LayerEdges
from pyg_batchgnn.nn.models.native import NativeModel
from pyg_batchgnn.nn.models.perceptron import Perceptron
from pyg_batchgnn.nn.models.sage import SAGE
from pyg_batchgnn.nn.models.stack import LayerStack, ModelOutput
from pyg_batchgnn.nn.models.to_hetero import to_hetero
from pyg_batchgnn.nn.models.typed import TypedModel

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
