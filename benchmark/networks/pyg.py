"""The networks on PyG's convolutions, in the two ways to leave out rows that nobody reads."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv
from torch_geometric.utils import trim_to_layer

from benchmark.networks.recipe import HEADS, Convolution, Stack, mlp

warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")


def convolution(model: str, hidden: int) -> Convolution:
    """PyG's layer of the network named ``model``."""

    def gin(inputs: int, outputs: int, _: bool) -> nn.Module:
        return GINConv(mlp(inputs, hidden, outputs))

    def gat(inputs: int, outputs: int, last: bool) -> nn.Module:
        if last:
            return GATConv(inputs, outputs, heads=HEADS, concat=False)
        return GATConv(inputs, outputs // HEADS, heads=HEADS)

    builders: dict[str, Convolution] = {
        "sage": lambda inputs, outputs, _: SAGEConv(inputs, outputs),
        "gcn": lambda inputs, outputs, _: GCNConv(inputs, outputs),
        "gin": gin,
        "gat": gat,
    }
    return builders[model]


class Trimmed(Stack):
    """A network with ``trim_to_layer``, PyG's way of leaving out work on minibatches."""

    def __init__(self, model: str, features: int, hidden: int, classes: int, count: int) -> None:
        super().__init__(model, convolution(model, hidden), features, hidden, classes, count)

    def forward(self, batch: Any) -> Tensor:
        """[batch_size, classes] logits of the seeds of a PyG minibatch."""
        x, edge_index = batch.x, batch.edge_index
        for layer, conv in enumerate(self.convs):
            x, edge_index, _ = trim_to_layer(
                layer, batch.num_sampled_nodes, batch.num_sampled_edges, x, edge_index
            )
            x = self.between(layer, conv(x, edge_index))
        return x[: batch.batch_size]


class Pairs:
    """Edges as pairs: what every layer takes, and the only form that attention knows."""

    def __init__(self, batch: Any, rows: int, dtype: torch.dtype) -> None:
        del rows, dtype
        self.edge_index = batch.edge_index

    def layer(self, rows: int, inputs: int, edges: int) -> Tensor:
        """The first ``edges`` edges, from ``inputs`` rows to ``rows`` rows."""
        del rows, inputs
        return self.edge_index[:, :edges]


class CompressedRows:
    """Edges as one ``torch.sparse_csr`` matrix by destination, of which each layer takes a prefix.

    PyG's fast path for sums and means on a CPU. Samplers return the edges grouped by destination
    already, in the order in which nodes were expanded, so nothing need be sorted.
    """

    def __init__(self, batch: Any, rows: int, dtype: torch.dtype) -> None:
        self.columns, destinations = batch.edge_index[0], batch.edge_index[1]
        self.starts = torch._convert_indices_from_coo_to_csr(destinations.contiguous(), rows)
        self.ones = torch.ones(self.columns.numel(), dtype=dtype)

    def layer(self, rows: int, inputs: int, edges: int) -> Tensor:
        """Returns the [rows, inputs] matrix of the first ``edges`` edges, which shares memory."""
        return torch.sparse_csr_tensor(
            self.starts[: rows + 1],
            self.columns[:edges],
            self.ones[:edges],
            (rows, inputs),
            check_invariants=False,
        )


FASTEST: dict[str, Callable[..., Any]] = {"sage": CompressedRows, "gin": CompressedRows, "gat": Pairs}


class Sliced(Stack):
    """A network on bipartite slices: layer l computes only the rows that layer l + 1 reads.

    Args:
        model: ``sage``, ``gin`` or ``gat``; PyG's ``GCNConv`` refuses bipartite input.
        features, hidden, classes, count: widths, and number of layers.
        edges: the form in which layers take the edges; PyG's fastest for the model unless told.
    """

    def __init__(
        self, model: str, features: int, hidden: int, classes: int, count: int, edges: Any = None
    ) -> None:
        if model not in FASTEST:
            raise ValueError(f"PyG's convolution of {model!r} does not take bipartite slices")
        super().__init__(model, convolution(model, hidden), features, hidden, classes, count)
        self.edges = edges or FASTEST[model]

    def forward(self, batch: Any) -> Tensor:
        """[batch_size, classes] logits of the seeds of a minibatch with PyG's attributes."""
        x, count = batch.x, len(self.convs)
        graph = self.edges(batch, sum(batch.num_sampled_nodes[:count]), x.dtype)
        for layer, conv in enumerate(self.convs):
            hops = count - layer
            rows = sum(batch.num_sampled_nodes[:hops])
            edges = sum(batch.num_sampled_edges[:hops])
            x = self.between(layer, conv((x, x[:rows]), graph.layer(rows, x.size(0), edges)))
        return x

    def whole_graph(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """Returns [N, classes] logits from all neighbours; ``adjacency``: compressed rows."""
        for layer, conv in enumerate(self.convs):
            x = self.between(layer, conv(x, adjacency))
        return x
