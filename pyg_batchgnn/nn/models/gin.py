"""GIN (Xu et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.resolver import normalization_resolver

from pyg_batchgnn.nn.aggregated import Aggregated
from pyg_batchgnn.nn.arguments import positive
from pyg_batchgnn.nn.gin import GINConv
from pyg_batchgnn.nn.inputs import Rows
from pyg_batchgnn.nn.linear import is_watched
from pyg_batchgnn.nn.models.layer_edges import LayerEdges
from pyg_batchgnn.nn.models.native import NativeModel
from pyg_batchgnn.nn.models.norms import fused_norm
from pyg_batchgnn.nn.models.perceptron import NativePerceptron, Perceptron
from pyg_batchgnn.nn.models.stack import LayerStack
from pyg_batchgnn.nn.norm import NormOnRead
from pyg_batchgnn.nn.rows import NormedRows


class GINStack(LayerStack):
    """The layers of GIN, each with a perceptron of two linear layers.

    A normalisation that is given by name is also inside the perceptrons. The arguments are those
    of `LayerStack`, and:

    Args:
        inner_channels: the number of columns inside the perceptrons; that of their result where
            None, as in PyG.
    """

    #: The class of the perceptrons.
    perceptron: ClassVar[Callable[..., Perceptron]]

    def init_conv(
        self, in_channels: int, out_channels: int, *, inner_channels: int | None = None, **kwargs: Any
    ) -> MessagePassing:
        """Returns a new convolution."""
        inner = out_channels if inner_channels is None else positive("inner_channels", inner_channels)
        norm = normalization_resolver(self.norm, inner, **(self.norm_kwargs or {})) if self.norm else None
        made = type(self).perceptron(
            (in_channels, inner, out_channels), self.act, self.act_first, norm or torch.nn.Identity()
        )
        return type(self).conv(made, **kwargs)


class GIN(GINStack, NativeModel):
    """PyG's `GIN` on native layers: the same arguments (`GINStack`) and ``state_dict``.

    Statistics of a normalisation cover exactly the rows of each layer. The model of the paper has
    ``norm="batch_norm"``.
    """

    conv = GINConv
    perceptron = NativePerceptron

    def _normed(self, index: int, x: Rows | NormedRows | Aggregated, edges: LayerEdges) -> Tensor:
        conv, norm = self.convs[index], fused_norm(self.norms[index])
        if norm is None or type(conv.nn) is not NativePerceptron:
            return super()._normed(index, x, edges)
        result: Tensor = edges.apply(conv, x, norm=norm)
        return result

    def _compute_rows(
        self, index: int, x: Rows | NormedRows | Aggregated, edges: LayerEdges
    ) -> Tensor | NormedRows:
        if edges.halo is not None or not self._is_unseen(index):
            return self.compute(index, x, edges)
        norm = fused_norm(self.norms[index])
        assert norm is not None
        result: Tensor | NormedRows = edges.apply(self.convs[index], x, norm=NormOnRead(norm))
        return result

    def _is_unseen(self, index: int) -> bool:
        """Returns whether only the next layer sees the result of layer ``index`` and can normalise
        it.

        docs/decisions/0022 lists the conditions.
        """
        own = getattr(self.compute, "__func__", None) is GIN.compute
        if not own or index + 1 >= len(self.convs) or self.keeps_all_layers or self.dropout.p > 0.0:
            return False
        if not self.fuses_relu or fused_norm(self.norms[index]) is None:
            return False
        here, there = self.convs[index], self.convs[index + 1]
        ours = type(here) is GINConv and type(there) is GINConv and type(here.nn) is NativePerceptron
        modules = (here, here.get_submodule("nn"), there) if ours else ()
        return ours and not any(is_watched(one) for one in modules)
