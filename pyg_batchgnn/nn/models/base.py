"""The base of the four models: a stack of native convolutions on a minibatch or on a whole
graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn.nn.aggregated import Aggregated, aggregated_of
from pyg_batchgnn.nn.graph import LayerGraph, SampledBatch, is_sampled
from pyg_batchgnn.nn.inference import HasNodes, check_cpu, infer_model, nodes_of
from pyg_batchgnn.nn.inputs import Edges, Rows, head
from pyg_batchgnn.nn.layerwise import OwnedNodes
from pyg_batchgnn.nn.rows import NormedRows, RowView
from pyg_batchgnn.nn.update import Update


class ModelOutput(NamedTuple):
    """The result of a forward pass. Its rows are the seed nodes of a minibatch or all nodes of a
    graph.

    Attributes:
        logits: [S, classes] float32, or float64 from float64 weights.
        hidden: [S, hidden], the input of the last layer. In a model of one layer these are the
            features.
    """

    logits: Tensor
    hidden: Tensor


def layer_widths(in_channels: int, hidden: int, out_channels: int, layers: int) -> list[tuple[int, int]]:
    """Returns (input columns, output columns) of each layer, from the input on."""
    if layers < 1:
        raise ValueError(f"a model needs at least one layer, got layers={layers}")
    return list(pairwise([in_channels, *[hidden] * (layers - 1), out_channels]))


def head_channels(hidden: int, heads: int) -> int:
    """Returns the columns of each attention head; a layer concatenates its heads.

    Raises:
        ValueError: `hidden` is not a multiple of `heads`.
    """
    if hidden % heads:
        raise ValueError(f"hidden ({hidden}) must be a multiple of heads ({heads}): heads are concatenated")
    return hidden // heads


def features_of(minibatch: SampledBatch) -> RowView:
    """Returns the features ``x`` of a minibatch, read in place.

    Raises:
        ValueError: the minibatch carries no features.
    """
    row: Tensor | None = getattr(minibatch, "row", None)
    block: Mapping[str, Tensor] = getattr(minibatch, "block", {})
    if row is not None and "x" in block:
        return RowView(block["x"], row)
    raise ValueError(
        "the minibatch carries no features 'x'; give them to the loader's data, or to the model: "
        "model(minibatch, x=features_of_its_nodes)"
    )


class NativeModel(torch.nn.Module):
    """A graph neural network of native convolutions.

    A subclass may override `compute` to change what follows a convolution. A minibatch with one hop
    less than there are layers is accepted if it carries the aggregates of the first layer
    (`Aggregated`).
    """

    def __init__(self, convs: Iterable[torch.nn.Module], dropout: float) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(convs)
        self.between = Update(relu=True, drop=dropout)

    def compute(self, index: int, x: Rows | Aggregated, edges: Edges, layer: int | None) -> Tensor:
        """Computes layer ``index`` (from 0), with ReLU and dropout after all layers but the last.

        ``layer`` is the number of the layer in the minibatch, 0 if ``x`` is `Aggregated`.
        """
        update = None if index == len(self.convs) - 1 else self.between
        result: Tensor = self.convs[index](x, edges, layer, update=update)
        return result

    def _compute_rows(
        self, index: int, x: Rows | NormedRows | Aggregated, edges: Tensor | SampledBatch, layer: int | None
    ) -> Rows | NormedRows:
        """Calls `compute`. A model may override it to leave a part to the layer that reads the
        result."""
        assert not isinstance(x, NormedRows)
        return self.compute(index, x, edges, layer)

    def outputs(
        self,
        source: Tensor | SampledBatch,
        edge_index: Tensor | None = None,
        *,
        x: Rows | Aggregated | None = None,
    ) -> ModelOutput:
        """Returns the logits and the last hidden layer. The arguments are those of `forward`."""
        rows, edges = self._arguments(source, edge_index, x)
        first = 0 if isinstance(rows, Aggregated) else 1
        hidden: Rows | NormedRows | Aggregated = rows
        result: Rows | NormedRows | Aggregated = rows
        for index in range(len(self.convs)):
            hidden = result
            result = self._compute_rows(index, hidden, edges, index + first if edge_index is None else None)
        assert isinstance(result, Tensor) and not isinstance(hidden, Aggregated)
        seeds = result.size(0)
        last = hidden.head(seeds) if isinstance(hidden, NormedRows) else head(hidden, seeds)
        wide = result.float() if result.dtype == torch.bfloat16 else result
        return ModelOutput(wide, last if isinstance(last, Tensor) else last.gather())

    def forward(
        self,
        source: Tensor | SampledBatch,
        edge_index: Tensor | None = None,
        *,
        x: Rows | Aggregated | None = None,
    ) -> Tensor:
        """Returns the logits of the seed nodes of a minibatch, or of all nodes of a whole graph.

        Calls are ``model(minibatch)``, ``model(minibatch, x=features)`` or ``model(features,
        edge_index)``.

        Args:
            source: a minibatch with one hop per layer; or the features [N, F] of a whole graph.
            edge_index: [2, E] int64, sources above targets, if the first argument is features.
            x: [>= N, F], the features of the nodes of the minibatch in their order, or a `RowView`.
                Where None, the features that the minibatch carries; aggregates if it has one hop
                less than the model has layers.

        Returns:
            [S, classes] float32, or float64 from float64 weights, one row per seed node; or [N,
            classes].

        Raises:
            TypeError, ValueError: the arguments do not go together, the number of hops is not that
                of layers, or there are no features.
        """
        return self.outputs(source, edge_index, x=x).logits

    def inference(
        self,
        loader: HasNodes,
        device: Any = None,
        embedding_device: Any = "cpu",
        progress_bar: bool = False,
        cache: bool = False,  # noqa: ARG002  (nothing is sampled, so there is nothing to keep)
        *,
        memory_budget: int | None = None,
    ) -> Tensor:
        """Returns the logits of all nodes, each from all its in-neighbours, layer by layer.

        This is the whole graph's forward pass in evaluation mode, with memory bounded by pieces of
        the nodes. Collective over ranks: each rank computes the nodes that it owns, and fetches the
        rows of its halo nodes once per layer and piece.

        Args:
            loader: a `MacrobatchNeighborLoader`; its fanouts and seed nodes do not matter.
            device, embedding_device: the CPU; arguments of PyG's ``inference``.
            progress_bar: shows a progress bar for each layer.
            cache: ignored; an argument of PyG's ``inference``.
            memory_budget: bytes that a piece takes, about. None: an eighth of the free memory of
                the host that has least, divided by its ranks.

        Returns:
            [N, classes] float32, or float64 from float64 weights, by node id; over ranks [n,
            classes], by the rank's ``part.node``.

        Raises:
            TypeError, ValueError: a device that is not the CPU, a loader without features, or a
                normalisation over the nodes of a call.
        """
        check_cpu(device, embedding_device)
        return self.infer(nodes_of(loader, memory_budget, progress_bar)).logits

    def infer(self, nodes: OwnedNodes) -> ModelOutput:
        """Returns logits and the last hidden layer of the nodes that a process owns."""
        result, hidden = infer_model(self, nodes, self._step)
        return ModelOutput(result.float() if result.dtype == torch.bfloat16 else result, hidden)

    def _step(self, index: int, x: Rows, graph: LayerGraph) -> Tensor:
        return self.compute(index, x, graph, None)

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
        hops, layers = len(source.edges_per_hop), len(self.convs)
        if hops == layers - 1:
            x = aggregated_of(source) if x is None else x
            if isinstance(x, Aggregated):
                return x, source
        if hops != layers or isinstance(x, Aggregated):
            raise ValueError(
                f"a model of {layers} layers needs minibatches of {layers} hops, but this one has {hops}; "
                f"give the loader {layers} entries in num_neighbors"
            )
        return features_of(source) if x is None else x, source
