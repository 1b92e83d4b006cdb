"""The models SAGE, GCN, GIN and GAT of their papers, built from native layers."""

from pyg_batchgnn.nn.models.base import ModelOutput, NativeModel, head_channels, layer_widths
from pyg_batchgnn.nn.models.gat import GAT
from pyg_batchgnn.nn.models.gcn import GCN
from pyg_batchgnn.nn.models.gin import GIN
from pyg_batchgnn.nn.models.sage import SAGE

__all__ = ["GAT", "GCN", "GIN", "SAGE", "ModelOutput", "NativeModel", "head_channels", "layer_widths"]
