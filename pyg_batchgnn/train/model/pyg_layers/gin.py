"""GIN (Xu et al. 2019) on PyG's `GINConv`, as BatchGNN sets it up (appendix E)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GINConv

from pyg_batchgnn.nn.models import layer_widths
from pyg_batchgnn.train.model.pyg_layers.pyg_model import PygModel


class RowBatchNorm(nn.BatchNorm1d):
    """`BatchNorm1d` that uses its running statistics where a minibatch has fewer than two rows."""

    def forward(self, x: Tensor) -> Tensor:
        """[D, features] to the same shape."""
        if self.training and x.size(0) < 2:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(x)


def _mlp(in_channels: int, hidden: int, out_channels: int) -> nn.Sequential:
    first, last = nn.Linear(in_channels, hidden), nn.Linear(hidden, out_channels)
    return nn.Sequential(first, RowBatchNorm(hidden), nn.ReLU(inplace=True), last)


class PygGIN(PygModel):
    """Two-layer MLPs with batch normalisation inside; batch normalisation and ReLU after all but the last.

    Epsilon is 0 and not learned, and there is no dropout. Statistics are of exactly the rows a layer
    computes. The last layer gives plain logits: a ReLU there would leave a class that it silences without a
    gradient.
    """

    def __init__(self, in_channels: int, hidden: int, out_channels: int, layers: int = 3) -> None:
        super().__init__()
        widths = layer_widths(in_channels, hidden, out_channels, layers)
        self.convs = nn.ModuleList(GINConv(_mlp(a, hidden, b)) for a, b in widths)
        self.activations = nn.ModuleList(
            nn.Sequential(RowBatchNorm(hidden), nn.ReLU(inplace=True)) for _ in widths[1:]
        )
