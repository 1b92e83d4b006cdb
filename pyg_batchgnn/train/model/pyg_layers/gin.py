"""GIN (Xu et al. 2019) of PyG's `GINConv`, as BatchGNN sets it up (appendix E)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GINConv

from pyg_batchgnn.nn.models import layer_widths
from pyg_batchgnn.train.model.pyg_layers.pyg_model import PygModel


class RowBatchNorm(nn.BatchNorm1d):
    """A `BatchNorm1d` that uses its running statistics for a minibatch of fewer than two rows."""

    def forward(self, x: Tensor) -> Tensor:
        """Returns the normalised rows, [D, features]."""
        if self.training and x.size(0) < 2:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(x)


def _mlp(in_channels: int, hidden: int, out_channels: int) -> nn.Sequential:
    first, last = nn.Linear(in_channels, hidden), nn.Linear(hidden, out_channels)
    return nn.Sequential(first, RowBatchNorm(hidden), nn.ReLU(inplace=True), last)


class PygGIN(PygModel):
    """GIN of PyG's layers: MLPs of two linear layers with batch normalisation and ReLU between
    them.

    Batch normalisation and ReLU also follow each layer but the last. The last layer gives plain
    logits: a ReLU there would leave a class without a gradient wherever it outputs zero. Epsilon is
    0 and not learned, and there is no dropout. The statistics are those of exactly the rows that a
    layer computes.
    """

    def __init__(self, in_channels: int, hidden: int, out_channels: int, layers: int = 3) -> None:
        widths = layer_widths(in_channels, hidden, out_channels, layers)
        super().__init__(
            (GINConv(_mlp(a, hidden, b)) for a, b in widths),
            lambda: nn.Sequential(RowBatchNorm(hidden), nn.ReLU(inplace=True)),
        )
