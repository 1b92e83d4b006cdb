"""The native models SAGE, GCN, GIN and GAT, on a minibatch or on a whole graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.models.basic_gnn import BasicGNN
from torch_geometric.nn.resolver import normalization_resolver

from pyg_batchgnn import ops
from pyg_batchgnn.nn.aggregated import Aggregated, aggregated_of
from pyg_batchgnn.nn.gat import GATConv, GATv2Conv
from pyg_batchgnn.nn.gcn import GCNConv
from pyg_batchgnn.nn.gin import GINConv, Perceptron
from pyg_batchgnn.nn.hetero import PieceEdges
from pyg_batchgnn.nn.inference import LayerStep, check_cpu, infer_model, nodes_of
from pyg_batchgnn.nn.inputs import (
    Edges,
    HaloPass,
    LayerGraph,
    Rows,
    all_nodes,
    features_of,
    has_halo,
    is_sampled,
    layer_graph,
)
from pyg_batchgnn.nn.layer_steps import (
    LayerEnd,
    ModelOutput,
    Update,
    fuses_relu,
    model_output,
    run_layers,
    wrong_hops,
)
from pyg_batchgnn.nn.modules import BatchNorm, Linear, native_norm
from pyg_batchgnn.nn.native_conv import input_columns, positive, probability
from pyg_batchgnn.nn.sage import SAGEConv
from pyg_batchgnn.types import OwnedNodes, Relation, SampledMinibatch

_JK_MODES = ("last", "cat", "max", "lstm")


@dataclass(frozen=True)
class LayerEdges:
    """The edges of one layer of a model, as its convolution takes them, with their values."""

    edges: Edges  # a minibatch, a `LayerGraph`, or [2, E] int64 with sources above targets
    # The number of the layer in a minibatch, 0 if its input is `Aggregated`; else None.
    layer: int | None
    # The convolution's arguments of one value per edge.
    values: Mapping[str, Tensor] = field(default_factory=dict)

    def apply(self, conv: torch.nn.Module, x: Any, **options: Any) -> Tensor:
        rows: Tensor = conv(x, self.edges, self.layer, **self.values, **options)
        return rows

    def dropout(self) -> tuple[int, Tensor | None]:
        """Returns the key of the layer's dropout, and its targets' ids (None: row numbers)."""
        if isinstance(self.edges, Tensor):
            return ops.drawn_key(), None
        graph = self.edges
        if not isinstance(graph, LayerGraph):
            graph = layer_graph(graph, self.layer) if self.layer else all_nodes(graph)
        return graph.dropout_key(), graph.node


class NativeModel(BasicGNN):
    """A graph neural network of native convolutions, with the arguments and the ``state_dict`` of
    PyG's model. See `SAGE` for an example.

    ReLU, dropout and batch normalisation are fused with the products. Other activations and
    normalisations are modules of torch and PyG. A subclass may override `compute` to change what
    follows a convolution. A minibatch may have one hop less than the model has layers if it carries
    the aggregates of the first layer (`Aggregated`).

    Args:
        in_channels: columns of the features; -1 takes them from the first call.
        hidden_channels: columns between layers.
        num_layers: the number of convolutions.
        out_channels: columns of the result; None for `hidden_channels`.
        dropout: the probability of zeroing an element after a layer in training mode, in [0, 1).
        act: the activation after a layer: a name of ``torch.nn``, a module, or None.
        act_first: applies the activation before the normalisation, not after it.
        norm: the normalisation after a layer: a name of ``torch_geometric.nn.norm``, a module of
            `hidden_channels` columns, or None.
        act_kwargs, norm_kwargs: arguments of an activation or normalisation given by name.
        jk: jumping knowledge of all layers into a linear layer: "last", "cat", "max" or "lstm".
        **kwargs: the other arguments of the convolutions.

    Raises:
        TypeError, ValueError: an argument is not supported.
    """

    #: The class of the convolutions.
    conv: ClassVar[Callable[..., MessagePassing]]
    supports_edge_weight = False
    supports_edge_attr = False

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        dropout: float = 0.0,
        act: str | Callable[[Tensor], Tensor] | None = "relu",
        act_first: bool = False,
        act_kwargs: dict[str, Any] | None = None,
        norm: str | torch.nn.Module | None = None,
        norm_kwargs: dict[str, Any] | None = None,
        jk: str | None = None,
        **kwargs: Any,
    ) -> None:
        _check_modules(act, norm, jk)
        columns = input_columns("in_channels", in_channels), positive("hidden_channels", hidden_channels)
        layers, drop = positive("num_layers", num_layers), probability("dropout", dropout)
        out = None if out_channels is None else positive("out_channels", out_channels)
        try:
            super().__init__(
                *(*columns, layers, out, drop, act, act_first, act_kwargs, norm, norm_kwargs, jk), **kwargs
            )
        except TypeError as error:
            raise _unknown_name(type(self).__name__, kwargs, error) from None
        for normalisation in self.norms:
            native_norm(normalisation, relu=fuses_relu(self.act) and not self.act_first)
        if self.jk_mode is not None:
            self._modules["lin"] = Linear.sharing(self.get_submodule("lin"))

    def init_conv(self, in_channels: int, out_channels: int, **kwargs: Any) -> MessagePassing:
        return type(self).conv(in_channels, out_channels, **kwargs)

    def is_followed(self, index: int) -> bool:
        """Returns whether normalisation, activation and dropout follow convolution ``index``: not
        the last one, unless there is jumping knowledge."""
        return index < len(self.convs) - 1 or self.jk_mode is not None

    def compute(self, index: int, x: Rows | Aggregated, edges: LayerEdges) -> Tensor:
        """Computes layer ``index``, from 0, with its normalisation, activation and dropout."""
        conv = self.convs[index]
        if not self.is_followed(index):
            return edges.apply(conv, x)

        def convolve(update: Update | None) -> Tensor:
            return edges.apply(conv, x, **({} if update is None else {"update": update}))

        def normed(norm: BatchNorm) -> Tensor:
            return edges.apply(conv, x, norm=norm)

        drop = self.dropout.p if self.training else 0.0
        end = LayerEnd(self.norms[index], self.act, self.act_first, drop, conv.training)
        takes_norm = isinstance(conv, GINConv) and type(conv.nn) is Perceptron
        return end.apply(convolve, edges.dropout, normed if takes_norm else None)

    def outputs(
        self,
        source: Tensor | SampledMinibatch,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        *,
        x: Rows | Aggregated | None = None,
    ) -> ModelOutput:
        """Returns the logits and the last layer's input, from the arguments of `forward`."""
        rows, edges = self._arguments(source, edge_index, x)
        values = self._edge_values(edge_weight=edge_weight, edge_attr=edge_attr)
        first = 0 if isinstance(rows, Aggregated) else 1
        halo = HaloPass(edges) if not isinstance(edges, Tensor) and has_halo(edges) else None

        def compute(index: int, before: Any) -> Tensor:
            if halo is None:
                layer = None if isinstance(edges, Tensor) else first + index
                return self.compute(index, before, LayerEdges(edges, layer, values))
            graph = halo.graph(1 + index)
            return self.compute(index, halo.inputs(1 + index, before), LayerEdges(graph, None, values))

        before, results = run_layers(compute, len(self.convs), rows, keep_all=hasattr(self, "jk"))
        is_whole = halo is not None or isinstance(edges, Tensor)
        seeds = len(results[-1]) if is_whole else edges.nodes_per_hop[0]  # type: ignore[union-attr]
        output = model_output(self, before, results, seeds)
        if halo is not None:
            halo.finish()
        return output

    def forward(
        self,
        source: Tensor | SampledMinibatch,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        *,
        x: Rows | Aggregated | None = None,
    ) -> Tensor:
        """Returns the logits of the seed nodes of a minibatch, or of all nodes of a whole graph.

        Calls are ``model(minibatch)``, ``model(minibatch, x=features)`` or ``model(features,
        edge_index)``. Weights and features of edges that a minibatch holds are used only if given.

        Args:
            source: a minibatch with one hop per layer, or an induced subgraph; or the features [N,
                F] of a whole graph.
            edge_index: [2, E] int64, sources above targets, if the first argument is features.
            edge_weight: [E] of the edges of the minibatch or of ``edge_index``, for GCN.
            edge_attr: [E, edge_dim] likewise, for GAT.
            x: [>= N, F], the features of the nodes of the minibatch in their order, or a `RowView`.
                Where None, what the minibatch carries: features, or aggregates if it has one hop
                less than the model has layers.

        Returns:
            [S, out_channels] float32, or float64 from float64 weights, one row per seed node; or
            [N, out_channels].

        Raises:
            TypeError, ValueError: arguments exclude each other, hops and layers differ in number,
                or there are no features.
        """
        return self.outputs(source, edge_index, edge_weight, edge_attr, x=x).logits

    def inference(
        self,
        loader: Any,
        device: Any = None,
        embedding_device: Any = "cpu",
        progress_bar: bool = False,
        cache: bool = False,  # noqa: ARG002  (nothing is sampled, so there is nothing to keep)
        *,
        memory_budget: int | str | None = None,
        scratch: str | Path | None = None,
        edge_values: Sequence[str] = (),
    ) -> Tensor:
        """Returns the logits of all nodes, each from all its in-neighbours, layer by layer.

        This is the whole graph's forward pass in evaluation mode, with memory bounded by pieces of
        the nodes. Collective over ranks: each computes the nodes that it owns, and fetches the rows
        of its halo nodes once per layer and piece.

        Args:
            loader: a `MacrobatchNeighborLoader`; its fanouts and seed nodes do not matter.
            device, embedding_device, cache: PyG's; devices are the CPU, and ``cache`` is ignored.
            progress_bar: shows a progress bar for each layer.
            memory_budget: bytes (or a text like "2GiB") that pieces and the rows of layers take,
                about; over ranks pieces alone. None: of the free memory of the host that has least
                an eighth, divided by its ranks, for a piece, and half for the rows of a layer.
            scratch: the folder of rows that do not fit; see `AllNodes`.
            edge_values: what the model reads of the data's edges: ``["edge_weight"]`` or
                ``["edge_attr"]``.

        Returns:
            [N, out_channels] float32, or float64 from float64 weights, by node id; over ranks [n,
            out_channels], by the rank's ``part.node``. Where it does not fit, the tensor is mapped
            from a file that is gone with it.

        Raises:
            TypeError, ValueError: another device, no features, or a module that mixes rows.
        """
        check_cpu(device, embedding_device)
        return self.infer(nodes_of(loader, memory_budget, progress_bar, scratch), edge_values).logits

    def infer(self, nodes: OwnedNodes, edge_values: Sequence[str] = ()) -> ModelOutput:
        """Returns the logits and the last layer's input of the nodes that a process owns."""
        schema = nodes.schema
        if not schema.is_plain:
            raise ValueError(
                f"the model is for one node type and one relation, but the graph has the node types "
                f"{list(schema.node_types)} and the relations {list(schema.relations)}; use "
                f"pyg_batchgnn.nn.to_hetero(model, metadata)"
            )
        (relation,) = schema.relations
        steps = [
            LayerStep({relation: conv}, partial(self._infer_layer, index, relation), edge_values)
            for index, conv in enumerate(self.convs)
        ]
        return infer_model(self, steps, nodes)[relation[0]]

    def _infer_layer(
        self, index: int, relation: Relation, x: Mapping[str, Rows], edges: PieceEdges
    ) -> dict[str, Tensor]:
        graph, name = edges.graph(relation), relation[0]
        assert graph is not None, "a piece has the edges of its relations"
        values = self._edge_values(**{one: of[relation] for one, of in edges.piece.edge_values.items()})
        return {name: self.compute(index, x[name], LayerEdges(graph, None, values))}

    def _edge_values(self, **values: Tensor | None) -> dict[str, Tensor]:
        given = {name: value for name, value in values.items() if value is not None}
        for name in given:
            if not getattr(self, f"supports_{name}"):
                raise TypeError(f"{type(self).__name__} takes no {name}; leave it out")
        return given

    def _arguments(
        self, source: Tensor | SampledMinibatch, edge_index: Tensor | None, x: Rows | Aggregated | None
    ) -> tuple[Rows | Aggregated, Tensor | SampledMinibatch]:
        if isinstance(source, Tensor):
            if edge_index is None or x is not None:
                raise TypeError("a whole graph is given as model(features, edge_index)")
            return source, edge_index
        if not is_sampled(source):
            raise TypeError(
                f"expected a minibatch or features, got {type(source).__name__}; a loader with "
                f"export='native' yields minibatches"
            )
        if edge_index is not None:
            raise TypeError(
                "a minibatch has its own edges; give its features as model(minibatch, x=features)"
            )
        hops, layers = source.num_layers, len(self.convs)
        if hops == layers - 1:
            x = aggregated_of(source) if x is None else x
            if isinstance(x, Aggregated):
                return x, source
        if hops is None and isinstance(x, Aggregated):
            raise ValueError(
                "aggregates made beforehand stand for the last hop, but an induced subgraph has no hops; "
                "give the features of its nodes as x"
            )
        if hops is not None and (hops != layers or isinstance(x, Aggregated)):
            order = (
                f", or exchange num_layers={layers} and out_channels={hops}: the order is PyG's, "
                f"{type(self).__name__}(in_channels, hidden_channels, num_layers, out_channels)"
            )
            raise wrong_hops(layers, hops, order if self.out_channels == hops != layers else "")
        return features_of(source) if x is None else x, source


def _unknown_name(model: str, given: Mapping[str, Any], error: TypeError) -> TypeError:
    """Returns an error that names the known arguments, if ``error`` says that one is unknown."""
    found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if found is None or found[1] not in given:
        return error
    return TypeError(
        f"{model} has no argument {found[1]!r}; its arguments are PyG's: "
        f"{model}(in_channels, hidden_channels, num_layers, out_channels, ...)"
    )


def _check_modules(act: Any, norm: Any, jk: Any) -> None:
    if act is not None and not isinstance(act, str) and (isinstance(act, type) or not callable(act)):
        raise TypeError(f"act must be a name of torch.nn, a module or None, got {act!r}")
    if norm is not None and not isinstance(norm, (str, torch.nn.Module)):
        raise TypeError(f"norm must be a name of torch_geometric.nn.norm, a module or None, got {norm!r}")
    if jk is not None and jk not in _JK_MODES:
        raise ValueError(f"jk must be None or one of {', '.join(_JK_MODES)}, got {jk!r}")


class GAT(NativeModel):
    """PyG's `GAT` on native layers: the same arguments (see `NativeModel`) and ``state_dict``.

    >>> GAT(data.num_features, 16, 2, 3, heads=4)(data.x, data.edge_index).shape
    torch.Size([100, 3])

    Heads are concatenated, but the last layer averages them unless a linear layer follows.

    Args:
        v2: takes the attention of GATv2 (Brody, Alon and Yahav 2022).
        heads: the number of heads of every layer; 1 by default.
        concat: concatenates heads; False averages them in every layer.
        attention_dropout: the probability of dropping an attention weight in training mode; None
            for `dropout`, as in PyG.

    Raises:
        ValueError: the columns of a layer are not a multiple of ``heads``.
    """

    conv: ClassVar[Callable[..., MessagePassing]] = GATConv
    supports_edge_attr = True

    def init_conv(
        self,
        in_channels: int,
        out_channels: int,
        *,
        v2: bool = False,
        heads: int = 1,
        concat: bool = True,
        attention_dropout: float | None = None,
        **kwargs: Any,
    ) -> MessagePassing:
        heads = positive("heads", heads)
        concat = concat and not getattr(self, "_is_conv_to_out", False)
        if concat and out_channels % heads:
            raise ValueError(
                f"the columns of a layer ({out_channels}) must be a multiple of heads ({heads}), "
                f"because heads are concatenated"
            )
        columns = out_channels // heads if concat else out_channels
        drop = self.dropout.p
        if attention_dropout is not None:
            drop = probability("attention_dropout", attention_dropout)
        conv = GATv2Conv if v2 else type(self).conv
        return conv(in_channels, columns, heads=heads, concat=concat, dropout=drop, **kwargs)


class GCN(NativeModel):
    """PyG's `GCN` on native layers: the same arguments (see `NativeModel`) and ``state_dict``.

    >>> GCN(data.num_features, 16, 2, 3)(data.x, data.edge_index).shape
    torch.Size([100, 3])
    """

    conv = GCNConv
    supports_edge_weight = True


class SAGE(NativeModel):
    """PyG's `GraphSAGE` on native layers: the same arguments (see `NativeModel`) and
    ``state_dict``.

    >>> model = SAGE(data.num_features, 16, 2, 3)
    >>> for batch in MacrobatchNeighborLoader(data, [10, 5], export="native", batch_size=32):
    ...     out = model(batch)  # [batch.batch_size, 3]
    """

    conv = SAGEConv


class GIN(NativeModel):
    """PyG's `GIN` on native layers: the same arguments (see `NativeModel`) and ``state_dict``.

    >>> GIN(data.num_features, 16, 2, 3, norm="batch_norm")(data.x, data.edge_index).shape
    torch.Size([100, 3])

    A normalisation given by name, as in the paper's model, is inside the perceptrons, too. Its
    statistics cover exactly the rows of each layer.

    Args:
        inner_channels: columns inside the perceptrons; None for as many as they return, as in PyG.
    """

    conv = GINConv

    def init_conv(
        self, in_channels: int, out_channels: int, *, inner_channels: int | None = None, **kwargs: Any
    ) -> MessagePassing:
        inner = out_channels if inner_channels is None else positive("inner_channels", inner_channels)
        norm = normalization_resolver(self.norm, inner, **(self.norm_kwargs or {})) if self.norm else None
        made = Perceptron(
            (in_channels, inner, out_channels), self.act, self.act_first, norm or torch.nn.Identity()
        )
        return GINConv(made, **kwargs)
