"""A convolution per relation (Schlichtkrull et al. 2018), summed by node type."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.conv.hetero_conv import group

from pyg_batchgnn.nn.aggregated import Aggregated
from pyg_batchgnn.nn.inputs import Rows
from pyg_batchgnn.nn.sampled import Relation, TypedBatch
from pyg_batchgnn.nn.terms import HasTerms
from pyg_batchgnn.nn.typed import EdgeValues, TypeTerms, terms_by_type
from pyg_batchgnn.nn.typed_aggregates import is_aggregated, terms_of_aggregates
from pyg_batchgnn.nn.typed_edges import typed_edges
from pyg_batchgnn.nn.update import Update

_AGGREGATIONS = ("sum", "mean", "min", "max", "cat", None)


class HeteroConv(torch_geometric.nn.HeteroConv):
    """PyG's `HeteroConv` over native convolutions, with the same arguments and ``state_dict``; rows
    are read in place.

    ``conv(x_dict, minibatch, layer)`` computes one layer of a minibatch of several types. With
    "sum" and "mean" all relations into a type are one pass of products, and the own rows of its
    nodes are multiplied once. A layer of one relation has the bits of its convolution.

    Args:
        convs: the convolution of each relation: `SAGEConv`, `GINConv`, `GATConv` and `GATv2Conv` of
            this package, and its `GCNConv` within one node type. Layers that add self loops are
            refused between two types, as in PyG.
        aggr: how the results of relations into one type become one: "sum", "mean", "min", "max",
            "cat", or None to stack them.

    Raises:
        TypeError: a convolution is not of this package.
        ValueError: the aggregation is unknown, or a layer would add self loops between two types.
    """

    def __init__(self, convs: Mapping[Relation, MessagePassing], aggr: str | None = "sum") -> None:
        super().__init__(dict(convs), aggr)
        if aggr not in _AGGREGATIONS:
            raise ValueError(f"aggr must be one of {', '.join(map(str, _AGGREGATIONS))}, got {aggr!r}")
        for relation, conv in self.convs.items():
            if not isinstance(conv, HasTerms):
                kind = f"{type(conv).__module__}.{type(conv).__name__}"
                raise TypeError(
                    f"the layer of {relation} is a {kind}; give one of pyg_batchgnn.nn, or use "
                    f"torch_geometric.nn.HeteroConv"
                )

    def forward(
        self,
        x_dict: Mapping[str, Rows] | Mapping[Relation, Aggregated],
        edge_index_dict: TypedBatch | Mapping[Relation, Tensor],
        layer: int | Mapping[Relation, Tensor] | None = None,
        *,
        update: Update | None = None,
        **kwargs_dict: Mapping[Relation, Tensor],
    ) -> dict[str, Tensor]:
        """Returns the rows of the targets of each type that a relation leads to.

        Args:
            x_dict: [>= N, F] by node type, the rows of the sources, tensors or `RowView`; the first
                D are the rows of the targets. `features_by_type` returns those of a minibatch. Or
                aggregates by relation, as `aggregates_by_relation` returns them: then all nodes of
                the minibatch are computed.
            edge_index_dict: a minibatch with ``layer``, or [2, E] by relation. Relations that are
                missing are left out.
            layer: the number of the layer in the minibatch; 1 is nearest the input. PyG's values of
                edges by relation are accepted in this place.
            update: ReLU and dropout of the results, in the same pass where possible.
            **kwargs_dict: values of edges by relation: ``edge_attr_dict`` for attention,
                ``edge_weight_dict`` for GCN. They have one entry per edge of the relation in the
                minibatch.

        Returns:
            [D, out_channels] by node type; [D, relations, out_channels] if ``aggr`` is None.
        """
        x: Mapping[Any, Any] = x_dict
        if is_aggregated(x):
            if layer is not None or kwargs_dict:
                raise ValueError(
                    "aggregates take no layer and no values of edges: conv(aggregates, minibatch)"
                )
            known = terms_of_aggregates(dict(self.convs.items()), x, edge_index_dict)
            return {name: self._result(terms, update) for name, terms in known.items()}
        values = self._edge_values(kwargs_dict)
        if isinstance(layer, Mapping):
            values, layer = {**values, **self._positional(layer)}, None
        edges = typed_edges(edge_index_dict, layer, x)
        found = terms_by_type(dict(self.convs.items()), x, edges, values)
        return {name: self._result(terms, update) for name, terms in found.items()}

    def _result(self, terms: TypeTerms, update: Update | None) -> Tensor:
        if self.aggr == "sum":
            return terms.added(update, self.training)
        if self.aggr == "mean":
            return terms.mean(update, self.training)
        return terms.joined(partial(group, aggr=self.aggr), update, self.training)

    def _edge_values(self, given: Mapping[str, Mapping[Relation, Tensor]]) -> dict[str, Any]:
        """Returns values of edges by the names of the convolutions' arguments."""
        for name in given:
            if not name.endswith("_dict"):
                raise ValueError(f"keyword arguments end with '_dict', got {name!r}; give {name}_dict")
        return {name.removesuffix("_dict"): values for name, values in given.items()}

    def _positional(self, given: Mapping[Relation, Tensor]) -> EdgeValues:
        """Returns values of edges that came without a name."""
        values: dict[str, dict[Relation, Tensor]] = {}
        for relation, one in given.items():
            if relation not in self.convs:
                continue
            name = self.convs[relation].edge_values
            if name is None:
                raise TypeError(f"the layer of {relation} takes no values of edges, leave them out")
            values.setdefault(name, {})[relation] = one
        return values
