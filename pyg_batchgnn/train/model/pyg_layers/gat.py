"""GAT (Velickovic et al. 2018) on PyG's `GATConv`."""

from __future__ import annotations

from torch import Tensor, nn
from torch_geometric.nn import GATConv

from pyg_batchgnn.nn.models import layer_widths
from pyg_batchgnn.train.model.pyg_layers.layer_prefix import LayerPrefix
from pyg_batchgnn.train.model.pyg_layers.pyg_model import PygModel
from pyg_batchgnn.train.model.pyg_layers.relu_dropout import ReluDropout


class PygGAT(PygModel):
    """Heads are concatenated to `hidden` columns, averaged in the last layer; ReLU and dropout in between.

    Raises:
        ValueError: `hidden` is not a multiple of `heads`.
    """

    def __init__(
        self,
        in_channels: int,
        hidden: int,
        out_channels: int,
        layers: int = 3,
        dropout: float = 0.5,
        heads: int = 4,
    ) -> None:
        super().__init__()
        if hidden % heads:
            raise ValueError(
                f"hidden ({hidden}) must be a multiple of heads ({heads}): heads are concatenated"
            )
        widths = layer_widths(in_channels, hidden, out_channels, layers)
        self.convs = nn.ModuleList(GATConv(a, b // heads, heads=heads) for a, b in widths[:-1])
        self.convs.append(GATConv(widths[-1][0], out_channels, heads=heads, concat=False))
        self.activations = nn.ModuleList(ReluDropout(dropout) for _ in widths[1:])

    def layer_graphs(self, edge_index: Tensor, prefixes: list[LayerPrefix]) -> list[Tensor]:
        """Attention has a value an edge and a head, so `GATConv` takes edges as pairs: [2, edges] each."""
        return [edge_index[:, : prefix.edges] for prefix in prefixes]
