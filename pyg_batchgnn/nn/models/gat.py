"""GAT (Velickovic et al. 2018)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn.nn.activated_gat import ActivatedGATConv
from pyg_batchgnn.nn.arguments import positive, probability
from pyg_batchgnn.nn.gat import GATConv
from pyg_batchgnn.nn.gatv2 import GATv2Conv
from pyg_batchgnn.nn.models.native import NativeModel
from pyg_batchgnn.nn.models.stack import LayerStack


class GATStack(LayerStack):
    """The layers of GAT. The heads of a layer are concatenated to its columns; those of a last
    layer that has no linear layer behind it are averaged.

    The arguments are those of `LayerStack`, and:

    Args:
        v2: takes the attention of GATv2 (Brody, Alon and Yahav 2022).
        heads: the number of heads of every layer; 1 where not given.
        concat: concatenates heads; where False, every layer averages them.
        attention_dropout: the probability of dropping an attention weight in training mode;
            `dropout` where None, as in PyG.

    Raises:
        ValueError: the columns of a layer are not a multiple of ``heads``.
    """

    #: The class of the convolutions of GATv2.
    conv_v2: ClassVar[Callable[..., MessagePassing]]
    supports_edge_attr = True

    def init_conv(
        self,
        in_channels: int,
        out_channels: int,
        *,
        v2: bool = False,
        heads: int = 1,
        concat: bool = True,
        attention_dropout: float | None = None,
        **kwargs: Any,
    ) -> MessagePassing:
        """Returns a new convolution."""
        heads = positive("heads", heads)
        concat = concat and not getattr(self, "_is_conv_to_out", False)
        columns = head_channels(out_channels, heads) if concat else out_channels
        drop = self.dropout.p
        if attention_dropout is not None:
            drop = probability("attention_dropout", attention_dropout)
        conv = type(self).conv_v2 if v2 else type(self).conv
        return conv(in_channels, columns, heads=heads, concat=concat, dropout=drop, **kwargs)


def head_channels(columns: int, heads: int) -> int:
    """Returns the columns of each attention head; a layer concatenates its heads.

    Raises:
        ValueError: `columns` is not a multiple of `heads`.
    """
    if columns % heads:
        raise ValueError(
            f"the columns of a layer ({columns}) must be a multiple of heads ({heads}), "
            f"because heads are concatenated"
        )
    return columns // heads


class GAT(GATStack, NativeModel):
    """PyG's `GAT` on native layers: the same arguments (`GATStack`) and ``state_dict``."""

    conv: ClassVar[Callable[..., MessagePassing]] = GATConv
    conv_v2 = GATv2Conv


class ActivatedGAT(GAT):
    """The GAT of DistGNN-MB (section 2): bias and ReLU come before the attention.

    Its arguments are those of `GAT`, without ``v2`` and features of edges.
    """

    conv = ActivatedGATConv
    supports_edge_attr = False

    def init_conv(
        self, in_channels: int, out_channels: int, *, v2: bool = False, **kwargs: Any
    ) -> MessagePassing:
        """Returns a new convolution."""
        if v2:
            raise ValueError("ActivatedGAT is a form of GAT, not of GATv2; leave v2 out, or take GAT")
        return super().init_conv(in_channels, out_channels, **kwargs)
