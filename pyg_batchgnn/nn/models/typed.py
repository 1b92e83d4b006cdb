"""Models with a convolution per relation and a module of every other kind per node type."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.utils.hetero import check_add_self_loops

from pyg_batchgnn.nn.gcn import GCNConv
from pyg_batchgnn.nn.hetero import EdgeValues, PieceEdges, TypeTerms, terms_by_type, typed_edges
from pyg_batchgnn.nn.inference import (
    ComputeInputs,
    LayerStep,
    evaluating,
    infer_last_inputs,
    infer_model,
    nodes_of,
)
from pyg_batchgnn.nn.inputs import Rows, features_by_type, is_typed
from pyg_batchgnn.nn.layer_steps import (
    LayerEnd,
    ModelOutput,
    Update,
    model_output,
    module_key,
    run_layers,
    wrong_hops,
)
from pyg_batchgnn.nn.models.native import NativeModel
from pyg_batchgnn.nn.native_conv import layer_name
from pyg_batchgnn.types import OwnedNodes, Relation, SampledMinibatch


def typed_inputs(
    source: SampledMinibatch | Mapping[str, Rows],
    edge_index: Mapping[Relation, Tensor] | None,
    x: Mapping[str, Rows] | None,
    relations: Sequence[Relation],
    num_layers: int,
) -> tuple[Mapping[Any, Any], SampledMinibatch | Mapping[Relation, Tensor]]:
    """Returns the features by type and the edges, from the arguments of `TypedModel.forward`."""
    if not is_typed(source):
        if not isinstance(source, Mapping) or edge_index is None or x is not None:
            raise TypeError(
                "call model(minibatch), model(minibatch, x=x_dict) or model(x_dict, edge_index_dict); a "
                "loader with export='native' yields minibatches"
            )
        return source, {one: edge_index[one] for one in relations if one in edge_index}
    if edge_index is not None:
        raise TypeError("a minibatch has its own edges; give its features as model(minibatch, x=x_dict)")
    if source.num_layers not in (None, num_layers):
        raise wrong_hops(num_layers, source.num_layers)
    return features_by_type(source) if x is None else x, source


def copies(module: torch.nn.Module, keys: Iterable[str | Relation]) -> torch.nn.ModuleDict:
    """Returns a copy of a module for each type or relation, with weights of its own."""
    made: dict[str, Any] = {module_key(key): copy.deepcopy(module) for key in keys}
    for one in made.values() if len(made) > 1 and hasattr(module, "reset_parameters") else ():
        one.reset_parameters()
    return torch.nn.ModuleDict(made)


#: What joins the results of two relations, for aggregations that are no sums.
_JOINED: Mapping[str, Callable[[Tensor, Tensor], Tensor]]
_JOINED = {"min": torch.min, "max": torch.max, "mul": torch.mul}
#: The names of the aggregations.
AGGREGATIONS = ("sum", "mean", *_JOINED)


class TypedModel(torch.nn.Module):
    """A native model with a convolution per relation, which `to_hetero` makes.

    Modules have PyG's names: ``convs.0.author__writes__paper``, ``norms.0.paper``.
    """

    norms: torch.nn.ModuleList

    def __init__(
        self, model: NativeModel, node_types: Sequence[str], relations: Sequence[Relation], aggr: str
    ) -> None:
        super().__init__()
        self.node_types, self.relations, self.aggr = list(node_types), list(relations), aggr
        self.num_layers, self.act_first, self.jk_mode = model.num_layers, model.act_first, model.jk_mode
        is_followed = any(map(model.is_followed, range(model.num_layers)))
        for name, module in model.named_children():
            if name in ("convs", "norms"):
                keys = self.relations if name == "convs" else self.node_types
                self.add_module(name, torch.nn.ModuleList(copies(one, keys) for one in module.children()))
            elif name in ("jk", "lin") or (name in ("act", "dropout") and is_followed):
                self.add_module(name, copies(module, self.node_types))
        self.train(model.training)

    def forward(
        self,
        source: SampledMinibatch | Mapping[str, Rows],
        edge_index: Mapping[Relation, Tensor] | None = None,
        edge_weight: Mapping[Relation, Tensor] | None = None,
        edge_attr: Mapping[Relation, Tensor] | None = None,
        *,
        x: Mapping[str, Rows] | None = None,
    ) -> dict[str, Tensor]:
        """Returns the logits of the seed nodes of a minibatch, or of all nodes, by node type.

        Calls are ``model(minibatch)``, ``model(minibatch, x=x_dict)`` or ``model(x_dict,
        edge_index_dict)``. The arguments are those of `NativeModel.forward`: features and results
        by node type, edges and their values by relation.

        Raises:
            KeyError: a type has no features.
            TypeError, ValueError: the arguments do not go together.
        """
        found = self.outputs(source, edge_index, edge_weight, edge_attr, x=x)
        return {name: one.logits for name, one in found.items()}

    def outputs(
        self,
        source: SampledMinibatch | Mapping[str, Rows],
        edge_index: Mapping[Relation, Tensor] | None = None,
        edge_weight: Mapping[Relation, Tensor] | None = None,
        edge_attr: Mapping[Relation, Tensor] | None = None,
        *,
        x: Mapping[str, Rows] | None = None,
    ) -> dict[str, ModelOutput]:
        """Returns the logits and the last layer's input by node type; arguments as in `forward`."""
        given = {"edge_weight": edge_weight, "edge_attr": edge_attr}
        values: EdgeValues = {name: one for name, one in given.items() if one is not None}
        rows, edges = typed_inputs(source, edge_index, x, self.relations, self.num_layers)

        def compute(index: int, before: Mapping[Any, Any]) -> dict[str, Tensor]:
            return self._layer(index, before, edges, 1 + index if is_typed(edges) else None, values)

        before, results = run_layers(compute, self.num_layers, rows, keep_all=hasattr(self, "jk"))
        wanted = {name: len(one) for name, one in results[-1].items()}
        if is_typed(edges):
            wanted = {name: edges.nodes_of(name).nodes_per_hop[0] for name in wanted}
        return {
            name: model_output(self, before.get(name), [one[name] for one in results], wanted[name], name)
            for name in self.node_types
            if name in wanted
        }

    def inference(
        self,
        loader: Any,
        *,
        node_types: Collection[str] | None = None,
        inputs: ComputeInputs | None = None,
        memory_budget: int | str | None = None,
        progress_bar: bool = False,
        scratch: str | Path | None = None,
        edge_values: Sequence[str] = (),
    ) -> dict[str, Tensor]:
        """Returns the logits of all nodes by node type, from the arguments of
        `NativeModel.inference` and these.

        Args:
            node_types: the types whose logits are wanted; None for all. Types on which these do not
                depend are not computed.
            inputs: as in `infer_layers`; None for the features ``x``. `Embedding.as_features` makes
                a graph with learned rows as features.

        Returns:
            [N, out_channels] by node type, float32, or float64 from float64 weights, by node id;
                over ranks [n, out_channels], by ``loader.all_nodes().node_of(node_type)``.

        Raises:
            TypeError, ValueError: as there, or a type has no features.
        """
        nodes = nodes_of(loader, memory_budget, progress_bar, scratch)
        outputs = self.infer(nodes, node_types, inputs, edge_values)
        return {name: one.logits for name, one in outputs.items()}

    def infer(
        self,
        nodes: OwnedNodes,
        node_types: Collection[str] | None = None,
        inputs: ComputeInputs | None = None,
        edge_values: Sequence[str] = (),
    ) -> dict[str, ModelOutput]:
        """Returns logits and the last layer's input of the process's nodes, as in `inference`."""
        return infer_model(self, self._steps(edge_values), nodes, node_types, inputs)

    def infer_hidden(
        self,
        nodes: OwnedNodes,
        node_types: Collection[str] | None = None,
        inputs: ComputeInputs | None = None,
        edge_values: Sequence[str] = (),
        *,
        hidden_types: Collection[str] | None = None,
    ) -> dict[str, Tensor]:
        """Returns the last layer's input for the nodes that a process owns, by type.

        Args:
            node_types: the types that the last layer would compute; None for all.
            hidden_types: the types to return; None for all that the last layer reads.

        Raises:
            ValueError: the model has jumping knowledge, so that its last layer is another one.
        """
        if hasattr(self, "jk"):
            raise ValueError("a model with jumping knowledge has hidden rows by infer(nodes) alone")
        with evaluating(self):
            return infer_last_inputs(
                *(self._steps(edge_values), nodes),
                node_types=node_types,
                hidden_types=hidden_types,
                inputs=inputs,
            )

    def _steps(self, edge_values: Sequence[str]) -> list[LayerStep]:
        by_layer = [
            {one: self.conv(index, one) for one in self.relations} for index in range(self.num_layers)
        ]
        return [LayerStep(convs, partial(self._step, at), edge_values) for at, convs in enumerate(by_layer)]

    def _step(self, index: int, x: Mapping[str, Rows], edges: PieceEdges) -> dict[str, Tensor]:
        return self._layer(index, x, edges, None, edges.piece.edge_values)

    def _layer(
        self, index: int, x: Mapping[Any, Any], edges: Any, layer: int | None, values: EdgeValues
    ) -> dict[str, Tensor]:
        convs = {relation: self.conv(index, relation) for relation in self.relations}
        found = terms_by_type(convs, x, typed_edges(edges, layer, x), values)
        return {name: self._rows(index, name, terms) for name, terms in found.items()}

    def _rows(self, index: int, name: str, terms: TypeTerms) -> Tensor:
        def convolve(update: Update | None) -> Tensor:
            joined = _JOINED.get(self.aggr)
            join = self.aggr if joined is None else partial(reduce, joined)
            return terms.result(join, update, self.training)

        if index == self.num_layers - 1 and self.jk_mode is None:
            return convolve(None)
        norm, drop = self._part(f"norms.{index}", name), self._part("dropout", name).p
        act = self._part("act", name) if hasattr(self, "act") else None
        end = LayerEnd(norm, act, self.act_first, drop if self.training else 0.0)
        return end.apply(convolve, lambda: (terms.rows.dropout_key(), terms.rows.node))

    def conv(self, index: int, relation: Relation) -> torch.nn.Module:
        """Returns the convolution of a relation in layer ``index`` (from 0)."""
        return cast(torch.nn.Module, self._part(f"convs.{index}", relation))

    def norm(self, index: int, name: str) -> Any:
        """Returns the normalisation behind layer ``index`` for a type, or None."""
        return self._part(f"norms.{index}", name) if index < len(self.norms) else None

    def _part(self, path: str, names: str | Relation) -> Any:
        parts: Any = self.get_submodule(path)
        return parts[module_key(names)]


Metadata = tuple[Sequence[str], Sequence[Relation]]


def to_hetero(model: NativeModel, metadata: Metadata, aggr: str = "sum") -> TypedModel:
    """Returns a model for several node types, as PyG's `to_hetero` does, on native layers.

    >>> model = to_hetero(SAGE(4, 16, 2, 3), typed.metadata())
    >>> model(typed.x_dict, typed.edge_index_dict)["paper"].shape
    torch.Size([50, 3])

    Every convolution becomes one per relation, and every other module one per node type. A
    ``state_dict`` of PyG's model loads, and the reverse. The weights are drawn anew, as in PyG, if
    there is more than one type or relation.

    Args:
        model: `SAGE`, `GIN`, `GAT`, or `GCN` if all relations are within one type; not changed.
        metadata: the node types and the relations, PyG's ``data.metadata()``.
        aggr: how the results of several relations into one type are joined: "sum", "mean", "min",
            "max" or "mul".

    Raises:
        TypeError: ``model`` is none of these.
        ValueError: the aggregation is unknown, a layer cannot be used between two types, a type is
            read but never updated, or PyG would give two names the same module name.
    """
    if not isinstance(model, NativeModel):
        raise TypeError(
            f"to_hetero takes SAGE, GCN, GIN or GAT of pyg_batchgnn.nn, got {layer_name(model)}; for other "
            f"models use torch_geometric.nn.to_hetero and pyg_batchgnn.accelerate"
        )
    if aggr not in AGGREGATIONS:
        raise ValueError(f"aggr must be one of {', '.join(AGGREGATIONS)}, got {aggr!r}")
    names, relations = list(metadata[0]), [tuple(one) for one in metadata[1]]
    _check(model, names, relations)  # type: ignore[arg-type]
    return TypedModel(model, names, relations, aggr)  # type: ignore[arg-type]


def _check(model: NativeModel, names: Sequence[str], relations: Sequence[Relation]) -> None:
    for kind, keys in (("node types", names), ("relations", relations)):
        if not keys:
            raise ValueError(f"the metadata has no {kind}; give data.metadata()")
        if len(set(map(module_key, keys))) < len(keys):
            raise ValueError(
                f"two of the {kind} {list(keys)} have the same name where ' ', '-' and ':' become '_'; "
                f"rename one"
            )
    for conv in model.convs:
        between = [one for one in relations if one[0] != one[2]]
        if isinstance(conv, GCNConv) and between:
            raise ValueError(
                f"GCNConv does not support relations between two node types, such as {between[0]}; take SAGE"
            )
        check_add_self_loops(conv, list(relations))
    unreached = set(names) - {target for _, _, target in relations}
    if unreached and (model.num_layers > 1 or model.jk_mode is not None):
        raise ValueError(
            f"no relation leads to {sorted(unreached)}, so later layers have no rows of them; add reverse "
            f"relations (torch_geometric.transforms.ToUndirected), or leave them out"
        )
