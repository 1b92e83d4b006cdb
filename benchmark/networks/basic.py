"""PyG's own models as a user makes them, and the calls of a step.

Imports torch and torch_geometric alone, so that it loads in every interpreter that takes part.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor

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


def basic_model(name: str, features: int, hidden: int, classes: int, layers: int) -> torch.nn.Module:
    """Returns PyG's model with ReLU and dropout between the layers."""
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
