"""The attention of graph transformers: dot products of queries and keys (Shi and others 2021)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn import ops
from pyg_batchgnn.nn.gat import AttentionCall, AttentionConv
from pyg_batchgnn.nn.inputs import LayerGraph, Rows, check_input, table_of
from pyg_batchgnn.nn.layer_steps import RowProduct, Terms, total
from pyg_batchgnn.nn.modules import set_width
from pyg_batchgnn.nn.native_conv import input_columns, positive, probability, refuse

#: What attention takes for a column of a source, in multiplications of a matrix product: the rows
#: of sources lie anywhere.
_EDGE_COST = 8
#: Every source is multiplied first if that takes less than this part of the time.
_LEAST_GAIN = 0.75


class TransformerConv(AttentionConv, torch_geometric.nn.TransformerConv):
    """PyG's `TransformerConv` with the same arguments, initialisation and ``state_dict``.

    A score is q . (W_k x + b_k) = (W_k^T q) . x + q . b_k. The softmax does not depend on the last
    term, which is the same for all edges of a target. So every target gets a vector W_k^T q, and
    attention reads the sources' own rows, once for scores and sums. The product with W_v follows,
    of D rows instead of N. If that is more work, as with many heads in a whole graph, keys and
    values of all sources are computed first.

    >>> TransformerConv(data.num_features, 8, heads=2)(data.x, data.edge_index).shape
    torch.Size([100, 16])

    Args:
        in_channels, out_channels, heads, concat, dropout: as in `GATConv`.
        beta: weighs the product of the root nodes' features against the attention by a learned
            gate; without ``root_weight`` ignored.
        edge_dim: columns of edge features, whose product is added to keys and values; None without
            them.
        bias: adds biases to queries, keys, values and the product of the own rows.
        root_weight: adds a product of the root nodes' features.
        **kwargs: the other arguments of PyG, at their default values.
    """

    read_parts: ClassVar[dict[str, bool]] = {
        **dict.fromkeys(("lin_key", "lin_query", "lin_value", "lin_skip"), True),
        **dict.fromkeys(("lin_edge", "lin_beta"), False),
    }
    returns_weights_before_dropout = True

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        beta: bool = False,
        dropout: float = 0.0,
        edge_dim: int | None = None,
        bias: bool = True,
        root_weight: bool = True,
        **kwargs: Any,
    ) -> None:
        columns = input_columns("in_channels", in_channels), positive("out_channels", out_channels)
        heads, drop = positive("heads", heads), probability("dropout", dropout)
        super().__init__(*columns, heads, concat, beta, drop, edge_dim, bias, root_weight, **kwargs)
        self.check(self)

    @classmethod
    def check(cls, conv: MessagePassing) -> None:
        super().check(conv)
        if conv.lin_edge is not None and conv.edge_dim == 0:
            raise refuse(conv, "edge_dim=0", "leave edge_dim out")

    def _attended(self, call: AttentionCall) -> tuple[Terms, Tensor]:
        given, graph = call.given, call.graph
        own = given.own_rows()
        if own is None:
            raise ValueError("TransformerConv needs the rows of the targets; give x as (sources, targets)")
        set_width(own, self.lin_query)
        set_width(given.x, self.lin_key, self.lin_value)
        dtype = ops.compute_dtype(self.lin_value.weight)
        wide = ops.wide_dtype(dtype)
        edge_rows = self._edge_rows(call, wide)
        if edge_rows is None and self.lin_edge is not None:
            raise ValueError("the layer was constructed with edge_dim, but edge_attr is not given")
        set_width(own, self.lin_skip if self.root_weight else None)
        check_input(given.x, self.lin_key.weight.size(1), dtype)
        check_input(own, self.lin_query.weight.size(1), dtype, "rows of the targets")
        by_head = self._multiplies_sources(graph)
        table, row = self._keys_and_values(given.x, dtype) if by_head else table_of(given.x, wide)
        attended = ops.attention(
            table,
            graph.indptr,
            graph.indices,
            self._score_weights(own, graph.num_targets, wide, by_head),
            edge_rows=edge_rows,
            row=row,
            by_source=graph.by_source_for(table),
            by_head=by_head,
            negative_slope=1.0,
            out_dtype=dtype,
            **call.options(),
        )
        terms = self._joined(attended.out) if by_head else self._transform(attended)
        if not self.root_weight:
            return terms, attended.coefficient
        if self.lin_beta is not None:
            terms = Terms(values=self._gated(total([terms], None, graph), own))
        else:
            terms = replace(terms, root=self.lin_skip.weight, bias=self.lin_skip.bias)
        return terms, attended.coefficient

    def _multiplies_sources(self, graph: LayerGraph) -> bool:
        """Returns whether sources are multiplied first: heads then read C columns, not K."""
        own, width, of_edge = self._columns()
        products = self.heads * self.out_channels
        queries = own * products
        of_target = min(own * self.heads * width, queries + products * width) + products * width
        raw = graph.num_targets * of_target + _EDGE_COST * graph.num_edges * self.heads * width
        multiplied = (
            graph.num_sources * 2 * (width - of_edge) * products
            + graph.num_targets * (queries + 2 * products * of_edge)
            + _EDGE_COST * graph.num_edges * self.heads * (self.out_channels + of_edge)
        )
        return multiplied < _LEAST_GAIN * raw

    def _columns(self) -> tuple[int, int, int]:
        of_edge = 0 if self.lin_edge is None else self.lin_edge.weight.size(1)
        return self.lin_query.weight.size(1), self.lin_key.weight.size(1) + of_edge, of_edge

    def _score_weights(self, own: Rows, targets: int, dtype: torch.dtype, by_head: bool) -> Tensor:
        """Returns [D, H, columns], the vectors W^T q / sqrt(C) of each target and head, for the
        query q and the weights W of keys and edge features."""
        scale, by_heads = 1 / math.sqrt(self.out_channels), (self.heads, -1)
        query, bias = self.lin_query.weight.to(dtype) * scale, self.lin_query.bias
        bias = None if bias is None else bias.to(dtype) * scale
        options: dict[str, Any] = {"num_rows": targets, "out_dtype": dtype}
        columns, width, _ = self._columns()
        # The weights of queries and keys are multiplied first where that is less work.
        if not by_head and columns * width < self.out_channels * (columns + width):
            rows = query.t() if bias is None else torch.cat([query.t(), bias.unsqueeze(0)])
            both = ops.linear([rows], [self._key_weight(dtype)], groups=self.heads, out_dtype=dtype)
            weight, bias = both[: query.size(1)].t(), None if bias is None else both[-1]
            return ops.linear([own], [weight], bias, **options).unflatten(1, by_heads)
        queries = ops.linear([own], [query], bias, **options)
        if not by_head:
            found = ops.linear([queries], [self._key_weight(dtype)], groups=self.heads, **options)
            return found.unflatten(1, by_heads)
        if self.lin_edge is None:
            return queries.unflatten(1, by_heads)
        weight = self._transposed(self.lin_edge.weight, dtype)
        of_edges = ops.linear([queries], [weight], groups=self.heads, **options)
        return torch.cat([queries.unflatten(1, by_heads), of_edges.unflatten(1, by_heads)], dim=2)

    def _key_weight(self, dtype: torch.dtype) -> Tensor:
        """Returns the weights of keys and edge features, transposed, [H * (K + edge_dim), C]."""
        return self._transposed(self._with_edge_weight(self._of_keys()), dtype)

    def _of_keys(self) -> Tensor:
        """Returns the weight of keys; their bias cancels in the softmax."""
        weight, bias = self.lin_key.weight, self.lin_key.bias
        return weight if bias is None else _BesideUnseen.apply(weight, bias)

    def _transposed(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns [H * K, C], each head's part of a weight [H * C, K] transposed."""
        by_head = weight.to(dtype).unflatten(0, (self.heads, self.out_channels))
        return by_head.transpose(1, 2).flatten(0, 1)

    def _with_edge_weight(self, weight: Tensor) -> Tensor:
        return weight if self.lin_edge is None else torch.cat([weight, self.lin_edge.weight], dim=1)

    def _keys_and_values(self, x: Rows, dtype: torch.dtype) -> tuple[Tensor, None]:
        weight, bias = torch.cat([self._of_keys(), self.lin_value.weight]), self.lin_value.bias
        if bias is not None:
            bias = torch.cat([torch.zeros_like(bias), bias])
        return ops.linear([x], [weight], bias, out_dtype=dtype), None

    def _transform(self, attended: ops.Attention) -> Terms:
        weight, groups = self.joining(self._with_edge_weight(self.lin_value.weight))
        products = [RowProduct(attended.out, weight, groups)]
        if self.lin_value.bias is not None:
            # The bias of a value counts by its weight; these sum to one only without dropout.
            bias, groups = self.joining(self.lin_value.bias.unsqueeze(1))
            products.append(RowProduct(attended.total, bias, groups))
        return Terms(tuple(products))

    def _joined(self, out: Tensor) -> Terms:
        """Returns the terms: sums of values, and products of sums of edge features."""
        values = out.unflatten(1, (self.heads, -1))
        products: tuple[RowProduct, ...] = ()
        if self.lin_edge is not None:
            values, features = values.split([self.out_channels, self._columns()[2]], dim=2)
            products = (RowProduct(features.flatten(1), *self.joining(self.lin_edge.weight)),)
        return Terms(products, values=values.flatten(1) if self.concat else values.mean(dim=1))

    def _gated(self, out: Tensor, own: Rows) -> Tensor:
        """Returns b * skip + (1 - b) * out with b = sigmoid(w . [out, skip, out - skip])."""
        skip = ops.linear([own], [self.lin_skip.weight], self.lin_skip.bias, num_rows=out.size(0))
        of_out, of_skip, of_difference = self.lin_beta.weight.chunk(3, dim=1)
        gate = ops.linear([out, skip], [of_out + of_difference, of_skip - of_difference])
        return torch.lerp(out, skip, gate.sigmoid())


class _BesideUnseen(torch.autograd.Function):
    """Returns its first argument, and gives its second one a gradient of zeros."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, unseen: Tensor) -> Tensor:
        ctx.shape = unseen.shape
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        return grads[0], grads[0].new_zeros(ctx.shape)
