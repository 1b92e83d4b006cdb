"""SAGE, GCN, GIN and GAT built from PyG's convolutions, applied to prefixes of a sampled minibatch."""

from pyg_batchgnn.nn.models import ModelOutput
from pyg_batchgnn.train.models.base import PrefixModel
from pyg_batchgnn.train.models.gat import GAT
from pyg_batchgnn.train.models.gcn import GCN
from pyg_batchgnn.train.models.gin import GIN
from pyg_batchgnn.train.models.sage import SAGE

__all__ = ["GAT", "GCN", "GIN", "SAGE", "ModelOutput", "PrefixModel"]
