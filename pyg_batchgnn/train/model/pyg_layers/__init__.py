"""SAGE, GCN, GIN and GAT built from PyG's convolutions, applied to prefixes of a sampled minibatch."""

from pyg_batchgnn.nn.models import ModelOutput
from pyg_batchgnn.train.model.pyg_layers.gat import GAT
from pyg_batchgnn.train.model.pyg_layers.gcn import GCN
from pyg_batchgnn.train.model.pyg_layers.gin import GIN
from pyg_batchgnn.train.model.pyg_layers.pyg_model import PrefixModel
from pyg_batchgnn.train.model.pyg_layers.sage import SAGE

__all__ = ["GAT", "GCN", "GIN", "SAGE", "ModelOutput", "PrefixModel"]
