"""GraphSAGE (Hamilton, Ying and Leskovec 2017, algorithm 1), and `GraphConv` (Morris and others
2019)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor
from torch_geometric.utils import scatter

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import Aggregated, refuse_aggregated
from pyg_batchgnn.nn.inputs import ConvInput, Edges, LayerGraph, Rows, RowView, Targets, check_input, table_of
from pyg_batchgnn.nn.layer_steps import RowProduct, Terms, Update, convolve, total
from pyg_batchgnn.nn.modules import set_width
from pyg_batchgnn.nn.native_conv import NativeConv, input_columns, positive


class _OfNeighbours(NativeConv):
    """The base of layers that add a product of the own row to one of the aggregated neighbours."""

    aggregations: ClassVar[dict[type[torch.nn.Module], str]] = {
        getattr(torch_geometric.nn, f"{name.title()}Aggregation"): name for name in ops.REDUCTIONS
    }
    lin_l: Any  # the layer of neighbours
    lin_r: Any  # that of the own rows
    root_weight = True
    normalize = project = False

    def terms(self, given: ConvInput, edge_weight: Tensor | None = None) -> Terms:
        own = given.own_rows() if self.root_weight else None
        dtype = self._check(given.x, own, "x")
        return self._terms(self._aggregate(given, edge_weight, dtype), own, given.graph)

    def _terms(self, neighbours: Rows, own: Rows | None, targets: Targets) -> Terms:
        root = self.lin_r.weight if self.root_weight else None
        terms = Terms((RowProduct(neighbours, self.lin_l.weight),), root, self.lin_l.bias)
        if not self.normalize:
            return terms
        return Terms(values=F.normalize(total([terms], own, targets), p=2.0, dim=-1))

    def _check(self, rows: Rows, own: Rows | None, name: str) -> torch.dtype:
        """Checks rows that are multiplied or aggregated first, and initialises lazy layers. Returns
        the dtype in which the layer computes."""
        set_width(rows, self.lin_l)
        set_width(own, self.lin_r if self.root_weight else None)
        dtype = ops.compute_dtype(self.lin_l.weight)
        check_input(rows, self.lin_l.weight.size(1), dtype, name)
        if own is not None:
            check_input(own, self.lin_r.weight.size(1), dtype, "rows of the targets")
        return dtype

    def known_terms(
        self, x: Aggregated, graph: LayerGraph, edge_weight: Tensor | None = None
    ) -> tuple[Terms, Rows | None]:
        reduce = self.aggregations[type(self.aggr_module)]  # not the attribute aggr, as in PyG
        if edge_weight is not None:
            raise refuse_aggregated(self, "they are of edges without weights")
        if self.project or reduce not in ops.SUMS:
            by = "a learned projection of the sources" if self.project else repr(reduce)
            raise refuse_aggregated(self, f"it aggregates by {by}")
        neighbours = x.of(self, reduce)
        own = x.own_of(self) if self.root_weight else None
        self._check(neighbours, own, "aggregates")
        return self._terms(neighbours, own, graph), own

    def _aggregate(self, given: ConvInput, edge_weight: Tensor | None, dtype: torch.dtype) -> Tensor:
        graph, reduce = given.graph, self.aggregations[type(self.aggr_module)]
        if edge_weight is None and not (self.project and hasattr(self, "lin")):
            return given.source.aggregate(graph, reduce, dtype)
        x, weight = given.x, None
        if edge_weight is None:
            x = ops.linear([x], [self.lin.weight], self.lin.bias, relu=True, out_dtype=dtype)
        else:
            weight = graph.edge_weights(edge_weight, ops.wide_dtype(dtype))
        if weight is not None and reduce not in ops.SUMS:  # which no kernel weighs
            rows = x.gather() if isinstance(x, RowView) else x
            messages = weight.unsqueeze(1) * rows[graph.indices.long()]
            return scatter(messages, graph.targets, 0, graph.num_targets, reduce).to(dtype)
        table, row = table_of(x, dtype)
        return ops.aggregate(
            *(table, graph.indptr, graph.indices),
            row=row,
            edge_weight=weight,
            by_source=graph.by_source_for(table),
            reduce=reduce,
            out_dtype=dtype,
        )


class SAGEConv(_OfNeighbours, torch_geometric.nn.SAGEConv):
    """PyG's `SAGEConv` with the same arguments, initialisation and ``state_dict``; rows are read in
    place.

    ``conv(x, minibatch, layer)`` computes one layer of a minibatch, ``conv(x, edge_index)`` a whole
    graph. Neighbours are aggregated before the product. Both products, bias, ReLU and dropout are
    one pass.

    >>> SAGEConv(data.num_features, 16)(data.x, data.edge_index).shape
    torch.Size([100, 16])

    Args:
        in_channels: columns of x, or (of sources, of targets); -1 takes them from the first call.
        out_channels: columns of the result.
        aggr: a name that `ops.aggregate` takes, "add" for "sum", or PyG's module for one.
        normalize: scales the rows of the result to length 1.
        root_weight: adds a product of the root nodes' features.
        project: applies a product and ReLU to every source before aggregation (Eq. 3 of the paper).
        bias: adds a bias.
        **kwargs: the other arguments of PyG, at their default values.
    """

    edge_values: ClassVar[str | None] = None
    read_parts: ClassVar[dict[str, bool]] = {"lin": True, "lin_l": True, "lin_r": False}

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        aggr: Any = "mean",
        normalize: bool = False,
        root_weight: bool = True,
        project: bool = False,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        columns = input_columns("in_channels", in_channels), positive("out_channels", out_channels)
        super().__init__(*columns, aggr, normalize, root_weight, project, bias, **kwargs)
        self.check(self)

    def forward(
        self,
        x: Rows | Aggregated | tuple[Rows, Rows | None],
        edge_index: Edges,
        layer: int | tuple[int, int] | None = None,
        *,
        size: tuple[int, int] | None = None,
        update: Update | None = None,
    ) -> Tensor:
        """Returns the rows of the layer's targets.

        Args:
            x: [>= N, in_channels], the rows of the sources, a tensor or a `RowView`. The first D
                are the rows of the targets. Or a pair (sources, targets) or (sources, None); or
                `Aggregated`, which computes all nodes of the minibatch.
            edge_index: a minibatch with ``layer``, or [2, E] with sources above targets.
            layer: the number of the layer in the minibatch; 1 is nearest the input. PyG's ``size``
                is accepted in this place.
            size: (N, D), for an ``edge_index`` between nodes of two types.
            update: ReLU and dropout in the same pass.

        Returns:
            [D, out_channels] of the dtype of the weights; bfloat16 under autocast.
        """
        return convolve(self, x, edge_index, layer, size, update)


class GraphConv(_OfNeighbours, torch_geometric.nn.GraphConv):
    """PyG's `GraphConv`: a product of the aggregated neighbours, weighted by edge, plus one of the
    own row. It has PyG's arguments, initialisation and ``state_dict``.

    >>> conv = GraphConv(data.num_features, 16)
    >>> conv(data.x, data.edge_index, torch.rand(data.num_edges)).shape
    torch.Size([100, 16])

    Args:
        in_channels, out_channels, aggr, bias, **kwargs: as in `SAGEConv`.
    """

    edge_values: ClassVar[str | None] = "edge_weight"
    read_parts: ClassVar[dict[str, bool]] = {"lin_rel": True, "lin_root": False}
    lin_l = property(lambda self: self.lin_rel)
    lin_r = property(lambda self: self.lin_root)

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        aggr: Any = "add",
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        columns = input_columns("in_channels", in_channels), positive("out_channels", out_channels)
        super().__init__(*columns, aggr, bias, **kwargs)
        self.check(self)

    def forward(
        self,
        x: Rows | Aggregated | tuple[Rows, Rows | None],
        edge_index: Edges,
        layer: int | Tensor | None = None,
        edge_weight: Tensor | None = None,
        size: tuple[int, int] | None = None,
        *,
        update: Update | None = None,
    ) -> Tensor:
        """Returns the rows of the layer's targets. ``edge_weight``, also accepted in the third
        place, is as in `GCNConv.forward`, the other arguments as in `SAGEConv.forward`."""
        return convolve(self, x, edge_index, layer, size, update, edge_weight=edge_weight)
