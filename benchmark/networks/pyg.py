"""PyG's networks: its models as a user makes them, and its convolutions where rows that nobody
reads are left out, homogeneous and typed.

Imports torch and torch_geometric alone, so that it loads in every interpreter that takes part.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, HeteroConv, SAGEConv, to_hetero
from torch_geometric.utils import trim_to_layer

from benchmark.networks.own import own_model
from benchmark.networks.recipe import DROPOUT, HEADS, Convolution, Stack, TypedStack, after, mlp, widths
from benchmark.support.jobs import Options
from benchmark.support.mag import SEEDS, Relation

warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")

#: By the names of ``recipe.MODELS``.
KINDS: dict[str, Callable[..., torch.nn.Module]] = {
    "sage": pyg.GraphSAGE,
    "gcn": pyg.GCN,
    "gin": pyg.GIN,
    "gat": pyg.GAT,
}


def basic_model(
    options: Options, features: int, outputs: int, relations: Sequence[Relation] = ()
) -> torch.nn.Module:
    """Returns PyG's model with ReLU and dropout between the layers, or a user's own module."""
    torch.manual_seed(options.seed)
    name, hidden, layers = options.model, options.hidden, len(options.fanouts)
    if name not in KINDS:
        return own_model(name, features, hidden, outputs, layers, relations)
    heads = {"heads": HEADS} if name == "gat" else {}
    return KINDS[name](features, hidden, layers, outputs, dropout=DROPOUT, **heads)


def convolution(model: str, hidden: int, **attention: Any) -> Convolution:
    """PyG's layer of the network named ``model``; ``attention``: further arguments of GAT's."""

    def gin(inputs: int, outputs: int, _: bool) -> nn.Module:
        return GINConv(mlp(inputs, hidden, outputs))

    def gat(inputs: int, outputs: int, last: bool) -> nn.Module:
        columns = outputs if last else outputs // HEADS
        return GATConv(inputs, columns, heads=HEADS, concat=not last, **attention)

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
    """A network on bipartite slices: layer l computes only the rows that layer l + 1 reads."""

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
        for layer, conv in enumerate(self.convs):
            x = self.between(layer, conv(x, adjacency))
        return x


Metadata = tuple[list[str], list[Relation]]


def _of_relation(model: str, hidden: int) -> Convolution:
    return convolution(model, hidden, add_self_loops=False)


class _Layer(nn.Module):
    """A convolution and what follows it, of which `to_hetero` makes a typed layer."""

    def __init__(self, conv: nn.Module, follows: nn.Module | None) -> None:
        super().__init__()
        self.conv, self.follows = conv, follows

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv(x, edge_index)
        return x if self.follows is None else self.follows(x)


class TypedTrimmed(nn.Module):
    """Layers made typed by `to_hetero`, and the minibatch trimmed before each of them."""

    def __init__(
        self, model: str, features: int, hidden: int, classes: int, count: int, metadata: Metadata
    ) -> None:
        super().__init__()
        layers = []
        for place, pair in enumerate(widths(features, hidden, classes, count)):
            last = place + 1 == count
            conv = _of_relation(model, hidden)(*pair, last)
            layers.append(to_hetero(_Layer(conv, None if last else after(model, hidden)), metadata))
        self.layers = nn.ModuleList(layers)

    def forward(self, batch: Any) -> Tensor:
        """Returns the [batch_size, classes] logits of the seeds of a PyG minibatch."""
        x, edges = batch.x_dict, batch.edge_index_dict
        counts = batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict
        for number, layer in enumerate(self.layers):
            x, edges, _ = trim_to_layer(number, *counts, x, edges)
            x = layer(x, edges)
        logits: Tensor = x[SEEDS]
        return logits[: batch[SEEDS].batch_size]


class TypedPrefixes(TypedStack):
    """`HeteroConv` on bipartite slices: layer l computes only the rows that layer l + 1 reads."""

    def __init__(
        self, model: str, features: int, hidden: int, classes: int, count: int, metadata: Metadata
    ) -> None:
        of_relation = _of_relation(model, hidden)
        super().__init__(
            model,
            lambda *shape: HeteroConv({one: of_relation(*shape) for one in metadata[1]}),
            metadata[0],
            *(features, hidden, classes, count),
        )
        self.edges = FASTEST[model]

    def forward(self, batch: Any) -> Tensor:
        """Returns the [batch_size, classes] logits of the seeds of a PyG minibatch."""
        x, count = batch.x_dict, len(self.convs)
        nodes, edges = batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict
        rows = {name: sum(hops[:count]) for name, hops in nodes.items()}
        graphs = {one: self.edges(batch[one], rows[one[2]], batch[SEEDS].x.dtype) for one in edges}
        for layer, conv in enumerate(self.convs):
            hops = count - layer
            targets = {name: sum(found[:hops]) for name, found in nodes.items()}
            used = [one for one in edges if targets[one[2]] and one[0] in x]
            ends = {(a, name, b): (x[a], x[b][: targets[b]]) for a, name, b in used}
            slices = {
                one: graphs[one].layer(targets[one[2]], x[one[0]].size(0), sum(edges[one][:hops]))
                for one in used
            }
            x = self.between_types(layer, conv(ends, slices))
        return x[SEEDS]
