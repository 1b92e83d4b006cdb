"""Dot-product attention, the layer of graph transformers (Shi et al. 2021)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import Aggregated
from pyg_batchgnn.nn.gat import AttentionCall, AttentionConv, table_of
from pyg_batchgnn.nn.inputs import ConvInput, Edges, Rows, check_input
from pyg_batchgnn.nn.linear import set_width
from pyg_batchgnn.nn.native_conv import input_columns, positive, probability
from pyg_batchgnn.nn.terms import RowProduct, Terms, Update, total


class TransformerConv(AttentionConv, torch_geometric.nn.TransformerConv):
    """PyG's `TransformerConv` with the same arguments, initialisation and ``state_dict``; rows are
    read in place.

    A score is q . (W_k x + b_k) = (W_k^T q) . x + q . b_k, and the softmax does not see the last
    term, which all edges of a target share. So every target gets a vector W_k^T q, and attention
    reads the raw rows of the sources, once for scores and sums. The product with W_v follows, of D
    rows instead of N.

    Args:
        in_channels: the number of columns of x, or (of sources, of targets); -1 takes it from the
            first call.
        out_channels: the number of columns of a head, C.
        heads: the number of heads, H.
        concat: puts the heads side by side; otherwise takes their mean.
        beta: weighs the product of the own rows of the targets against the attention, by a learned
            gate; without effect where ``root_weight`` is False.
        dropout: the probability of dropping an attention weight, keyed as docs/reference/layers.md
            says.
        edge_dim: the number of columns of edge features, which are multiplied by one weight and
            added to keys and values; None without edge features.
        bias: adds biases to queries, keys, values and the product of the own rows.
        root_weight: adds a product of the own rows of the targets.
        **kwargs: the other arguments of PyG, at their default values.

    Raises:
        ValueError: PyG's layer supports the arguments and this one does not.
    """

    read_parts: ClassVar[dict[str, bool]] = {
        **dict.fromkeys(("lin_key", "lin_query", "lin_value", "lin_skip"), True),
        **dict.fromkeys(("lin_edge", "lin_beta"), False),
    }

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

    def forward(
        self,
        x: Rows | Aggregated | tuple[Rows, Rows | None],
        edge_index: Edges,
        layer: int | Tensor | None = None,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
        *,
        update: Update | None = None,
    ) -> Tensor | tuple[Tensor, tuple[Tensor, Tensor]]:
        """Returns the rows of the targets of the layer, from the arguments of `GATConv.forward`.

        Args:
            return_attention_weights: True and, as in PyG, False return the edges and their weights
                before dropout as well.
        """
        call = self._call(x, edge_index, layer, edge_attr)
        terms, coefficient = self._attended(call)
        own = call.given.own_rows()
        result = total([terms], own, call.given.graph, update, self.training)
        if return_attention_weights is None:
            return result
        return result, call.slots.pyg_form(coefficient.abs())

    def terms(self, given: ConvInput, edge_attr: Tensor | None = None) -> Terms:
        return self._attended(self._call_of(given, edge_attr))[0]

    def _attended(self, call: AttentionCall) -> tuple[Terms, Tensor]:
        """Returns the terms of the result, and the weights before dropout with signs, [E, H]."""
        given, graph = call.given, call.given.graph
        own = given.own_rows()
        if own is None:
            raise ValueError("TransformerConv needs the rows of the targets; give x as (sources, targets)")
        self._initialise(given.x, own, call.edge_attr)
        dtype = ops.compute_dtype(self.lin_value.weight)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        check_input(given.x, self.lin_key.weight.size(1), dtype)
        check_input(own, self.lin_query.weight.size(1), dtype, "rows of the targets")
        edge_rows = self._edge_rows(call, wide)
        table, row = table_of(given.x, wide)
        attended = ops.attention(
            table,
            graph.indptr,
            graph.indices,
            self._score_weights(own, graph.num_targets, wide),
            edge_rows=edge_rows,
            row=row,
            node=graph.node,
            by_source=graph.by_source if table.requires_grad and torch.is_grad_enabled() else (),
            negative_slope=1.0,
            drop=call.drop,
            key=call.key,
            out_dtype=dtype,
        )
        terms = self._transform(attended)
        if self.root_weight and self.lin_beta is not None:
            terms = Terms(values=self._gated(total([terms], None, graph), own))
        return terms, attended.coefficient

    def _initialise(self, x: Rows, own: Rows, edge_attr: Tensor | None) -> None:
        features = edge_attr.unsqueeze(1) if edge_attr is not None and edge_attr.dim() == 1 else edge_attr
        skip = self.lin_skip if self.root_weight else None
        for linear, rows in ((self.lin_query, own), (self.lin_key, x), (self.lin_value, x)):
            set_width(linear, rows)
        set_width(self.lin_edge, features)
        set_width(skip, own)

    def _edge_rows(self, call: AttentionCall, dtype: torch.dtype) -> Tensor | None:
        features = self._edge_features(call, dtype)
        if features is not None:
            return features.edges.contiguous()
        if self.lin_edge is not None:
            raise ValueError("the layer was constructed with edge_dim, but edge_attr is not given")
        return None

    def _score_weights(self, own: Rows, targets: int, dtype: torch.dtype) -> Tensor:
        """Returns W^T q / sqrt(C) of each target and head, [D, H, K + edge_dim], for the queries q
        and the weights W of keys and edge features."""
        heads, columns = self.heads, self.out_channels
        weight = self.lin_key.weight
        if self.lin_key.bias is not None:
            weight = _BesideUnseen.apply(weight, self.lin_key.bias)
        weight = self._with_edge_weight(weight).to(dtype) / math.sqrt(columns)
        width = weight.size(1)
        transposed = weight.view(heads, columns, width).transpose(1, 2).reshape(heads * width, columns)
        query, bias = self.lin_query.weight.to(dtype), self.lin_query.bias
        bias = None if bias is None else bias.to(dtype)
        options: dict[str, Any] = {"num_rows": targets, "out_dtype": dtype}
        if query.size(1) * width < columns * (query.size(1) + width):
            # Multiplying both weights first takes fewer products for each target.
            rows = query.t() if bias is None else torch.cat([query.t(), bias.unsqueeze(0)])
            both = ops.linear([rows], [transposed], groups=heads, out_dtype=dtype)
            bias = None if bias is None else both[-1]
            found = ops.linear([own], [both[: query.size(1)].t()], bias, **options)
        else:
            queries = ops.linear([own], [query], bias, **options)
            found = ops.linear([queries], [transposed], groups=heads, **options)
        return found.view(targets, heads, width)

    def _transform(self, attended: ops.Attention) -> Terms:
        weight, groups = self.joining(self._with_edge_weight(self.lin_value.weight))
        products = [RowProduct(attended.out, weight, groups)]
        if self.lin_value.bias is not None:
            # The bias of a value counts by its weight; these sum to one only without dropout.
            bias, groups = self.joining(self.lin_value.bias.unsqueeze(1))
            products.append(RowProduct(attended.total, bias, groups))
        if not self.root_weight or self.lin_beta is not None:
            return Terms(tuple(products))
        return Terms(tuple(products), self.lin_skip.weight, self.lin_skip.bias)

    def _with_edge_weight(self, weight: Tensor) -> Tensor:
        return weight if self.lin_edge is None else torch.cat([weight, self.lin_edge.weight], dim=1)

    def _gated(self, out: Tensor, own: Rows) -> Tensor:
        """Returns b * skip + (1 - b) * out with b = sigmoid(w . [out, skip, out - skip])."""
        skip = ops.linear([own], [self.lin_skip.weight], self.lin_skip.bias, num_rows=out.size(0))
        of_out, of_skip, of_difference = self.lin_beta.weight.chunk(3, dim=1)
        gate = ops.linear([out, skip], [of_out + of_difference, of_skip - of_difference])
        return torch.lerp(out, skip, gate.sigmoid())


class _BesideUnseen(torch.autograd.Function):
    """Returns the first argument, and gives the second one a gradient of zeros."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, unseen: Tensor) -> Tensor:
        ctx.shape = unseen.shape
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        return grads[0], grads[0].new_zeros(ctx.shape)
