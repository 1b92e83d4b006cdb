"""Graph attention (Velickovic et al. 2018), aggregating before it multiplies."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import Aggregated
from pyg_batchgnn.nn.arguments import input_columns, positive, probability
from pyg_batchgnn.nn.attention import AttentionCall, AttentionConv
from pyg_batchgnn.nn.inputs import ConvInput, Edges, Rows
from pyg_batchgnn.nn.lazy import set_width
from pyg_batchgnn.nn.precision import check_input
from pyg_batchgnn.nn.rows import RowView
from pyg_batchgnn.nn.slots import Fill
from pyg_batchgnn.nn.terms import RowProduct, Terms, total
from pyg_batchgnn.nn.update import Update


class GATConv(AttentionConv, torch_geometric.nn.GATConv):
    """PyG's `GATConv` with the same arguments, initialisation and ``state_dict``; rows are read in
    place.

    A logit is linear in the input: it is w[h] . x with w[h] = W_h^T a_h. So the weighted sum over
    neighbours comes before the product. Attention reads each raw row once, and the product has D
    rows instead of N.

    Args:
        in_channels: the number of columns of x, or (of sources, of targets); -1 takes it from the
            first call.
        out_channels: the number of columns of a head, C.
        heads: the number of heads, H.
        concat: puts the heads side by side; otherwise takes their mean.
        negative_slope: the slope of the leaky ReLU of the logits below 0.
        dropout: the probability of dropping an attention weight, keyed as docs/reference/layers.md
            says.
        add_self_loops: replaces the edges from a node to itself by one loop for every node.
        edge_dim: the number of columns of edge features; None without edge features.
        fill_value: the features of added loops: a number, a tensor [edge_dim], or a reduction of
            the features of the other edges of the target ("mean", "add", "min", "max", "mul").
        bias: adds a bias.
        residual: adds a product of the own rows of the targets.
        **kwargs: the other arguments of PyG, at their default values.

    Raises:
        ValueError: PyG's layer supports the arguments and this one does not.
    """

    read_parts: ClassVar[dict[str, bool]] = dict.fromkeys(
        ("lin", "lin_src", "lin_dst", "lin_edge", "res"), False
    )

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
        super().__init__(
            input_columns("in_channels", in_channels),
            positive("out_channels", out_channels),
            positive("heads", heads),
            concat,
            negative_slope,
            probability("dropout", dropout),
            add_self_loops,
            edge_dim,
            fill_value,
            bias,
            residual,
            **kwargs,
        )
        self.check(self)

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
        """Returns the rows of the targets of the layer.

        Args:
            x: [>= N, in_channels], the rows of the sources, a tensor or a `RowView`. The first D
                are the rows of the targets. Or a pair (sources, targets) or (sources, None).
            edge_index: a minibatch with ``layer``, or [2, E] with sources above targets.
            layer: the number of the layer in the minibatch; 1 is nearest the input. PyG's
                ``edge_attr`` is accepted in this place.
            edge_attr: [E, edge_dim] (or [E]) for all edges of the minibatch, in its order, or of
                ``edge_index``.
            size: (N, D) for an ``edge_index`` between nodes of two kinds.
            return_attention_weights: whether to return the edges and their weights after dropout as
                well.
            update: what follows, in the same pass.

        Returns:
            [D, heads * out_channels], or [D, out_channels] without ``concat``, of the weights'
            dtype, bfloat16 under autocast. With ``return_attention_weights`` a pair of this and
            ([2, E'] int64, [E', heads]), loops that were added behind the edges.
        """
        call = self._call(x, edge_index, layer, edge_attr, size)
        out, coefficient = self._attend(call)
        own = call.given.own_rows() if self.res is not None else None
        result = total([self._transform(out)], own, call.given.graph, update, self.training)
        if not return_attention_weights:
            return result
        graph, slots = call.given.graph, call.slots
        weights = ops.attention_weights(
            coefficient, graph.indptr, node=graph.node, loops=slots.loops, drop=call.drop, key=call.key
        )
        return result, slots.pyg_form(weights)

    def terms(self, given: ConvInput, edge_attr: Tensor | None = None) -> Terms:
        """Returns the terms of the rows of the targets."""
        return self._transform(self._attend(self._call_of(given, edge_attr)).out)

    def _initialise(self, given: ConvInput) -> None:
        """Initialises weights of unknown width at the first call, as PyG does."""
        own = given.own_rows()
        for linear, rows in (
            (self.lin, given.x),
            (self.lin_src, given.x),
            (self.lin_dst, own),
            (self.res, own),
        ):
            set_width(linear, rows)

    def _attend(self, call: AttentionCall) -> ops.Attention:
        """Returns the sums of source rows, weighted by the attention of each head, [D, H * K]."""
        given, loops = call.given, call.slots.loops
        self._initialise(given)
        dtype = ops.compute_dtype(self.att_src)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        source, target = self.lin or self.lin_src, self.lin or self.lin_dst
        check_input(given.x, source.weight.size(1), dtype)
        own = given.own_rows()
        if own is not None:
            check_input(own, target.weight.size(1), dtype, "rows of the targets")
        table, row = _table(given.x, wide)
        target_weight = self._logit_weight(target.weight, self.att_dst, wide)
        graph = given.graph
        return ops.attention(
            table,
            graph.indptr,
            graph.indices,
            self._logit_weight(source.weight, self.att_src, wide),
            target_weight=target_weight if given.targets_in_sources else None,
            target_logits=None
            if given.targets_in_sources or own is None
            else ops.linear([own], [target_weight], num_rows=own.size(0), out_dtype=wide),
            edge_logits=self._edge_logits(call, wide),
            row=row,
            node=graph.node,
            by_source=graph.by_source if table.requires_grad and torch.is_grad_enabled() else (),
            loops=loops,
            negative_slope=self.negative_slope,
            drop=call.drop,
            key=call.key,
            out_dtype=dtype,
        )

    def _logit_weight(self, weight: Tensor, attention: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns w[h] = W_h^T a_h, [H, K]."""
        by_head = weight.to(dtype).view(self.heads, self.out_channels, -1)
        return (by_head * attention.to(dtype).view(self.heads, self.out_channels, 1)).sum(dim=1)

    def _edge_logits(self, call: AttentionCall, dtype: torch.dtype) -> Tensor | None:
        """Returns the terms of edge features in the logits, [slots, H]."""
        features = self._edge_features(call, dtype)
        if features is None:
            return None
        weight = self._logit_weight(self.lin_edge.weight, self.att_edge, dtype)
        loops = None if features.loops is None else _logits(features.loops, weight)
        return call.slots.spread(_logits(features.edges, weight), loops)

    def _transform(self, attended: Tensor) -> Terms:
        """Returns the products of the heads with residual and bias."""
        weight, groups = (self.lin or self.lin_src).weight, self.heads
        if not self.concat:
            # The mean over heads is one product with all heads' columns.
            by_head = weight.view(self.heads, self.out_channels, -1).transpose(0, 1)
            weight, groups = by_head.reshape(self.out_channels, -1) / self.heads, 1
        root = None if self.res is None else self.res.weight
        return Terms((RowProduct(attended, weight, groups),), root, self.bias)


def _table(x: Rows, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Returns the table and rows for the operator; a float64 copy if the layer computes in
    float64."""
    if isinstance(x, RowView):
        if dtype == torch.float64 and x.dtype != dtype:
            return x.gather().to(dtype), None
        return x.table, x.row
    x = x.to(dtype) if dtype == torch.float64 else x
    return (x if x.stride(1) == 1 else x.contiguous()), None


def _logits(rows: Tensor, weight: Tensor) -> Tensor:
    """Returns rows . w[h], [rows, H] of the dtype of the weight, regardless of autocast."""
    with torch.autocast("cpu", enabled=False):
        return rows.to(weight.dtype) @ weight.t()
