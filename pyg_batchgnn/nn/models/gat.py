"""GAT (Velickovic et al. 2018)."""

from __future__ import annotations

from pyg_batchgnn.nn.gat import GATConv
from pyg_batchgnn.nn.models.base import NativeModel, head_channels, layer_widths


class GAT(NativeModel):
    """The model with concatenated heads, averaged in the last layer, and ReLU and dropout between
    layers.

    Args:
        in_channels: the number of columns of the features.
        hidden: the number of columns between layers, all heads together.
        out_channels: the number of classes.
        layers: the number of layers.
        dropout: the probability of zeroing an element in training mode, in [0, 1).
        heads: the number of heads of every layer.

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
