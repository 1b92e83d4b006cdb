"""Models with a convolution per relation and a module of every other kind per node type."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.inference import HasNodes, evaluating, finished, nodes_of, states_kept
from pyg_batchgnn.nn.inputs import Rows
from pyg_batchgnn.nn.layerwise import ComputeInputs, LayerStep, infer_last_inputs, infer_layers
from pyg_batchgnn.nn.models.after import After
from pyg_batchgnn.nn.models.joined import joined
from pyg_batchgnn.nn.models.native import NativeModel
from pyg_batchgnn.nn.models.stack import ModelOutput, values, wide
from pyg_batchgnn.nn.models.typed_inputs import typed_inputs
from pyg_batchgnn.nn.models.typed_modules import copies, module_key
from pyg_batchgnn.nn.owned_nodes import OwnedNodes
from pyg_batchgnn.nn.sampled import Relation, TypedBatch, is_typed
from pyg_batchgnn.nn.typed import EdgeValues, TypeTerms, terms_by_type
from pyg_batchgnn.nn.typed_aggregates import is_aggregated, terms_of_aggregates
from pyg_batchgnn.nn.typed_edges import typed_edges
from pyg_batchgnn.nn.update import Update


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
                parts = [copies(conv, self.relations) for conv in module.children()]
                self.convs = torch.nn.ModuleList(parts)
            elif name == "norms":
                parts = [copies(norm, self.node_types) for norm in module.children()]
                self.norms = torch.nn.ModuleList(parts)
            elif name in ("jk", "lin") or (name in ("act", "dropout") and is_followed):
                self.add_module(name, copies(module, self.node_types))
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
                or an induced subgraph; or the features [N, F] by node type.
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
        rows, edges = typed_inputs(source, edge_index, x, self.relations, self.num_layers)
        states: list[Mapping[str, Rows]] = [{} if is_aggregated(rows) else rows]
        sampled = 0 if is_aggregated(rows) else 1  # the layer of the minibatch that comes first
        for index in range(self.num_layers):
            layer = index + sampled if is_typed(edges) else None
            rows = self._layer(index, rows, edges, layer, values)
            states.append(rows)
        wanted = {name: len(one) for name, one in rows.items()}
        if is_typed(edges):
            wanted = {name: edges.nodes[edges.schema.type_number(name)].nodes_per_hop[0] for name in rows}
        return {name: self._output(name, states, wanted[name]) for name in self.node_types if name in rows}

    def inference(
        self,
        loader: HasNodes,
        *,
        node_types: Collection[str] | None = None,
        inputs: ComputeInputs | None = None,
        memory_budget: int | str | None = None,
        progress_bar: bool = False,
    ) -> dict[str, Tensor]:
        """Returns the logits of all nodes by node type, each from all its in-neighbours, layer by
        layer.

        This is the whole graph's forward pass in evaluation mode, with memory bounded by pieces of
        the nodes. Collective over ranks: each rank computes the nodes that it owns, and fetches the
        rows of its halo nodes, of all types in one exchange, once per layer and piece. Weights and
        features of edges that the data holds are not used.

        Args:
            loader: a `MacrobatchNeighborLoader` of the graph; its fanouts and seed nodes do not
                matter.
            node_types: the types whose logits are wanted; all where None. Types that these do not
                depend on are not computed.
            inputs: computes the input of the first layer from features, each row by itself, such as
                a `HeteroDictLinear`. It is called with rows of one type at a time. None: the
                features ``x``. `Embedding.as_features` makes a graph whose features are learned
                rows.
            memory_budget: bytes (or a text like "2GiB") that a piece takes, about. None: an eighth
                of the free memory of the host that has least, divided by its ranks.
            progress_bar: shows a progress bar for each layer.

        Returns:
            [N, out_channels] by node type, float32, or float64 from float64 weights, by node id;
            over ranks [n, out_channels], by ``loader.all_nodes().node_of(node_type)``.

        Raises:
            TypeError, ValueError: no loader, a type without features, or a normalisation over the
                nodes of a call.
        """
        outputs = self.infer(nodes_of(loader, memory_budget, progress_bar), node_types, inputs)
        return {name: one.logits for name, one in outputs.items()}

    def infer(
        self,
        nodes: OwnedNodes,
        node_types: Collection[str] | None = None,
        inputs: ComputeInputs | None = None,
    ) -> dict[str, ModelOutput]:
        """Returns logits and the last hidden layer of the nodes that a process owns, by type.

        The arguments are those of `inference`. If the layer before computes no rows of a
        type, its hidden rows have no columns.
        """
        keep = states_kept(self.num_layers, self._modules.get("jk"))
        with evaluating(self):
            kept = infer_layers(self._steps(), nodes, keep, node_types=node_types, inputs=inputs)
            names = kept[-1] if node_types is None else node_types
            return {name: self._finished(name, kept) for name in names}

    def infer_hidden(
        self,
        nodes: OwnedNodes,
        node_types: Collection[str] | None = None,
        inputs: ComputeInputs | None = None,
        *,
        hidden_types: Collection[str] | None = None,
    ) -> dict[str, Tensor]:
        """Returns the input of the last layer of the nodes that a process owns, by type.

        The last layer itself is not computed.

        Args:
            nodes: the nodes that a process owns: ``loader.all_nodes()``.
            node_types: the types that the last layer would compute; all where None.
            inputs: see `inference`.
            hidden_types: the types whose rows are wanted. All that the last layer reads for
                ``node_types`` where None.

        Raises:
            ValueError: the model has jumping knowledge, behind which there is another last layer.
        """
        if hasattr(self, "jk"):
            raise ValueError("a model with jumping knowledge has hidden rows by infer(nodes) alone")
        with evaluating(self):
            return infer_last_inputs(
                self._steps(), nodes, node_types=node_types, hidden_types=hidden_types, inputs=inputs
            )

    def _steps(self) -> list[LayerStep]:
        """Returns the layers, to be computed for all nodes."""
        return [
            LayerStep({one: self.conv(index, one) for one in self.relations}, partial(self._step, index))
            for index in range(self.num_layers)
        ]

    def _step(self, index: int, x: Mapping[str, Rows], edges: Any) -> dict[str, Tensor]:
        return self._layer(index, x, edges, None, {})

    def _finished(self, name: str, kept: Sequence[Mapping[str, Tensor]]) -> ModelOutput:
        """Returns the output of a type from the rows of the last layers."""
        jumps, last = (self._part(path, name) if hasattr(self, path) else None for path in ("jk", "lin"))
        out = kept[-1][name]
        found = finished([rows.get(name, out[:, :0]) for rows in kept], jumps, last)
        return ModelOutput(wide(found.rows), found.hidden)

    def _layer(
        self, index: int, x: Mapping[Any, Any], edges: Any, layer: int | None, values: EdgeValues
    ) -> dict[str, Tensor]:
        """Computes a layer with what follows it."""
        convs = {relation: self.conv(index, relation) for relation in self.relations}
        if is_aggregated(x):
            found = terms_of_aggregates(convs, x, edges)
        else:
            found = terms_by_type(convs, x, typed_edges(edges, layer, x), values)
        return {name: self._rows(index, name, terms) for name, terms in found.items()}

    def _rows(self, index: int, name: str, terms: TypeTerms) -> Tensor:
        """Returns the rows of a type after a layer and what follows it."""

        def convolve(update: Update | None) -> Tensor:
            return joined(terms, self.aggr, update, self.training)

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
        return parts[module_key(names)]

    def _output(self, name: str, states: Sequence[Mapping[str, Any]], rows: int) -> ModelOutput:
        """Returns the first rows of the output of a type, from the features and the layers."""
        last: Tensor = states[-1][name]
        out: Tensor = last if len(last) == rows else ops.first_rows(last, rows)
        before = states[-2].get(name)
        if hasattr(self, "jk"):
            out = self._part("jk", name)([state[name][: out.size(0)] for state in states[1:]])
        if not hasattr(self, "lin"):
            hidden = out[:, :0] if before is None else values(before, out.size(0))
            return ModelOutput(wide(out), hidden)
        return ModelOutput(wide(self._part("lin", name)(out)), out)
