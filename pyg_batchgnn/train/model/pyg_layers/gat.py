"""GAT (Velickovic et al. 2018) of PyG's `GATConv`."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.nn import GATConv

from pyg_batchgnn.nn.models import head_channels, layer_widths
from pyg_batchgnn.train.model.pyg_layers.layer_prefix import LayerPrefix
from pyg_batchgnn.train.model.pyg_layers.pyg_model import PygModel
from pyg_batchgnn.train.model.pyg_layers.relu_dropout import ReluDropout


class PygGAT(PygModel):
    """GAT of PyG's layers, with ReLU and dropout after all layers but the last.

    The heads of a layer are concatenated to `hidden` columns; those of the last layer are averaged.

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
        columns = head_channels(hidden, heads)
        widths = layer_widths(in_channels, hidden, out_channels, layers)
        convs = [GATConv(a, columns, heads=heads) for a, _ in widths[:-1]]
        convs.append(GATConv(widths[-1][0], out_channels, heads=heads, concat=False))
        super().__init__(convs, lambda: ReluDropout(dropout))

    def layer_graphs(self, edge_index: Tensor, prefixes: list[LayerPrefix]) -> list[Tensor]:
        """Returns [2, edges] per layer: attention has one value per edge and head, so it takes
        pairs."""
        return [edge_index[:, : prefix.edges] for prefix in prefixes]
