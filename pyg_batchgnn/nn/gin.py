"""GIN's convolution (Xu et al. 2019): sums over neighbours, then any multilayer perceptron."""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import Aggregated, all_nodes
from pyg_batchgnn.nn.graph import LayerGraph
from pyg_batchgnn.nn.inputs import ConvInput, Edges, Rows, conv_input, sampled
from pyg_batchgnn.nn.norm import BatchNorm, NormOnRead
from pyg_batchgnn.nn.precision import check_input
from pyg_batchgnn.nn.refusals import check_called, check_constructed, refuse
from pyg_batchgnn.nn.rows import NormedRows, RowView
from pyg_batchgnn.nn.update import Update, update_arguments


class GINConv(torch_geometric.nn.GINConv):
    """``torch_geometric.nn.GINConv``: ``nn((1 + eps) * x[i] + sum of x over i's in-edges)``.

    Args:
        nn: any module from [D, F] to [D, F'], torch's or ours.
        eps: what a target's own row weighs above one.
        train_eps: whether eps is learned.
        **kwargs: PyG's; only sums are supported.
    """

    def __init__(self, nn: torch.nn.Module, eps: float = 0.0, train_eps: bool = False, **kwargs: Any) -> None:
        super().__init__(nn, eps, train_eps, **kwargs)
        check_constructed(self)
        if self.aggr not in ("add", "sum"):
            raise refuse(self, f"aggr={kwargs['aggr']!r}", "use torch_geometric.nn.GINConv")

    def forward(
        self,
        x: Rows | NormedRows | Aggregated | tuple[Rows, Rows | None],
        edge_index: Edges,
        layer: int | tuple[int, int] | None = None,
        *,
        size: tuple[int, int] | None = None,
        norm: BatchNorm | NormOnRead | None = None,
        update: Update | None = None,
    ) -> Tensor | NormedRows:
        """Called as ``conv(x, minibatch, layer)`` or, as in PyG, ``conv(x, edge_index)``.

        Args:
            x: [>= N, F] rows of the sources, the targets' first, or a `RowView` of them; or a pair of sources
                and targets; or `Aggregated`, with which the minibatch's nodes are all computed.
            edge_index: a minibatch, or [2, E] sources above targets.
            layer: of the minibatch, 1 nearest the input. (PyG's ``size`` in this place is understood.)
            size: (sources, targets) of an edge_index, where rows do not tell.
            norm: normalisation after the module, which takes it as its second argument.
            update: ReLU and dropout after both.

        Returns:
            [D, F']; `NormedRows` only where ``norm`` is a `NormOnRead`.
        """
        check_called(self)
        if isinstance(x, Aggregated):
            graph = all_nodes(sampled(edge_index))
            return self._finish(self._known(x), norm, update, graph)
        if layer is not None and not isinstance(layer, int):
            layer, size = None, layer
        if isinstance(x, NormedRows) and self._needs_values():
            x = x.gather()
        given = conv_input(x.product if isinstance(x, NormedRows) else x, edge_index, layer, size)
        sums = self._sums(given, x if isinstance(x, NormedRows) else None)
        return self._finish(sums, norm, update, given.graph)

    def _finish(
        self, sums: Tensor, norm: BatchNorm | NormOnRead | None, update: Update | None, graph: LayerGraph
    ) -> Tensor | NormedRows:
        """The module of the sums, and what follows it."""
        out: Tensor | NormedRows = self.nn(sums) if norm is None else self.nn(sums, norm)
        if update is None:
            return out
        assert isinstance(out, Tensor), "what is yet to be normalised is followed by nothing"
        return ops.activate(out, **update_arguments(update, graph, self.training))

    def _dtype(self) -> torch.dtype:
        """In which the module computes."""
        parameter = next((one for one in self.nn.parameters() if one.is_floating_point()), self.eps)
        return ops.compute_dtype(parameter)

    def _known(self, x: Aggregated) -> Tensor:
        """What `_sums` gives, of sums made beforehand."""
        neighbours, own, dtype = x.of(self, "sum"), x.own_of(self), self._dtype()
        check_input(neighbours, own.size(1), dtype, "aggregates")
        table, row = (own.table, own.row) if isinstance(own, RowView) else (own, None)
        out = ops.aggregate(  # without an edge, for its memory and its gradient of eps
            table,
            torch.zeros(own.size(0) + 1, dtype=torch.int64),
            torch.empty(0, dtype=torch.int64),
            row=row,
            self_scale=(1.0 + self.eps).view(1),
            out_dtype=torch.promote_types(dtype, torch.float32),
        )
        sums = neighbours.gather() if isinstance(neighbours, RowView) else neighbours
        return out.add_(sums).to(dtype)

    def _needs_values(self) -> bool:
        """Whether values must be there, for the gradient of eps or to be summed in float64."""
        return self.eps.requires_grad or self._dtype() is torch.float64

    def _sums(self, given: ConvInput, normed: NormedRows | None) -> Tensor:
        """(1 + eps) * x[i] + the sum over i's in-edges, [D, F], in the type that the module computes in;
        where x is the product of ``normed``, of its values."""
        dtype = self._dtype()
        sources, row = (given.x.table, given.x.row) if isinstance(given.x, RowView) else (given.x, None)
        check_input(given.x, given.x.size(1), dtype)
        graph = given.graph
        by_source = graph.by_source if sources.requires_grad and torch.is_grad_enabled() else ()
        scale = (1.0 + self.eps).view(1)
        if normed is not None:
            return ops.aggregate_normed(
                sources, normed.columns, graph.indptr, graph.indices,
                self_scale=scale, by_source=by_source, sums=normed.sums, out_dtype=dtype,
            )  # fmt: skip
        out = ops.aggregate(
            sources,
            graph.indptr,
            graph.indices,
            row=row,
            self_scale=scale if given.beside else None,
            by_source=by_source,
            out_dtype=dtype,
        )
        if given.beside or given.own is None:
            return out
        own = given.own.gather() if isinstance(given.own, RowView) else given.own
        return out + ((1.0 + self.eps) * own).to(dtype)
