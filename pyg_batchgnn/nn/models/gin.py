"""GIN (Xu et al. 2019), as BatchGNN sets it up (appendix E)."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.nn.aggregated import Aggregated
from pyg_batchgnn.nn.gin import GINConv
from pyg_batchgnn.nn.inputs import Edges, Rows
from pyg_batchgnn.nn.linear import Linear, is_watched
from pyg_batchgnn.nn.models.base import NativeModel, layer_widths
from pyg_batchgnn.nn.norm import BatchNorm, NormOnRead
from pyg_batchgnn.nn.rows import NormedRows


class _Perceptron(torch.nn.Sequential):
    """Two linear layers with normalisation and ReLU between them.

    The modules are numbered as with a separate ReLU, which here is part of the normalisation.
    """

    def __init__(self, in_channels: int, hidden: int, out_channels: int) -> None:
        first, last = Linear(in_channels, hidden), Linear(hidden, out_channels)
        super().__init__(first, BatchNorm(hidden, relu=True), torch.nn.Identity(), last)

    def forward(self, input: Tensor, after: BatchNorm | NormOnRead | None = None) -> Tensor | NormedRows:
        """Returns [D, out_channels] from [D, in_channels], normalised by ``after``."""
        first, norm, _, last = self
        assert isinstance(first, Linear) and isinstance(norm, BatchNorm) and isinstance(last, Linear)
        if after is None:
            return last.after_relu(norm.of_product(first, input))
        rows, hidden = norm.hidden_of_product(first, input)
        return after.of_product(last, rows, after_relu=True, hidden=hidden)


class GIN(NativeModel):
    """The model with two-layer MLPs that have batch normalisation and ReLU inside and after each
    layer.

    Epsilon is 0 and not learned. There is no dropout. Statistics cover exactly the rows of each
    layer.

    Args:
        in_channels: the number of columns of the features.
        hidden: the number of columns between layers and inside the MLPs.
        out_channels: the number of classes.
        layers: the number of layers.
        norm_last: adds normalisation and ReLU after the last layer too, as in the paper. In a
            classifier a class gets no gradient while that ReLU silences it.
    """

    def __init__(
        self, in_channels: int, hidden: int, out_channels: int, layers: int = 3, norm_last: bool = True
    ) -> None:
        widths = layer_widths(in_channels, hidden, out_channels, layers)
        super().__init__((GINConv(_Perceptron(a, hidden, b)) for a, b in widths), dropout=0.0)
        normalised = widths if norm_last else widths[:-1]
        self.activations = torch.nn.ModuleList(
            torch.nn.Sequential(BatchNorm(b, relu=True)) for _, b in normalised
        )

    def compute(
        self, index: int, x: Rows | NormedRows | Aggregated, edges: Edges, layer: int | None
    ) -> Tensor:
        """Computes layer ``index`` with its normalisation, if it has one."""
        if index == len(self.activations):
            last: Tensor = self.convs[index](x, edges, layer)
            return last
        after = self.activations[index]
        if is_watched(after):
            watched: Tensor = after(self.convs[index](x, edges, layer))
            return watched
        (norm,) = after.children()
        result: Tensor = self.convs[index](x, edges, layer, norm=norm)
        return result

    def _compute_rows(
        self, index: int, x: Rows | NormedRows | Aggregated, edges: Edges, layer: int | None
    ) -> Rows | NormedRows:
        if not self._is_unseen(index):
            return self.compute(index, x, edges, layer)
        (norm,) = self.activations[index].children()
        assert isinstance(norm, BatchNorm)
        result: Tensor | NormedRows = self.convs[index](x, edges, layer, norm=NormOnRead(norm))
        return result

    def _is_unseen(self, index: int) -> bool:
        """Returns whether only the next layer sees the result of layer ``index`` and can normalise
        it.

        docs/decisions/0022 lists the conditions.
        """
        own = getattr(self.compute, "__func__", None) is GIN.compute
        if not own or index + 1 >= len(self.convs):
            return False
        here, after, there = self.convs[index], self.activations[index], self.convs[index + 1]
        ours = type(here) is GINConv and type(there) is GINConv and type(here.nn) is _Perceptron
        ours = ours and [type(norm) for norm in after.children()] == [BatchNorm]
        modules = (here, here.get_submodule("nn"), after, there) if ours else ()
        return ours and not any(is_watched(one) for one in modules)
