"""GAT (Velickovic et al. 2018)."""

from __future__ import annotations

from pyg_batchgnn.nn.gat import GATConv
from pyg_batchgnn.nn.models.base import NativeModel, head_channels, layer_widths


class GAT(NativeModel):
    """Heads are concatenated to `hidden` columns, averaged in the last layer; ReLU and dropout in between.

    Args:
        in_channels: columns of the features.
        hidden: columns between layers, all heads together.
        out_channels: number of classes.
        layers: number of layers.
        dropout: probability of zeroing an element while training, in [0, 1).
        heads: of every layer.

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
        super().__init__(convs, dropout)
