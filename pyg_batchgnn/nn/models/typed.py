"""Models of several node types and relations, made of homogeneous ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils.hetero import check_add_self_loops

from pyg_batchgnn.nn.features import features_by_type
from pyg_batchgnn.nn.gcn import GCNConv
from pyg_batchgnn.nn.inputs import Rows
from pyg_batchgnn.nn.models.after import After
from pyg_batchgnn.nn.models.native import NativeModel
from pyg_batchgnn.nn.models.stack import ModelOutput, values, wide
from pyg_batchgnn.nn.refusals import layer_name
from pyg_batchgnn.nn.sampled import Relation, TypedBatch, is_typed
from pyg_batchgnn.nn.typed import EdgeValues, TypeTerms, terms_by_type
from pyg_batchgnn.nn.typed_aggregates import aggregates_by_relation, is_aggregated, terms_of_aggregates
from pyg_batchgnn.nn.typed_edges import typed_edges
from pyg_batchgnn.nn.update import Update

Metadata = tuple[Sequence[str], Sequence[Relation]]

#: What joins the results of two relations, for aggregations that are no sums.
_JOINED: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "min": torch.min,
    "max": torch.max,
    "mul": torch.mul,
}
_AGGREGATIONS = ("sum", "mean", *_JOINED)


def to_hetero(model: NativeModel, metadata: Metadata, aggr: str = "sum") -> TypedModel:
    """Returns the model that PyG's `to_hetero` makes of PyG's model, on native layers.

    Every convolution becomes one per relation, and every other module one per node type. A
    ``state_dict`` loads both ways. The weights are drawn anew, as in PyG, if there is more than one
    type or relation.

    Args:
        model: `SAGE`, `GIN`, `GAT`, or `GCN` if all relations are within one type; not changed.
        metadata: the node types and the relations, PyG's ``data.metadata()``.
        aggr: how the results of relations into one type become one: "sum", "mean", "min", "max" or
            "mul".

    Raises:
        TypeError: ``model`` is none of these.
        ValueError: the aggregation is unknown, a layer cannot be used between two types, a type is
            never updated but read again, or two names are the same for PyG.
    """
    if not isinstance(model, NativeModel):
        raise TypeError(
            f"to_hetero takes SAGE, GCN, GIN or GAT of pyg_batchgnn.nn, got {layer_name(model)}; for other "
            f"models use torch_geometric.nn.to_hetero and pyg_batchgnn.accelerate"
        )
    if aggr not in _AGGREGATIONS:
        raise ValueError(f"aggr must be one of {', '.join(_AGGREGATIONS)}, got {aggr!r}")
    names, relations = list(metadata[0]), [tuple(one) for one in metadata[1]]
    _check(model, names, relations)  # type: ignore[arg-type]
    return TypedModel(model, names, relations, aggr)  # type: ignore[arg-type]


class TypedModel(torch.nn.Module):
    """A native model with a convolution per relation; see `to_hetero`.

    Modules have PyG's names: ``convs.0.author__writes__paper``, ``norms.0.paper``.
    """

    def __init__(
        self, model: NativeModel, node_types: Sequence[str], relations: Sequence[Relation], aggr: str
    ) -> None:
        super().__init__()
        self.node_types, self.relations, self.aggr = list(node_types), list(relations), aggr
        self.num_layers, self.act_first, self.jk_mode = model.num_layers, model.act_first, model.jk_mode
        is_followed = any(map(model.is_followed, range(model.num_layers)))
        for name, module in model.named_children():
            if name == "convs":
                parts = [_copies(conv, map(_key, self.relations)) for conv in module.children()]
                self.convs = torch.nn.ModuleList(parts)
            elif name == "norms":
                parts = [_copies(norm, map(_key, self.node_types)) for norm in module.children()]
                self.norms = torch.nn.ModuleList(parts)
            elif name in ("jk", "lin") or (name in ("act", "dropout") and is_followed):
                self.add_module(name, _copies(module, map(_key, self.node_types)))
        self.train(model.training)

    def forward(
        self,
        source: TypedBatch | Mapping[str, Rows],
        edge_index: Mapping[Relation, Tensor] | None = None,
        edge_weight: Mapping[Relation, Tensor] | None = None,
        edge_attr: Mapping[Relation, Tensor] | None = None,
        *,
        x: Mapping[str, Rows] | None = None,
    ) -> dict[str, Tensor]:
        """Returns the logits of the seed nodes of a minibatch, or of all nodes, by node type.

        Calls are ``model(minibatch)``, ``model(minibatch, x=x_dict)`` or ``model(x_dict,
        edge_index_dict)``.

        Args:
            source: a minibatch with one hop per layer, or one hop fewer if it carries aggregates;
                or the features [N, F] by node type.
            edge_index: [2, E] by relation, if the first argument is features.
            edge_weight: [E] by relation, for GCN.
            edge_attr: [E, edge_dim] by relation, for GAT.
            x: [>= N, F] by type, the features of the nodes of the minibatch, or `RowView`. Where
                None, the features that the minibatch carries.

        Returns:
            [S, out_channels] by node type; float32, or float64 from float64 weights.

        Raises:
            KeyError: a type has no features.
            TypeError, ValueError: the arguments do not go together.
        """
        found = self.outputs(source, edge_index, edge_weight, edge_attr, x=x)
        return {name: one.logits for name, one in found.items()}

    def outputs(
        self,
        source: TypedBatch | Mapping[str, Rows],
        edge_index: Mapping[Relation, Tensor] | None = None,
        edge_weight: Mapping[Relation, Tensor] | None = None,
        edge_attr: Mapping[Relation, Tensor] | None = None,
        *,
        x: Mapping[str, Rows] | None = None,
    ) -> dict[str, ModelOutput]:
        """Returns the logits and the last hidden layer by node type. The arguments are those of
        `forward`."""
        given = {"edge_weight": edge_weight, "edge_attr": edge_attr}
        values: EdgeValues = {name: one for name, one in given.items() if one is not None}
        rows: Mapping[Any, Any]
        rows, edges = self._arguments(source, edge_index, x)
        states: list[Mapping[str, Rows]] = [{} if is_aggregated(rows) else rows]
        sampled = 0 if is_aggregated(rows) else 1  # the layer of the minibatch that comes first
        for index in range(self.num_layers):
            layer = index + sampled if is_typed(edges) else None
            rows = self._layer(index, rows, edges, layer, values)
            states.append(rows)
        return {name: self._output(name, states) for name in self.node_types if name in rows}

    def _arguments(
        self,
        source: TypedBatch | Mapping[str, Rows],
        edge_index: Mapping[Relation, Tensor] | None,
        x: Mapping[str, Rows] | None,
    ) -> tuple[Mapping[Any, Any], TypedBatch | Mapping[Relation, Tensor]]:
        """Returns the features, or aggregates, and the edges of the three ways to call."""
        if not is_typed(source):
            if not isinstance(source, Mapping) or edge_index is None or x is not None:
                raise TypeError(
                    "call model(minibatch), model(minibatch, x=x_dict) or model(x_dict, edge_index_dict); a "
                    "loader with export='native' yields minibatches"
                )
            return source, {one: edge_index[one] for one in self.relations if one in edge_index}
        if edge_index is not None:
            raise TypeError("a minibatch has its own edges; give its features as model(minibatch, x=x_dict)")
        hops = len(source.nodes[0].nodes_per_hop) - 1
        if hops == self.num_layers - 1 and (known := aggregates_by_relation(source, x)):
            return known, source
        if hops != self.num_layers:
            raise ValueError(
                f"a model of {self.num_layers} layers needs minibatches of {self.num_layers} hops, but this "
                f"one has {hops}; give the loader {self.num_layers} entries in num_neighbors"
            )
        return features_by_type(source) if x is None else x, source

    def _layer(
        self, index: int, x: Mapping[Any, Any], edges: Any, layer: int | None, values: EdgeValues
    ) -> dict[str, Rows]:
        """Computes a layer with what follows it."""
        convs = {relation: self._part(f"convs.{index}", relation) for relation in self.relations}
        if is_aggregated(x):
            found = terms_of_aggregates(convs, x, edges)
        else:
            found = terms_by_type(convs, x, typed_edges(edges, layer, x), values)
        return {name: self._rows(index, name, terms) for name, terms in found.items()}

    def _rows(self, index: int, name: str, terms: TypeTerms) -> Tensor:
        """Returns the rows of a type after a layer and what follows it."""
        convolve = partial(self._joined, terms)
        if index == self.num_layers - 1 and self.jk_mode is None:
            return convolve(None)
        act = self._part("act", name) if hasattr(self, "act") else None
        norm, drop = self._part(f"norms.{index}", name), self._part("dropout", name).p
        after = After(norm, act, self.act_first, drop, self.training)
        return after.of(convolve, lambda: (terms.rows.dropout_key(), terms.rows.node))

    def conv(self, index: int, relation: Relation) -> torch.nn.Module:
        """Returns the convolution of a relation in layer ``index`` (from 0)."""
        found: torch.nn.Module = self._part(f"convs.{index}", relation)
        return found

    def norm(self, index: int, name: str) -> torch.nn.Module | None:
        """Returns the normalisation behind layer ``index`` for a type, or None."""
        if index >= len(self.norms):
            return None
        found: torch.nn.Module = self._part(f"norms.{index}", name)
        return found

    def _part(self, path: str, names: str | Relation) -> Any:
        """Returns the module of a type or relation."""
        parts: Any = self.get_submodule(path)
        return parts[_key(names)]

    def _joined(self, terms: TypeTerms, update: Update | None) -> Tensor:
        if self.aggr == "sum":
            return terms.added(update, self.training)
        if self.aggr == "mean":
            return terms.mean(update, self.training)
        return terms.joined(partial(_reduced, function=_JOINED[self.aggr]), update, self.training)

    def _output(self, name: str, states: Sequence[Mapping[str, Any]]) -> ModelOutput:
        """Returns the output of a type from the features and the rows of the layers."""
        out, before = states[-1][name], states[-2].get(name)
        if hasattr(self, "jk"):
            out = self._part("jk", name)([state[name][: out.size(0)] for state in states[1:]])
        if not hasattr(self, "lin"):
            hidden = out[:, :0] if before is None else values(before, out.size(0))
            return ModelOutput(wide(out), hidden)
        return ModelOutput(wide(self._part("lin", name)(out)), out)


def _reduced(relations: Sequence[Tensor], function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Joins the results of relations by two, as PyG's `to_hetero` does."""
    queue = list(relations)
    while len(queue) > 1:
        first, second, *rest = queue
        queue = [*rest, function(first, second)]
    return queue[0]


def _copies(module: torch.nn.Module, keys: Any) -> torch.nn.ModuleDict:
    """Returns copies of a module with weights of their own."""
    names = list(keys)
    made: dict[str, torch.nn.Module] = {}
    for name in names:
        one: Any = copy.deepcopy(module)
        if len(names) > 1 and hasattr(module, "reset_parameters"):
            one.reset_parameters()
        made[name] = one
    return torch.nn.ModuleDict(made)


def _key(names: str | Relation) -> str:
    """Returns the name of the module of a type or relation, as PyG's `to_hetero` forms it."""
    text = names if isinstance(names, str) else "__".join(names)
    return text.replace(" ", "_").replace("-", "_").replace(":", "_")


def _check(model: NativeModel, names: Sequence[str], relations: Sequence[Relation]) -> None:
    for kind, keys in (("node types", names), ("relations", relations)):
        if not keys:
            raise ValueError(f"the metadata has no {kind}; give data.metadata()")
        if len(set(map(_key, keys))) < len(keys):
            raise ValueError(
                f"two of the {kind} {list(keys)} have the same name where ' ', '-' and ':' become '_'; "
                f"rename one"
            )
    for conv in model.convs:
        check_add_self_loops(conv, list(relations))
        between = [one for one in relations if one[0] != one[2]]
        if isinstance(conv, GCNConv) and between:
            raise ValueError(
                f"GCNConv does not support relations between two node types, such as {between[0]}; take SAGE"
            )
    unreached = set(names) - {target for _, _, target in relations}
    if unreached and (model.num_layers > 1 or model.jk_mode is not None):
        raise ValueError(
            f"no relation leads to {sorted(unreached)}, so later layers have no rows of them; add reverse "
            f"relations (torch_geometric.transforms.ToUndirected), or leave them out"
        )
