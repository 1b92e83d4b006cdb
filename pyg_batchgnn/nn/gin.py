"""GIN (Xu et al. 2019): sums over neighbours, then a perceptron."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import Aggregated
from pyg_batchgnn.nn.inputs import ConvInput, Edges, LayerGraph, Rows, RowView, check_input, table_and_row
from pyg_batchgnn.nn.layer_steps import RowProduct, Terms, Update, convolve, fused_norm
from pyg_batchgnn.nn.modules import BatchNorm, Linear, is_watched, linear_of, native_norm
from pyg_batchgnn.nn.native_conv import NativeConv, layer_name, refuse


class OverSums(NativeConv):
    """The base of layers that apply a module to the own row plus a sum over neighbours."""

    nn: torch.nn.Module
    eps: Tensor

    @classmethod
    def check(cls, conv: MessagePassing) -> None:
        super().check(conv)
        if not isinstance(conv.nn, torch.nn.Module):
            raise refuse(conv, f"nn={conv.nn!r}", "give it a torch.nn.Module")
        if not isinstance(conv.eps, Tensor) or conv.eps.numel() != 1:
            raise refuse(conv, f"eps={conv.eps!r}", f"use torch_geometric.nn.{layer_name(conv)}")

    def terms_of(self, sums: Tensor, norm: BatchNorm | None) -> Terms:
        module = self.get_submodule("nn")
        if norm is not None:
            return Terms(values=module(sums, norm))
        if not is_watched(module) and isinstance(module, Perceptron):
            return module.terms(sums)
        return Terms(values=module(sums))

    def _dtype(self) -> torch.dtype:
        parameter = next((one for one in self.nn.parameters() if one.is_floating_point()), self.eps)
        return ops.compute_dtype(parameter)

    def with_own(self, sums: Tensor, own: Rows | None) -> Tensor:
        if own is None:
            return sums
        own = own.gather() if isinstance(own, RowView) else own
        return sums + ((1.0 + self.eps) * own).to(sums.dtype)


class GINConv(OverSums, torch_geometric.nn.GINConv):
    """PyG's `GINConv`: ``nn((1 + eps) * x[i] + sum of x over the in-edges of i)``.

    >>> GINConv(torch.nn.Linear(data.num_features, 16))(data.x, data.edge_index).shape
    torch.Size([100, 16])

    Args:
        nn: a module from [D, F] to [D, F'].
        eps: the weight of a target's own row is 1 + eps.
        train_eps: learns eps.
        **kwargs: the other arguments of PyG; only sums are supported.
    """

    edge_values: ClassVar[str | None] = None

    def __init__(self, nn: torch.nn.Module, eps: float = 0.0, train_eps: bool = False, **kwargs: Any) -> None:
        super().__init__(nn, eps, train_eps, **kwargs)
        self.check(self)

    def forward(
        self,
        x: Rows | Aggregated | tuple[Rows, Rows | None],
        edge_index: Edges,
        layer: int | tuple[int, int] | None = None,
        *,
        size: tuple[int, int] | None = None,
        norm: BatchNorm | None = None,
        update: Update | None = None,
    ) -> Tensor:
        """Returns the rows of the layer's targets, [D, F'], from the arguments of
        `SAGEConv.forward` and ``norm``: the normalisation after the module, which takes it as
        second argument. ``update`` follows both."""
        return convolve(self, x, edge_index, layer, size, update, norm=norm)

    def terms(self, given: ConvInput, norm: BatchNorm | None = None) -> Terms:
        return self.terms_of(self._sums(given), norm)

    def known_terms(self, x: Aggregated, _: LayerGraph, norm: BatchNorm | None = None) -> tuple[Terms, None]:
        neighbours, own, dtype = x.of(self, "sum"), x.own_of(self), self._dtype()
        check_input(neighbours, own.size(1), dtype, "aggregates")
        table, row = table_and_row(own)
        out = ops.aggregate(  # without edges, for its memory and its gradient of eps
            table,
            torch.zeros(own.size(0) + 1, dtype=torch.int64),
            torch.empty(0, dtype=torch.int64),
            row=row,
            self_scale=(1.0 + self.eps).view(1),
            out_dtype=torch.promote_types(dtype, torch.float32),
        )
        sums = neighbours.gather() if isinstance(neighbours, RowView) else neighbours
        return self.terms_of(out.add_(sums).to(dtype), norm), None

    def _sums(self, given: ConvInput) -> Tensor:
        """Returns (1 + eps) * x[i] + the sum over the in-edges of i, [D, F]."""
        dtype = self._dtype()
        graph, x = given.graph, given.x
        check_input(x, x.size(1), dtype)
        sources, row = table_and_row(x)
        out = ops.aggregate(
            sources,
            graph.indptr,
            graph.indices,
            row=row,
            self_scale=(1.0 + self.eps).view(1) if given.targets_in_sources else None,
            by_source=graph.by_source_for(sources),
            out_dtype=dtype,
        )
        return self.with_own(out, None if given.targets_in_sources else given.own_rows())


class Perceptron(torch.nn.Module):
    """Two linear layers with normalisation and activation in between, in fewer passes."""

    def __init__(
        self,
        channels: tuple[int, int, int],
        act: torch.nn.Module | None,
        act_first: bool,
        norm: torch.nn.Module,
    ) -> None:
        super().__init__()
        self.act = act
        self.act_first = act_first
        self.lins = torch.nn.ModuleList(linear_of(a, b) for a, b in pairwise(channels))
        relu = type(act) is torch.nn.ReLU and not act_first
        self.norms = torch.nn.ModuleList([native_norm(norm, relu)])

    def forward(self, input: Tensor, after: BatchNorm | None = None) -> Tensor:
        """Returns [D, channels[2]] from [D, channels[0]], normalised by ``after``."""
        last, inner, is_rectified = self._last(input)
        if after is not None:
            return after.of_product(last, inner, after_relu=is_rectified)
        result: Tensor = last.after_relu(inner) if is_rectified else last(inner)
        return result

    def terms(self, input: Tensor) -> Terms:
        last, inner, is_rectified = self._last(input)
        if is_watched(last):
            return Terms(values=last(inner))
        return Terms((RowProduct(inner, last.weight, after_relu=is_rectified),), bias=last.bias)

    def _last(self, input: Tensor) -> tuple[Linear, Tensor, bool]:
        """Returns the second layer, its input [D, channels[1]], and whether a ReLU made that."""
        (first, last), norm = self.lins, self.norms[0]
        assert isinstance(first, Linear) and isinstance(last, Linear)
        if type(self.act) is torch.nn.ReLU and not is_watched(self.act):
            inside = fused_norm(norm)
            if inside is not None:
                return last, inside.of_product(first, input), True
            if type(norm) is torch.nn.Identity:
                return last, first.with_relu(input), True
        rows, steps = first(input), [norm] if self.act is None else [norm, self.act]
        for step in reversed(steps) if self.act_first else steps:
            rows = step(rows)
        return last, rows, False
