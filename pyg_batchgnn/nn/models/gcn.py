"""GCN (Kipf and Welling 2017), normalised once for the whole minibatch."""

from __future__ import annotations

from pyg_batchgnn.nn.gcn import GCNConv
from pyg_batchgnn.nn.models.base import NativeModel, layer_widths


class GCN(NativeModel):
    """The model with ReLU and dropout after all layers but the last, in one pass with the products.

    Args:
        in_channels: the number of columns of the features.
        hidden: the number of columns between layers.
        out_channels: the number of classes.
        layers: the number of layers.
        dropout: the probability of zeroing an element in training mode, in [0, 1).
    """

    def __init__(
        self, in_channels: int, hidden: int, out_channels: int, layers: int = 3, dropout: float = 0.5
    ) -> None:
        widths = layer_widths(in_channels, hidden, out_channels, layers)
        super().__init__((GCNConv(a, b) for a, b in widths), dropout)
