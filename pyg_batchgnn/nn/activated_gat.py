"""The graph attention of DistGNN-MB, with bias and ReLU before the attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import Aggregated
from pyg_batchgnn.nn.attention import AttentionCall
from pyg_batchgnn.nn.gat import GATConv
from pyg_batchgnn.nn.inputs import ConvInput, Edges, Rows
from pyg_batchgnn.nn.precision import check_input
from pyg_batchgnn.nn.refusals import refuse
from pyg_batchgnn.nn.terms import Terms, total
from pyg_batchgnn.nn.update import Update


class ActivatedGATConv(GATConv):
    """The graph attention of DistGNN-MB (section 2, equation 2).

    Each source u has the row z(u) = ReLU(W x(u) + b). Logits are linear in z, and the result is the
    sum of z over the neighbours, weighted by attention. So the product has a row for every source.

    The arguments are those of `GATConv`, without features of edges and residuals. The bias has
    ``heads * out_channels`` numbers, also without ``concat``.

    Raises:
        ValueError: features of edges, a residual, or inputs of two types.
    """

    bias: torch.nn.Parameter | None

    def __init__(
        self, in_channels: int, out_channels: int, heads: int = 1, concat: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(in_channels, out_channels, heads, concat, **kwargs)
        if self.edge_dim is not None or self.res is not None or self.lin is None:
            what = "features of edges, residuals or inputs of two types"
            raise refuse(self, what, "take GATConv")
        if self.bias is not None and not concat:
            self.bias = torch.nn.Parameter(torch.zeros(heads * out_channels))

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
    ) -> Tensor:
        """Returns the rows of the targets of the layer; see `GATConv.forward`."""
        if return_attention_weights:
            raise refuse(self, "return_attention_weights", "take GATConv")
        call = self._call(x, edge_index, layer, edge_attr, size)
        return total([Terms(values=self._values(call))], None, call.given.graph, update, self.training)

    def terms(self, given: ConvInput, edge_attr: Tensor | None = None) -> Terms:
        """Returns the terms of the rows of the targets."""
        return Terms(values=self._values(self._call_of(given, edge_attr)))

    def _values(self, call: AttentionCall) -> Tensor:
        """Returns the rows of the targets, [D, heads * out_channels or out_channels]."""
        given = call.given
        if not given.targets_in_sources or call.edge_attr is not None:
            raise refuse(self, "features of edges or inputs of two types", "take GATConv")
        self._initialise(given)
        dtype = ops.compute_dtype(self.att_src)
        check_input(given.x, self.lin.weight.size(1), dtype)
        rows = torch.relu(
            ops.linear([given.x], [self.lin.weight], self.bias, num_rows=given.x.size(0), out_dtype=dtype)
        )
        by_head = rows.view(-1, self.heads, self.out_channels).unbind(1) if self.heads > 1 else [rows]
        heads = [self._attended(head, z, call) for head, z in enumerate(by_head)]
        return torch.cat(heads, dim=1) if self.concat else torch.stack(heads).mean(dim=0)

    def _attended(self, head: int, z: Tensor, call: AttentionCall) -> Tensor:
        """Returns the weighted sums of one head, [D, out_channels]."""
        graph = call.given.graph
        wide = torch.float64 if z.dtype == torch.float64 else torch.float32
        source, target = (one.view(self.heads, -1)[head : head + 1] for one in (self.att_src, self.att_dst))
        return ops.attention(
            z,
            graph.indptr,
            graph.indices,
            source.to(wide),
            target_weight=target.to(wide),
            node=graph.node,
            by_source=graph.by_source if z.requires_grad and torch.is_grad_enabled() else (),
            loops=call.slots.loops,
            negative_slope=self.negative_slope,
            drop=call.drop,
            key=ops.part_key(call.key, f"head {head}") if call.drop > 0 else 0,
        ).out
