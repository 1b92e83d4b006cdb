"""PyG's own models as a user makes them, modules of a user's own, and the calls of a step.

Imports torch and torch_geometric alone, so that it loads in every interpreter that takes part.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.utils import trim_to_layer

from benchmark.networks.recipe import DROPOUT, HEADS

#: By the names of ``recipe.MODELS``.
KINDS: dict[str, Callable[..., torch.nn.Module]] = {
    "sage": pyg.GraphSAGE,
    "gcn": pyg.GCN,
    "gin": pyg.GIN,
    "gat": pyg.GAT,
}


class Call(Enum):
    """The way in which a script calls a model on a batch."""

    WHOLE = "whole"  # model(x, edge_index), of which it keeps the seeds
    TRIMMED = "trimmed"  # with num_sampled_nodes_per_hop and num_sampled_edges_per_hop
    BATCH = "batch"  # model(batch), which only accelerated models know


#: Modules that users write themselves, by their convolution.
OWN = {"own-sage": pyg.SAGEConv, "own-gat": pyg.GATConv}


class OwnModel(torch.nn.Module):
    """A module as users write it: convolutions, each with a skip connection and a LayerNorm, and
    ReLU and dropout as functions.

    Args:
        conv: class of the convolutions.
        features, hidden, classes: widths.
        layers: their number.
    """

    def __init__(
        self, conv: Callable[..., torch.nn.Module], features: int, hidden: int, classes: int, layers: int
    ) -> None:
        super().__init__()
        inputs = [features, *[hidden] * (layers - 2)]
        self.convs = torch.nn.ModuleList([*(conv(width, hidden) for width in inputs), conv(hidden, classes)])
        self.skips = torch.nn.ModuleList(torch.nn.Linear(width, hidden) for width in inputs)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(hidden) for _ in inputs)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        num_sampled_nodes_per_hop: list[int] | None = None,
        num_sampled_edges_per_hop: list[int] | None = None,
    ) -> Tensor:
        """Returns [N, classes], or the rows that are left after trimming."""
        for layer, conv in enumerate(self.convs):
            if num_sampled_nodes_per_hop is not None and num_sampled_edges_per_hop is not None:
                x, edge_index, _ = trim_to_layer(
                    layer, num_sampled_nodes_per_hop, num_sampled_edges_per_hop, x, edge_index
                )
            out = conv(x, edge_index)
            if layer + 1 == len(self.convs):
                return out
            x = F.relu(self.norms[layer](out + self.skips[layer](x)))
            x = F.dropout(x, DROPOUT, self.training)
        raise AssertionError("a model has layers")


def basic_model(name: str, features: int, hidden: int, classes: int, layers: int) -> torch.nn.Module:
    """Returns PyG's model with ReLU and dropout between the layers, or a user's own module."""
    if name in OWN:
        return OwnModel(OWN[name], features, hidden, classes, layers)
    options = {"heads": HEADS} if name == "gat" else {}
    return KINDS[name](features, hidden, layers, classes, dropout=DROPOUT, **options)


def seed_logits(model: torch.nn.Module, batch: Any, call: Call) -> Tensor:
    """Returns the logits of the seed nodes of a batch."""
    if call is Call.BATCH:
        whole: Tensor = model(batch)
        return whole
    trims = {}
    if call is Call.TRIMMED:
        trims = {
            "num_sampled_nodes_per_hop": batch.num_sampled_nodes,
            "num_sampled_edges_per_hop": batch.num_sampled_edges,
        }
    out: Tensor = model(batch.x, batch.edge_index, **trims)
    return out[: batch.batch_size]
