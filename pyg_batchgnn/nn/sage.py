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
from pyg_batchgnn.nn.inputs import ConvInput, Edges, Rows, RowView, check_input, conv_input, table_of
from pyg_batchgnn.nn.layer_edges import Targets
from pyg_batchgnn.nn.linear import set_width
from pyg_batchgnn.nn.native_conv import NativeConv, input_columns, positive
from pyg_batchgnn.nn.terms import RowProduct, Terms, Update, total


class _OfNeighbours(NativeConv):
    """The base of layers that add a product of the own rows to one of the neighbours' reduced
    rows."""

    aggregations: ClassVar[dict[type[torch.nn.Module], str]] = {
        torch_geometric.nn.MeanAggregation: "mean",
        torch_geometric.nn.SumAggregation: "sum",
        torch_geometric.nn.MaxAggregation: "max",
    }
    linears: ClassVar[tuple[str, str]]  # the names of the layers of neighbours and of own rows
    root_weight = True
    normalize = project = False

    def _result(
        self,
        x: Rows | Aggregated | tuple[Rows, Rows | None],
        edges: Edges,
        layer: int | None,
        size: tuple[int, int] | None,
        update: Update | None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        self.check_call()
        if isinstance(x, Aggregated):
            if edge_weight is not None:
                raise refuse_aggregated(self, "they are of edges without weights")
            graph, (neighbours, own) = x.nodes(edges), self._known(x)
            return total([self._terms(neighbours, own, graph)], own, graph, update, self.training)
        given = conv_input(x, edges, layer, size)
        terms = self.terms(given, edge_weight)
        return total([terms], given.own_rows(), given.graph, update, self.training)

    def terms(self, given: ConvInput, edge_weight: Tensor | None = None) -> Terms:
        own = given.own_rows() if self.root_weight else None
        dtype = self._check(given.x, own, "x")
        return self._terms(self._aggregate(given, edge_weight, dtype), own, given.graph)

    def _linears(self) -> list[Any]:
        return [getattr(self, name, None) for name in self.linears]

    def _terms(self, neighbours: Rows, own: Rows | None, targets: Targets) -> Terms:
        linear, root = self._linears()
        weight = root.weight if self.root_weight else None
        terms = Terms((RowProduct(neighbours, linear.weight),), weight, linear.bias)
        if not self.normalize:
            return terms
        return Terms(values=F.normalize(total([terms], own, targets), p=2.0, dim=-1))

    def _check(self, rows: Rows, own: Rows | None, name: str) -> torch.dtype:
        """Checks what is multiplied, or aggregated first, and initialises lazy layers. Returns the
        dtype that the layer computes in."""
        linear, root = self._linears()
        set_width(rows, linear)
        set_width(own, root if self.root_weight else None)
        dtype = ops.compute_dtype(linear.weight)
        check_input(rows, linear.weight.size(1), dtype, name)
        if own is not None:
            check_input(own, root.weight.size(1), dtype, "rows of the targets")
        return dtype

    def _known(self, x: Aggregated) -> tuple[Rows, Rows | None]:
        reduce = self._reduction()
        if self.project or reduce == "max":
            of = "a learned projection of the sources" if self.project else "the maximum"
            raise refuse_aggregated(self, f"it aggregates by {of}")
        neighbours = x.of(self, reduce)
        own = x.own_of(self) if self.root_weight else None
        self._check(neighbours, own, "aggregates")
        return neighbours, own

    def _reduction(self) -> str:
        """Returns how rows of neighbours become one. The module decides, as in PyG, not the
        attribute ``aggr``."""
        return self.aggregations[type(self.aggr_module)]

    def _aggregate(self, given: ConvInput, edge_weight: Tensor | None, dtype: torch.dtype) -> Tensor:
        graph, reduce = given.graph, self._reduction()
        if edge_weight is None and not (self.project and hasattr(self, "lin")):
            return given.source.aggregate(graph, reduce, dtype)
        x, options = given.x, dict[str, Any]()
        if edge_weight is None:
            x = ops.linear([x], [self.lin.weight], self.lin.bias, relu=True, out_dtype=dtype)
        else:
            options["edge_weight"] = graph.edge_weights(edge_weight, ops.wide_dtype(dtype))
        table, row = table_of(x, dtype)
        if edge_weight is not None and reduce == "max":  # which no kernel weighs
            rows = x.gather() if isinstance(x, RowView) else x
            messages = options["edge_weight"].unsqueeze(1) * rows[graph.indices.long()]
            return scatter(messages, graph.targets, 0, graph.num_targets, reduce).to(dtype)
        return ops.aggregate(
            *(table, graph.indptr, graph.indices),
            row=row,
            by_source=graph.by_source_for(table),
            reduce=reduce,
            out_dtype=dtype,
            **options,
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
        aggr: "mean", "sum" (or "add") or "max", or one of PyG's modules for these.
        normalize: scales the rows of the result to length 1.
        root_weight: adds a product of the root nodes' features.
        project: applies a product and ReLU to every source before aggregation (Eq. 3 of the paper).
        bias: adds a bias.
        **kwargs: the other arguments of PyG, at their default values.
    """

    edge_values: ClassVar[str | None] = None
    read_parts: ClassVar[dict[str, bool]] = {"lin": True, "lin_l": True, "lin_r": False}
    linears = ("lin_l", "lin_r")

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
        """Returns the rows of the targets of the layer.

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
        if layer is not None and not isinstance(layer, int):
            layer, size = None, layer
        return self._result(x, edge_index, layer, size, update)


class GraphConv(_OfNeighbours, torch_geometric.nn.GraphConv):
    """PyG's `GraphConv`: a product of the reduced rows of the neighbours, each times the weight of
    its edge, and one of the own rows. It has PyG's arguments, initialisation and ``state_dict``.

    >>> conv = GraphConv(data.num_features, 16)
    >>> conv(data.x, data.edge_index, torch.rand(data.num_edges)).shape
    torch.Size([100, 16])

    Args:
        in_channels, out_channels, bias, **kwargs: as of `SAGEConv`.
        aggr: "add" (or "sum"), "mean" or "max".
    """

    edge_values: ClassVar[str | None] = "edge_weight"
    read_parts: ClassVar[dict[str, bool]] = {"lin_rel": True, "lin_root": False}
    linears = ("lin_rel", "lin_root")

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
        """Returns the rows of the targets of the layer, from the arguments of `SAGEConv.forward`.
        ``edge_weight``, which may stand in the third place, is as of `GCNConv.forward`."""
        if isinstance(layer, Tensor):
            layer, edge_weight = None, layer
        return self._result(x, edge_index, layer, size, update, edge_weight)
