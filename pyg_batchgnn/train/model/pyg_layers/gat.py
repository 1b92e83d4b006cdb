"""GAT (Velickovic et al. 2018) of PyG's `GATConv`."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.nn import GATConv, GATv2Conv

from pyg_batchgnn.nn.models import GATStack
from pyg_batchgnn.train.model.pyg_layers.layer_prefix import LayerPrefix
from pyg_batchgnn.train.model.pyg_layers.pyg_model import PygModel


class PygGAT(GATStack, PygModel):
    """GAT of PyG's layers."""

    conv = GATConv
    conv_v2 = GATv2Conv

    def layer_graphs(self, edge_index: Tensor, prefixes: list[LayerPrefix]) -> list[Tensor]:
        """Returns [2, edges] per layer: attention has one value per edge and head, so it takes
        pairs."""
        return [edge_index[:, : prefix.edges] for prefix in prefixes]
