"""The base of the four native models: native layers on a minibatch or on a whole graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from pyg_batchgnn.nn.aggregated import Aggregated, aggregated_of
from pyg_batchgnn.nn.features import features_of
from pyg_batchgnn.nn.graph import LayerGraph
from pyg_batchgnn.nn.halo import HaloPass, has_halo
from pyg_batchgnn.nn.inference import HasNodes, check_cpu, infer_model, nodes_of
from pyg_batchgnn.nn.inputs import Rows
from pyg_batchgnn.nn.linear import Linear
from pyg_batchgnn.nn.models.after import After, fuses_relu
from pyg_batchgnn.nn.models.layer_edges import LayerEdges
from pyg_batchgnn.nn.models.norms import native_norm
from pyg_batchgnn.nn.models.stack import LayerStack, ModelOutput, wide
from pyg_batchgnn.nn.owned_nodes import OwnedNodes
from pyg_batchgnn.nn.rows import NormedRows
from pyg_batchgnn.nn.sampled import SampledBatch, is_sampled, num_sampled_layers
from pyg_batchgnn.nn.update import Update


class NativeModel(LayerStack):
    """A graph neural network of native convolutions, with the arguments and the ``state_dict`` of
    PyG's model.

    ReLU, dropout and batch normalisation are fused with the products. Other activations and
    normalisations are the modules of torch and PyG. A subclass may override `compute` to change
    what follows a convolution. A minibatch with one hop less than there are layers is accepted if
    it carries the aggregates of the first layer (`Aggregated`).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for norm in self.norms:
            native_norm(norm, relu=self.fuses_relu and not self.act_first)
        if self.jk_mode is not None:
            self._modules["lin"] = Linear.sharing(self.get_submodule("lin"))

    @property
    def fuses_relu(self) -> bool:
        """True if the activation is a ReLU that nobody watches, so that others may compute it."""
        return fuses_relu(self.act)

    def compute(self, index: int, x: Rows | NormedRows | Aggregated, edges: LayerEdges) -> Tensor:
        """Computes layer ``index`` (from 0), with the normalisation, activation and dropout that
        follow it."""
        conv = self.convs[index]
        if not self.is_followed(index):
            plain: Tensor = edges.apply(conv, x)
            return plain

        def convolve(update: Update | None) -> Tensor:
            result: Tensor = edges.apply(conv, x, **({} if update is None else {"update": update}))
            return result

        after = After(self.norms[index], self.act, self.act_first, self.dropout.p, self.training)
        return after.of(convolve, edges.dropout, lambda: self._normed(index, x, edges))

    def _normed(self, index: int, x: Rows | NormedRows | Aggregated, edges: LayerEdges) -> Tensor:
        """Computes a layer with the batch normalisation and ReLU that follow it."""
        result: Tensor = self.norms[index](edges.apply(self.convs[index], x))
        return result

    def outputs(
        self,
        source: Tensor | SampledBatch,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        *,
        x: Rows | Aggregated | None = None,
    ) -> ModelOutput:
        """Returns the logits and the last hidden layer. The arguments are those of `forward`."""
        rows, edges = self._arguments(source, edge_index, x)
        values = self._edge_values(edge_weight=edge_weight, edge_attr=edge_attr)
        if has_halo(edges):
            return self._run_with_halo(rows, edges, values)
        first = 0 if isinstance(rows, Aggregated) else 1
        is_whole = isinstance(edges, Tensor)
        return self._run(
            rows,
            [
                LayerEdges(edges, None if is_whole else first + index, values)
                for index in range(len(self.convs))
            ],
            None if isinstance(edges, Tensor) else edges.nodes_per_hop[0],
        )

    def _run_with_halo(self, rows: Any, edges: Any, values: Mapping[str, Tensor]) -> ModelOutput:
        halo, layers = HaloPass(edges), range(1, len(self.convs) + 1)
        graphs = [halo.graph(layer) for layer in layers]
        of_layers = [
            LayerEdges(graph, layer, values, halo) for layer, graph in zip(layers, graphs, strict=True)
        ]
        output = self._run(rows, of_layers)
        halo.finish()
        return output

    def _inputs(self, x: Any, edges: LayerEdges) -> Any:
        if edges.halo is None:
            return x
        assert edges.layer is not None
        return edges.halo.inputs(edges.layer, x)

    def forward(
        self,
        source: Tensor | SampledBatch,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        *,
        x: Rows | Aggregated | None = None,
    ) -> Tensor:
        """Returns the logits of the seed nodes of a minibatch, or of all nodes of a whole graph.

        Calls are ``model(minibatch)``, ``model(minibatch, x=features)`` or ``model(features,
        edge_index)``. Weights and features of edges that a minibatch holds are used only if they
        are given.

        Args:
            source: a minibatch with one hop per layer, or an induced subgraph; or the features [N,
                F] of a whole graph.
            edge_index: [2, E] int64, sources above targets, if the first argument is features.
            edge_weight: [E], the weights of the edges of the minibatch or of ``edge_index``, for
                GCN.
            edge_attr: [E, edge_dim], the features of the edges likewise, for GAT.
            x: [>= N, F], the features of the nodes of the minibatch in their order, or a `RowView`.
                Where None, the features that the minibatch carries; aggregates if it has one hop
                less than the model has layers.

        Returns:
            [S, out_channels] float32, or float64 from float64 weights, one row per seed node; or
            [N, out_channels].

        Raises:
            TypeError, ValueError: the arguments do not go together, the number of hops is not that
                of layers, or there are no features.
        """
        return self.outputs(source, edge_index, edge_weight, edge_attr, x=x).logits

    def inference(
        self,
        loader: HasNodes,
        device: Any = None,
        embedding_device: Any = "cpu",
        progress_bar: bool = False,
        cache: bool = False,  # noqa: ARG002  (nothing is sampled, so there is nothing to keep)
        *,
        memory_budget: int | str | None = None,
    ) -> Tensor:
        """Returns the logits of all nodes, each from all its in-neighbours, layer by layer.

        This is the whole graph's forward pass in evaluation mode, with memory bounded by pieces of
        the nodes. Collective over ranks: each rank computes the nodes that it owns, and fetches the
        rows of its halo nodes once per layer and piece. Weights and features of edges that the
        data holds are not used.

        Args:
            loader: a `MacrobatchNeighborLoader`; its fanouts and seed nodes do not matter.
            device, embedding_device: the CPU; arguments of PyG's ``inference``.
            progress_bar: shows a progress bar for each layer.
            cache: ignored; an argument of PyG's ``inference``.
            memory_budget: bytes (or a text like "2GiB") that a piece takes, about. None: an eighth
                of the free memory of the host that has least, divided by its ranks.

        Returns:
            [N, out_channels] float32, or float64 from float64 weights, by node id; over ranks [n,
            out_channels], by the rank's ``part.node``.

        Raises:
            TypeError, ValueError: a device that is not the CPU, a loader without features, or a
                normalisation over the nodes of a call.
        """
        check_cpu(device, embedding_device)
        return self.infer(nodes_of(loader, memory_budget, progress_bar)).logits

    def infer(self, nodes: OwnedNodes) -> ModelOutput:
        """Returns logits and the last hidden layer of the nodes that a process owns."""
        result, hidden = infer_model(self, nodes, self._step)
        return ModelOutput(wide(result), hidden)

    def _step(self, index: int, x: Rows, graph: LayerGraph) -> Tensor:
        return self.compute(index, x, LayerEdges(graph, None))

    def _edge_values(self, **values: Tensor | None) -> dict[str, Tensor]:
        """Returns the values of edges that were given and that the convolutions take."""
        given = {name: value for name, value in values.items() if value is not None}
        for name in given:
            if not getattr(self, f"supports_{name}"):
                raise TypeError(f"{type(self).__name__} takes no {name}; leave it out")
        return given

    def _arguments(
        self, source: Tensor | SampledBatch, edge_index: Tensor | None, x: Rows | Aggregated | None
    ) -> tuple[Rows | Aggregated, Tensor | SampledBatch]:
        """Returns the features and edges of the three ways to call."""
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
        hops, layers = num_sampled_layers(source), len(self.convs)
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
            raise ValueError(
                f"a model of {layers} layers needs minibatches of {layers} hops, but this one has {hops}; "
                f"give the loader {layers} entries in num_neighbors{self._order_hint(hops)}"
            )
        return features_of(source) if x is None else x, source

    def _order_hint(self, hops: int) -> str:
        """Returns advice for a model whose out_channels and num_layers seem to be exchanged."""
        if self.out_channels != hops or hops == len(self.convs):
            return ""
        name = type(self).__name__
        return (
            f", or exchange num_layers={self.num_layers} and out_channels={hops}: the order is PyG's, "
            f"{name}(in_channels, hidden_channels, num_layers, out_channels)"
        )
