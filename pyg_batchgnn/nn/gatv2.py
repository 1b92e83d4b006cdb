"""Graph attention whose scores are not linear (Brody, Alon and Yahav 2022)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import Aggregated
from pyg_batchgnn.nn.arguments import input_columns, positive, probability
from pyg_batchgnn.nn.attention import AttentionCall, AttentionConv
from pyg_batchgnn.nn.edge_scores import edge_scores
from pyg_batchgnn.nn.inputs import ConvInput, Edges, Rows
from pyg_batchgnn.nn.lazy import set_width
from pyg_batchgnn.nn.precision import check_input
from pyg_batchgnn.nn.refusals import refuse
from pyg_batchgnn.nn.slots import Fill
from pyg_batchgnn.nn.terms import Terms, total
from pyg_batchgnn.nn.update import Update


class GATv2Conv(AttentionConv, torch_geometric.nn.GATv2Conv):
    """PyG's `GATv2Conv` with the same arguments, initialisation and ``state_dict``.

    Every source is multiplied once. The sums of the rows of source and target are computed edge by
    edge in the forward and in the backward pass, so none of their size is kept.

    Args:
        in_channels: the number of columns of x, or (of sources, of targets); -1 takes it from the
            first call.
        out_channels: the number of columns of a head, C.
        heads: the number of heads, H.
        concat: puts the heads side by side; otherwise takes their mean.
        negative_slope: the slope of the leaky ReLU of the sums below 0.
        dropout: the probability of dropping an attention weight, keyed as docs/reference/layers.md
            says.
        add_self_loops: replaces the edges from a node to itself by one loop for every node.
        edge_dim: the number of columns of edge features; None without edge features.
        fill_value: the features of added loops, as in `GATConv`.
        bias: adds a bias, to the products too.
        share_weights: multiplies targets by the weight of sources.
        residual: adds a product of the own rows of the targets.
        **kwargs: the other arguments of PyG, at their default values.

    Raises:
        ValueError: PyG's layer supports the arguments and this one does not.
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
            share_weights,
            residual,
            **kwargs,
        )
        self.check(self)

    @classmethod
    def check(cls, conv: MessagePassing) -> None:
        """Raises ValueError if this layer cannot compute what one of PyG's does."""
        super().check(conv)
        if conv.share_weights and conv.lin_r is not conv.lin_l:
            raise refuse(conv, "share_weights with two linear layers", "give it when the layer is made")

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
        """Returns the rows of the targets of the layer.

        Args:
            x: [>= N, in_channels], the rows of the sources, a tensor or a `RowView`. The first D
                are the rows of the targets. Or a pair (sources, targets).
            edge_index: a minibatch with ``layer``, or [2, E] with sources above targets.
            layer: the number of the layer in the minibatch; 1 is nearest the input. PyG's
                ``edge_attr`` is accepted in this place.
            edge_attr: [E, edge_dim] (or [E]) for all edges of the minibatch, in its order, or of
                ``edge_index``.
            return_attention_weights: whether to return the edges and their weights after dropout as
                well.
            update: ReLU and dropout of the result.

        Returns:
            [D, heads * out_channels], or [D, out_channels] without ``concat``, of the weights'
            dtype, bfloat16 under autocast. With ``return_attention_weights`` a pair of this and
            ([2, E'] int64, [E', heads]), loops that were added behind the edges.
        """
        call = self._call(x, edge_index, layer, edge_attr)
        values, weights = self._values(call, bool(return_attention_weights))
        result = total([Terms(values=values)], None, call.given.graph, update, self.training)
        return result if weights is None else (result, call.slots.pyg_form(weights))

    def terms(self, given: ConvInput, edge_attr: Tensor | None = None) -> Terms:
        """Returns the terms of the rows of the targets."""
        return Terms(values=self._values(self._call_of(given, edge_attr), wants_weights=False)[0])

    def _values(self, call: AttentionCall, wants_weights: bool) -> tuple[Tensor, Tensor | None]:
        """Returns the rows of the targets, [D, columns], and the weights, [slots, H]."""
        own = call.given.own_rows()
        if own is None:
            raise ValueError("GATv2Conv needs the rows of the targets; give x as (sources, targets)")
        self._initialise(call.given.x, own)
        source, target = self._products(call.given, own)
        logits = self._logits(source, target, call)
        heads, weights = self._attend(source, logits, call, wants_weights)
        return self._joined(heads, own), weights

    def _initialise(self, x: Rows, own: Rows) -> None:
        """Initialises weights of unknown width at the first call, as PyG does."""
        for linear, rows in ((self.lin_l, x), (self.lin_r, own), (self.res, own)):
            set_width(linear, rows)

    def _products(self, given: ConvInput, own: Rows) -> tuple[Tensor, Tensor]:
        """Returns the products of sources [N, H * C] and of targets [D, H * C]."""
        dtype = ops.compute_dtype(self.att)
        check_input(given.x, self.lin_l.weight.size(1), dtype)
        check_input(own, self.lin_r.weight.size(1), dtype, "rows of the targets")
        source = _product(given.x, self.lin_l, dtype)
        if self.share_weights and given.targets_in_sources:
            return source, source[: given.graph.num_targets]
        return source, _product(own, self.lin_r, dtype)

    def _logits(self, source: Tensor, target: Tensor, call: AttentionCall) -> Tensor:
        """Returns the scores of all slots, [slots, H]."""
        slots, wide = call.slots, torch.float64 if source.dtype == torch.float64 else torch.float32
        attention = self.att.view(self.heads, self.out_channels).to(wide)
        edges, loops = self._edge_products(call, wide)
        scores = edge_scores(source, target, edges, attention, slots.graph, self.negative_slope)
        if not slots.loops:
            return scores
        sums = source[: slots.loops].to(wide) + target[: slots.loops].to(wide)
        sums = torch.nn.functional.leaky_relu(sums if loops is None else sums + loops, self.negative_slope)
        return slots.spread(scores, (sums.view(-1, *attention.shape) * attention).sum(dim=2))

    def _edge_products(self, call: AttentionCall, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """Returns the products of the features of edges [E, H * C] and of added loops."""
        features = self._edge_features(call, dtype)
        if features is None:
            return None, None
        weight = self.lin_edge.weight.to(dtype).t()
        with torch.autocast("cpu", enabled=False):
            return features.edges @ weight, None if features.loops is None else features.loops @ weight

    def _attend(
        self, source: Tensor, logits: Tensor, call: AttentionCall, wants_weights: bool
    ) -> tuple[list[Tensor], Tensor | None]:
        """Returns the weighted sums of each head, [D, C], and the weights, [slots, H]."""
        graph = call.given.graph
        nothing = logits.new_zeros(1, self.out_channels)
        by_source = graph.by_source if source.requires_grad and torch.is_grad_enabled() else ()
        sums, weights = [], []
        rows = source.view(-1, self.heads, self.out_channels).unbind(1) if self.heads > 1 else [source]
        for head, x in enumerate(rows):
            options: dict[str, Any] = {
                "node": graph.node,
                "loops": call.slots.loops,
                "drop": call.drop,
                "key": ops.part_key(call.key, f"head {head}") if call.drop > 0 else 0,
            }
            # The softmax and the sums of attention over inputs, of logits that are given.
            out, coefficient = ops.attention(
                x, graph.indptr, graph.indices, nothing,
                edge_logits=logits[:, head : head + 1].contiguous(),
                by_source=by_source, negative_slope=1.0, **options,
            )  # fmt: skip
            sums.append(out)
            if wants_weights:
                weights.append(ops.attention_weights(coefficient, graph.indptr, **options))
        return sums, torch.cat(weights, dim=1) if wants_weights else None

    def _joined(self, heads: list[Tensor], own: Rows) -> Tensor:
        """Joins the heads, and adds the residual and the bias."""
        out = torch.cat(heads, dim=1) if self.concat else torch.stack(heads).mean(dim=0)
        if self.res is not None:
            out = out + ops.linear([own], [self.res.weight], num_rows=out.size(0), out_dtype=out.dtype)
        return out if self.bias is None else out + self.bias.to(out.dtype)


def _product(rows: Rows, linear: Any, dtype: torch.dtype) -> Tensor:
    return ops.linear([rows], [linear.weight], linear.bias, num_rows=rows.size(0), out_dtype=dtype)
