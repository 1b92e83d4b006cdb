"""The typed networks on PyG's convolutions, in the two ways to leave out rows that nobody reads."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch_geometric.nn import GATConv, HeteroConv, SAGEConv, to_hetero
from torch_geometric.utils import trim_to_layer

from benchmark.networks.pyg import FASTEST
from benchmark.networks.recipe import HEADS, after, widths
from benchmark.support.mag import SEEDS, Relation

Metadata = tuple[list[str], list[Relation]]


def convolution(model: str, inputs: int, outputs: int, last: bool) -> nn.Module:
    """Returns PyG's layer of a relation."""
    if model == "sage":
        return SAGEConv(inputs, outputs)
    columns = outputs if last else outputs // HEADS
    return GATConv(inputs, columns, heads=HEADS, concat=not last, add_self_loops=False)


class _Layer(nn.Module):
    """A convolution and what follows it, of which `to_hetero` makes a typed layer."""

    def __init__(self, conv: nn.Module, follows: nn.Module | None) -> None:
        super().__init__()
        self.conv, self.follows = conv, follows

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Returns the rows of all nodes."""
        x = self.conv(x, edge_index)
        return x if self.follows is None else self.follows(x)


class Trimmed(nn.Module):
    """Layers made typed by `to_hetero`, and the minibatch trimmed before each of them.

    The layers of a whole model of PyG that `to_hetero` made typed cannot be trimmed.
    """

    def __init__(
        self, model: str, features: int, hidden: int, classes: int, count: int, metadata: Metadata
    ) -> None:
        super().__init__()
        layers = []
        for place, pair in enumerate(widths(features, hidden, classes, count)):
            last = place + 1 == count
            one = _Layer(convolution(model, *pair, last), None if last else after(model, hidden))
            layers.append(to_hetero(one, metadata))
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


class Prefixes(nn.Module):
    """`HeteroConv` on bipartite slices: layer l computes only the rows that layer l + 1 reads.

    Relations that lead to no row of a layer are left out. SAGE takes edges as ``torch.sparse_csr``,
    PyG's fast path.
    """

    def __init__(
        self, model: str, features: int, hidden: int, classes: int, count: int, metadata: Metadata
    ) -> None:
        super().__init__()
        self.edges = FASTEST[model]
        pairs = widths(features, hidden, classes, count)
        self.convs = nn.ModuleList(
            HeteroConv({one: convolution(model, *pair, place + 1 == count) for one in metadata[1]})
            for place, pair in enumerate(pairs)
        )
        self.afters = nn.ModuleList(
            nn.ModuleDict({name: after(model, hidden) for name in metadata[0]}) for _ in pairs[1:]
        )

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
            x = conv(ends, slices)
            if layer < len(self.afters):
                follows: Any = self.afters[layer]
                x = {name: follows[name](found) for name, found in x.items()}
        return x[SEEDS]
