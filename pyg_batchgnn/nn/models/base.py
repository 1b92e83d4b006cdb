"""What the four models share: a stack of native convolutions on a minibatch or on a graph held whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn.nn.aggregated import Aggregated, aggregated_of
from pyg_batchgnn.nn.graph import SampledBatch, is_sampled
from pyg_batchgnn.nn.inputs import Rows, head
from pyg_batchgnn.nn.rows import NormedRows, RowView
from pyg_batchgnn.nn.update import Update


class ModelOutput(NamedTuple):
    """Result of a forward pass; rows are the seeds of a minibatch, or all nodes of a whole graph.

    Attributes:
        logits: [S, classes] float32 (float64 from float64 weights).
        hidden: [S, hidden] input of the last layer (the features themselves in a model of one layer).
    """

    logits: Tensor
    hidden: Tensor


def layer_widths(in_channels: int, hidden: int, out_channels: int, layers: int) -> list[tuple[int, int]]:
    """(input columns, output columns) of each layer, the layer nearest the input first."""
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
    """The minibatch's features ``x`` where they lie.

    Raises:
        ValueError: the minibatch carries none.
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

    A subclass may change what follows a convolution by `compute`. A minibatch with a hop less than there are
    layers is taken where it carries what the first layer aggregates (`Aggregated`).
    """

    def __init__(self, convs: Iterable[torch.nn.Module], dropout: float) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(convs)
        self.between = Update(relu=True, drop=dropout)

    def compute(
        self, index: int, x: Rows | Aggregated, edges: Tensor | SampledBatch, layer: int | None
    ) -> Tensor:
        """Layer ``index`` (from 0) with what follows it: ReLU and dropout after all layers but the last.
        ``layer`` is that of the minibatch, 0 where ``x`` is `Aggregated`."""
        update = None if index == len(self.convs) - 1 else self.between
        result: Tensor = self.convs[index](x, edges, layer, update=update)
        return result

    def _compute_rows(
        self, index: int, x: Rows | NormedRows | Aggregated, edges: Tensor | SampledBatch, layer: int | None
    ) -> Rows | NormedRows:
        """`compute`, of which a model may leave a part to the layer that reads the result."""
        assert not isinstance(x, NormedRows)
        return self.compute(index, x, edges, layer)

    def outputs(
        self,
        source: Tensor | SampledBatch,
        edge_index: Tensor | None = None,
        *,
        x: Rows | Aggregated | None = None,
    ) -> ModelOutput:
        """Logits and last hidden layer; the arguments are those of `forward`."""
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
        """Logits of a minibatch's seeds, or of all nodes of a graph held whole.

        Called as ``model(minibatch)``, ``model(minibatch, x=features)`` or ``model(features, edge_index)``.

        Args:
            source: a minibatch with one hop a layer; or the features [N, F] of a graph held whole.
            edge_index: [2, E] int64 sources above targets, with features for the first argument.
            x: [>= N, F] features of the minibatch's nodes, in their order, or a `RowView`; where None, read
                from its block by way of ``row``, aggregates too where the minibatch has a hop less than the
                model has layers.

        Returns:
            [S, classes] float32 (float64 from float64 weights), rows of the seeds in order; or [N, classes].

        Raises:
            TypeError, ValueError: another combination of arguments, another number of hops than layers, or no
                features.
        """
        return self.outputs(source, edge_index, x=x).logits

    def _arguments(
        self, source: Tensor | SampledBatch, edge_index: Tensor | None, x: Rows | Aggregated | None
    ) -> tuple[Rows | Aggregated, Tensor | SampledBatch]:
        """Features and edges of the three ways to call."""
        if isinstance(source, Tensor):
            if edge_index is None or x is not None:
                raise TypeError("a graph held whole is given as model(features, edge_index)")
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
