"""The PyG models that are trained, in the two ways in which a PyG user can skip rows that nothing reads."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import trim_to_layer

DROPOUT = 0.5
LEARNING_RATE = 0.003


def layers(features: int, hidden: int, classes: int, count: int) -> nn.ModuleList:
    """``count`` SAGE convolutions with mean aggregation, widths features -> hidden ... -> classes."""
    widths = [features, *[hidden] * (count - 1), classes]
    return nn.ModuleList(SAGEConv(inputs, outputs) for inputs, outputs in pairwise(widths))


class TrimmedSage(nn.Module):
    """GraphSAGE with ``trim_to_layer``, PyG's own way of leaving out work on sampled minibatches."""

    def __init__(self, features: int, hidden: int, classes: int, count: int) -> None:
        super().__init__()
        self.convs = layers(features, hidden, classes, count)

    def forward(self, batch: Any) -> Tensor:
        """[batch_size, classes] logits of the seeds of a PyG minibatch."""
        x, edge_index = batch.x, batch.edge_index
        for layer, conv in enumerate(self.convs):
            x, edge_index, _ = trim_to_layer(
                layer, batch.num_sampled_nodes, batch.num_sampled_edges, x, edge_index
            )
            x = conv(x, edge_index)
            if layer + 1 < len(self.convs):
                x = F.dropout(F.relu(x), DROPOUT, self.training)
        return x[: batch.batch_size]


class SlicedSage(nn.Module):
    """GraphSAGE on bipartite slices written by hand: layer l computes only rows that layer l + 1 reads."""

    def __init__(self, features: int, hidden: int, classes: int, count: int) -> None:
        super().__init__()
        self.convs = layers(features, hidden, classes, count)

    def forward(self, batch: Any) -> Tensor:
        """[batch_size, classes] logits of the seeds of a minibatch with PyG's attributes."""
        x, count = batch.x, len(self.convs)
        for layer, conv in enumerate(self.convs):
            hops = count - layer
            rows = sum(batch.num_sampled_nodes[:hops])
            edges = sum(batch.num_sampled_edges[:hops])
            x = conv((x, x[:rows]), batch.edge_index[:, :edges])
            if layer + 1 < count:
                x = F.dropout(F.relu(x), DROPOUT, self.training)
        return x

    def whole_graph(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """[N, classes] logits of every node, from all its neighbours; ``adjacency`` as compressed rows."""
        for layer, conv in enumerate(self.convs):
            x = conv(x, adjacency)
            if layer + 1 < len(self.convs):
                x = F.dropout(F.relu(x), DROPOUT, self.training)
        return x


class Trainer:
    """One optimiser step: forward, cross entropy on the seeds, backward, Adam."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model.train()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)

    def step(self, logits: Tensor, labels: Tensor) -> None:
        """Finish the step whose forward pass gave ``logits`` [S, classes] for ``labels`` [S]."""
        self.optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(logits, labels).backward()
        self.optimizer.step()
