"""Graph attention: GAT (Velickovic et al. 2018), GATv2 (Brody, Alon and Yahav 2022), their base."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.utils import scatter

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import Aggregated
from pyg_batchgnn.nn.inputs import ConvInput, Edges, LayerGraph, Rows, check_input, table_of
from pyg_batchgnn.nn.layer_steps import RowProduct, Terms, Update, convolve
from pyg_batchgnn.nn.modules import set_width
from pyg_batchgnn.nn.native_conv import NativeConv, input_columns, positive, probability, refuse

#: The features of an added loop: a number, a tensor [edge_dim], or the name of a reduction.
Fill = float | Tensor | str
#: The names of the reductions.
FILLS = ("add", "sum", "mean", "min", "max", "mul")


@dataclass(frozen=True)
class AttentionCall:
    """One call of an attention layer. A slot is the place of an edge: by target, its loop last."""

    given: ConvInput
    # Self loops are replaced by one for each of the first ``loops`` targets; None keeps all edges.
    loops: int | None
    edge_attr: Tensor | None  # the features of the edges as the user gave them, or None
    drop: float  # the probability of dropping an attention weight in this call
    key: int  # the key of the dropout; 0 if nothing is dropped

    @property
    def graph(self) -> LayerGraph:
        return self.given.graph

    def options(self) -> dict[str, Any]:
        """Returns the arguments that all operators of attention take."""
        return {"node": self.graph.node, "loops": self.loops, "drop": self.drop, "key": self.key}

    @cached_property
    def of_edges(self) -> Tensor:
        """[E] int64, the slot of each edge."""
        places = torch.arange(self.graph.num_edges)
        return places + self.graph.targets.clamp(max=self.loops) if self.loops else places

    @cached_property
    def of_loops(self) -> Tensor:
        """[loops] int64, the slot of each added loop."""
        ids = torch.arange(self.loops or 0)
        return self.graph.indptr[1 : ids.numel() + 1] + ids

    @cached_property
    def kept(self) -> Tensor:
        """[E] bool, False for self loops that are replaced."""
        if self.loops is None:
            return torch.ones(self.graph.num_edges, dtype=torch.bool)
        return self.graph.indices != self.graph.targets

    def spread(self, edges: Tensor, loops: Tensor | None) -> Tensor:
        """Puts rows of edges and of loops into their slots; differentiable."""
        if not self.loops or loops is None:
            return edges.contiguous()
        rows = edges.new_empty(edges.size(0) + loops.size(0), edges.size(1))
        return rows.index_copy_(0, self.of_edges, edges).index_copy_(0, self.of_loops, loops)

    def loop_features(self, features: Tensor, fill: Fill) -> Tensor | None:
        """Returns the features of the added loops [loops, edge_dim], as PyG does."""
        if not self.loops:
            return None
        if isinstance(fill, str):
            targets = self.graph.targets
            if not self.kept.all():  # a copy takes several times as long as the sums
                features, targets = features[self.kept], targets[self.kept]
            return scatter(features, targets, 0, dim_size=self.graph.num_targets, reduce=fill)[: self.loops]
        if isinstance(fill, Tensor):
            row = fill.to(features.device, features.dtype).view(1, -1)
            return row.expand(self.loops, features.size(1))
        return features.new_full((self.loops, features.size(1)), fill)

    def pyg_form(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Returns edges [2, E'] int64 and their values [E', H] in PyG's order: the user's edges
        without replaced self loops, then the added loops."""
        order = torch.arange(self.graph.num_edges)
        if self.graph.edge is not None:
            order = torch.empty_like(order).scatter_(0, self.graph.edge.long(), order)
        order = order[self.kept[order]]
        ids = torch.arange(self.loops or 0)
        edges = torch.stack([self.graph.indices.long(), self.graph.targets])[:, order]
        slots = torch.cat([self.of_edges[order], self.of_loops])
        return torch.cat([edges, torch.stack([ids, ids])], dim=1), values.index_select(0, slots)


class AttentionConv(NativeConv):
    """The base of the attention layers. It stands before PyG's class and reads its attributes."""

    edge_values: ClassVar[str | None] = "edge_attr"
    pygs_node_dim: ClassVar[int] = 0
    out_channels: int
    heads: int
    concat: bool
    dropout: float
    add_self_loops: bool = False
    returns_weights_before_dropout: ClassVar[bool] = False
    fill_value: Fill = "mean"
    lin_edge: Any

    @classmethod
    def check(cls, conv: MessagePassing) -> None:
        ops.check_drop(conv.dropout)
        fill = getattr(conv, "fill_value", cls.fill_value)
        if isinstance(fill, str) and fill not in FILLS:
            raise refuse(conv, f"fill_value={fill!r}", f"give a number or one of {', '.join(FILLS)}")
        super().check(conv)

    def joining(self, weight: Tensor) -> tuple[Tensor, int]:
        """Returns the weight and the number of groups of the product that turns the rows of all
        heads, [D, H * K], into the layer's result. ``weight``: [H * C, K]."""
        if self.concat:
            return weight, self.heads
        # The mean over heads is one product with all heads' columns.
        by_head = weight.view(self.heads, self.out_channels, -1).transpose(0, 1)
        return by_head.reshape(self.out_channels, -1) / self.heads, 1

    def forward(
        self,
        x: Rows | Aggregated | tuple[Rows, Rows | None],
        edge_index: Edges,
        layer: int | Tensor | None = None,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
        *,
        update: Update | None = None,
    ) -> Tensor | tuple[Tensor, tuple[Tensor, Tensor]]:
        """Returns the rows of the layer's targets, from the arguments of `SAGEConv.forward` and
        these.

        Args:
            x: no `Aggregated`: attention weights are learned.
            layer: PyG's ``edge_attr`` is accepted in this place.
            edge_attr: [E, edge_dim] (or [E]) for all edges of the minibatch in its order, or of
                ``edge_index``.
            return_attention_weights: also returns edges and their attention weights, after dropout;
                those of `TransformerConv` before it, and as in PyG for False, too.

        Returns:
            [D, heads * out_channels], or [D, out_channels] without ``concat``, of the weights'
                dtype, bfloat16 under autocast. With ``return_attention_weights`` a pair of this and
                ([2, E'] int64, [E', heads]), added loops behind the edges.
        """
        wanted, before = return_attention_weights, self.returns_weights_before_dropout
        if wanted is None or not (wanted or before):
            return convolve(self, x, edge_index, layer, size, update, edge_attr=edge_attr)
        seen: list[tuple[AttentionCall, Tensor]] = []
        result = convolve(self, x, edge_index, layer, size, update, edge_attr=edge_attr, seen=seen)
        ((call, coefficient),) = seen
        if before:
            return result, call.pyg_form(coefficient.abs())
        weights = ops.attention_weights(coefficient, call.graph.indptr, **call.options())
        return result, call.pyg_form(weights)

    #: Returns the terms of the result, and the softmax before dropout with signs, [slots, H].
    _attended: Callable[[AttentionCall], tuple[Terms, Tensor]]

    def terms(self, given: ConvInput, edge_attr: Tensor | None = None, seen: Any = None) -> Terms:
        """``seen``: a list that receives the call and the softmax."""
        both = min(given.graph.num_sources, given.graph.num_targets)
        loops = both if self.add_self_loops else None
        drop = self.dropout if self.training else 0.0
        key = ops.attention_key(given.graph.dropout_key()) if drop > 0 else 0
        call = AttentionCall(given, loops, edge_attr, drop, key)
        terms, coefficient = self._attended(call)
        if seen is not None:
            seen.append((call, coefficient))
        return terms

    def _edge_rows(self, call: AttentionCall, dtype: torch.dtype) -> Tensor | None:
        """Returns [slots, edge_dim], the features of edges and added loops, or None."""
        if call.edge_attr is None:
            return None
        if self.lin_edge is None:
            raise ValueError("edge_attr is given, but the layer was constructed without edge_dim")
        features = call.edge_attr.view(-1, 1) if call.edge_attr.dim() == 1 else call.edge_attr
        set_width(features, self.lin_edge)
        features = call.graph.edge_rows(features, self.lin_edge.weight.size(1), dtype)
        return call.spread(features, call.loop_features(features, self.fill_value))


class GATConv(AttentionConv, torch_geometric.nn.GATConv):
    """PyG's `GATConv` with the same arguments, initialisation and ``state_dict``; rows are read in
    place.

    A logit is linear in the input: it is w[h] . x with w[h] = W_h^T a_h. So the weighted sum over
    neighbours comes before the product, which has D rows instead of N.

    >>> GATConv(data.num_features, 8, heads=2)(data.x, data.edge_index).shape
    torch.Size([100, 16])

    Args:
        in_channels: columns of x, or (of sources, of targets); -1 takes them from the first call.
        out_channels: columns of a head, C.
        heads: the number of heads, H.
        concat: puts the heads side by side; otherwise takes their mean.
        negative_slope: the slope of the leaky ReLU of the logits below 0.
        dropout: the probability of dropping an attention weight.
        add_self_loops: replaces the edges from a node to itself by one loop for every node.
        edge_dim: columns of edge features; None without them.
        fill_value: the features of added loops: a number, a tensor [edge_dim], or a reduction of
            the features of the other edges of the target ("mean", "add", "min", "max", "mul").
        residual: adds a product of the root nodes' features.
        **kwargs: the other arguments of PyG, at their default values.
    """

    read_parts: ClassVar[dict[str, bool]]
    read_parts = dict.fromkeys(("lin", "lin_src", "lin_dst", "lin_edge", "res"), False)

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: Fill = "mean",
        bias: bool = True,
        residual: bool = False,
        **kwargs: Any,
    ) -> None:
        columns = input_columns("in_channels", in_channels), positive("out_channels", out_channels)
        heads, drop = positive("heads", heads), probability("dropout", dropout)
        super().__init__(
            *(*columns, heads, concat, negative_slope, drop, add_self_loops, edge_dim, fill_value, bias),
            residual,
            **kwargs,
        )
        self.check(self)

    def _attended(self, call: AttentionCall) -> tuple[Terms, Tensor]:
        given = call.given
        own, graph = given.own_rows(), given.graph
        set_width(given.x, self.lin, self.lin_src)
        set_width(own, self.lin_dst, self.res)
        dtype = ops.compute_dtype(self.att_src)
        wide = ops.wide_dtype(dtype)
        source, target = self.lin or self.lin_src, self.lin or self.lin_dst
        check_input(given.x, source.weight.size(1), dtype)
        if own is not None:
            check_input(own, target.weight.size(1), dtype, "rows of the targets")
        table, row = table_of(given.x, wide)
        target_weight = self._logit_weight(target.weight, self.att_dst, wide)
        edge_rows, edge_logits = self._edge_rows(call, wide), None
        if edge_rows is not None:
            of_edges = self._logit_weight(self.lin_edge.weight, self.att_edge, wide)
            with torch.autocast("cpu", enabled=False):
                edge_logits = edge_rows @ of_edges.t()
        attended = ops.attention(  # the sums of source rows by head, [D, H * K]
            table,
            graph.indptr,
            graph.indices,
            self._logit_weight(source.weight, self.att_src, wide),
            target_weight=target_weight if given.targets_in_sources else None,
            target_logits=None
            if given.targets_in_sources or own is None
            else ops.linear([own], [target_weight], num_rows=own.size(0), out_dtype=wide),
            edge_logits=edge_logits,
            row=row,
            by_source=graph.by_source_for(table),
            negative_slope=self.negative_slope,
            out_dtype=dtype,
            **call.options(),
        )
        weight, groups = self.joining(source.weight)
        root = None if self.res is None else self.res.weight
        return Terms((RowProduct(attended.out, weight, groups),), root, self.bias), attended.coefficient

    def _logit_weight(self, weight: Tensor, attention: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns w[h] = W_h^T a_h, [H, K]."""
        by_head = weight.to(dtype).view(self.heads, self.out_channels, -1)
        return (by_head * attention.to(dtype).view(self.heads, self.out_channels, 1)).sum(dim=1)


class GATv2Conv(AttentionConv, torch_geometric.nn.GATv2Conv):
    """PyG's `GATv2Conv` with the same arguments (see `GATConv`), initialisation and ``state_dict``.

    Every source is multiplied once. The sum of the source's, target's and edge's rows is computed
    in both passes, and not stored. The bias is added to the products, too.

    >>> GATv2Conv(data.num_features, 8, heads=2)(data.x, data.edge_index).shape
    torch.Size([100, 16])

    Args:
        share_weights: multiplies targets by the weight of sources.
    """

    read_parts: ClassVar[dict[str, bool]] = {"lin_l": True, "lin_r": True, "lin_edge": False, "res": False}

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: Fill = "mean",
        bias: bool = True,
        share_weights: bool = False,
        residual: bool = False,
        **kwargs: Any,
    ) -> None:
        columns = input_columns("in_channels", in_channels), positive("out_channels", out_channels)
        heads, drop = positive("heads", heads), probability("dropout", dropout)
        super().__init__(
            *(*columns, heads, concat, negative_slope, drop, add_self_loops, edge_dim, fill_value, bias),
            *(share_weights, residual),
            **kwargs,
        )
        self.check(self)

    @classmethod
    def check(cls, conv: MessagePassing) -> None:
        super().check(conv)
        if conv.share_weights and conv.lin_r is not conv.lin_l:
            raise refuse(conv, "share_weights with two linear layers", "give it when the layer is made")

    def _attended(self, call: AttentionCall) -> tuple[Terms, Tensor]:
        own = call.given.own_rows()
        if own is None:
            raise ValueError("GATv2Conv needs the rows of the targets; give x as (sources, targets)")
        set_width(call.given.x, self.lin_l)
        set_width(own, self.lin_r, self.res)
        x, dtype = call.given.x, ops.compute_dtype(self.att)
        check_input(x, self.lin_l.weight.size(1), dtype)
        check_input(own, self.lin_r.weight.size(1), dtype, "rows of the targets")
        source = _product(x, self.lin_l, dtype)
        graph, wide = call.graph, ops.wide_dtype(dtype)
        shares = self.share_weights and call.given.targets_in_sources
        target = source[: graph.num_targets] if shares else _product(own, self.lin_r, dtype)
        edge_rows, edge_weight = self._edge_rows(call, wide), None
        if edge_rows is not None:
            edge_weight = self.lin_edge.weight.to(wide).t().contiguous()
        attended = ops.additive_attention(
            source,
            graph.indptr,
            graph.indices,
            self.att.view(self.heads, self.out_channels).to(wide),
            target.to(wide),
            edge_rows,
            edge_weight,
            by_source=graph.by_source_for(source),
            negative_slope=self.negative_slope,
            **call.options(),
        )
        out, root = attended.out, None if self.res is None else self.res.weight
        if not self.concat:
            out = out.unflatten(1, (self.heads, self.out_channels)).mean(dim=1)
        return Terms(root=root, bias=self.bias, values=out), attended.coefficient


def _product(rows: Rows, linear: Any, dtype: Any) -> Tensor:
    return ops.linear([rows], [linear.weight], linear.bias, num_rows=rows.size(0), out_dtype=dtype)
