"""GIN (Xu et al. 2019), as BatchGNN sets it up (appendix E)."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.nn.aggregated import Aggregated
from pyg_batchgnn.nn.gin import GINConv
from pyg_batchgnn.nn.graph import SampledBatch
from pyg_batchgnn.nn.inputs import Rows
from pyg_batchgnn.nn.linear import Linear
from pyg_batchgnn.nn.models.base import NativeModel, layer_widths
from pyg_batchgnn.nn.norm import BatchNorm


def _mlp(in_channels: int, hidden: int, out_channels: int) -> torch.nn.Sequential:
    """Numbered as with a ReLU of its own, which here is part of the normalisation."""
    first, last = Linear(in_channels, hidden), Linear(hidden, out_channels)
    return torch.nn.Sequential(first, BatchNorm(hidden, relu=True), torch.nn.Identity(), last)


class GIN(NativeModel):
    """Two-layer MLPs with batch normalisation and ReLU inside, and both again after each layer.

    Epsilon is 0 and not learned, and there is no dropout. Statistics are of exactly the rows a layer
    computes.

    Args:
        in_channels: columns of the features.
        hidden: columns between layers and inside the MLPs.
        out_channels: number of classes.
        layers: number of layers.
        norm_last: whether normalisation and ReLU follow the last layer, too, as in the paper. In a classifier
            that ReLU leaves a class that it silences without a gradient.
    """

    def __init__(
        self, in_channels: int, hidden: int, out_channels: int, layers: int = 3, norm_last: bool = True
    ) -> None:
        widths = layer_widths(in_channels, hidden, out_channels, layers)
        super().__init__((GINConv(_mlp(a, hidden, b)) for a, b in widths), dropout=0.0)
        normalised = widths if norm_last else widths[:-1]
        self.activations = torch.nn.ModuleList(
            torch.nn.Sequential(BatchNorm(b, relu=True)) for _, b in normalised
        )

    def compute(
        self, index: int, x: Rows | Aggregated, edges: Tensor | SampledBatch, layer: int | None
    ) -> Tensor:
        """Layer ``index`` with its normalisation, where it has one."""
        result: Tensor = self.convs[index](x, edges, layer)
        if index < len(self.activations):
            result = self.activations[index](result)
        return result
