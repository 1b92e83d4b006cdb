"""GraphSAGE, GCN, GIN and GAT of PyG's convolutions, applied to prefixes of a sampled minibatch.

`pyg_batchgnn.nn.models` has the same models of native layers.
"""

from pyg_batchgnn.nn.models import ModelOutput
from pyg_batchgnn.train.model.pyg_layers.gat import PygGAT
from pyg_batchgnn.train.model.pyg_layers.gcn import PygGCN
from pyg_batchgnn.train.model.pyg_layers.gin import PygGIN
from pyg_batchgnn.train.model.pyg_layers.pyg_model import PygModel
from pyg_batchgnn.train.model.pyg_layers.sage import PygSAGE

__all__ = ["ModelOutput", "PygGAT", "PygGCN", "PygGIN", "PygModel", "PygSAGE"]
