"""Modules as users write them, which are called whole, trimmed by hand, or with a batch.

Imports torch and torch_geometric alone, so that it loads in every interpreter that takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.utils import trim_to_layer

from benchmark.networks.recipe import DROPOUT
from benchmark.support.mag import SEEDS, Relation


class Call(Enum):
    """The way in which a script calls a model on a batch."""

    WHOLE = "whole"  # model(x, edge_index), of which it keeps the seeds
    TRIMMED = "trimmed"  # with num_sampled_nodes_per_hop and num_sampled_edges_per_hop
    BATCH = "batch"  # model(batch), which only accelerated models know


def _gine(inputs: int, outputs: int) -> nn.Module:
    inside = nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs))
    return pyg.GINEConv(inside, edge_dim=8)


class NarrowNetwork(nn.Module):
    """NNConv from 16 to 32 columns between linear layers: PyG makes a weight for each edge."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(inputs, 16), nn.Linear(32, outputs)
        self.conv = pyg.NNConv(16, 32, nn.Linear(8, 16 * 32))

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        rows: Tensor = self.after(self.conv(self.before(x), edge_index, edge_attr))
        return rows


#: Modules that users write themselves, by their convolution.
CONVOLUTIONS: dict[str, Callable[[int, int], nn.Module]] = {
    "own-sage": pyg.SAGEConv,
    "own-gat": pyg.GATConv,
    "own-transformer": pyg.TransformerConv,
    "own-graph": pyg.GraphConv,
    "own-gine": _gine,
    "own-gatv2": partial(pyg.GATv2Conv, edge_dim=8),
    "own-transformer-edges": partial(pyg.TransformerConv, edge_dim=8),
    "own-network": NarrowNetwork,
}
#: Those with 8 features of edges, one with jumping knowledge, and one of several node types.
JUMPING, TYPED, UPDATING = "own-jumping", "own-typed", "own-updating"
WITH_EDGES = ("own-gine", "own-gatv2", "own-transformer-edges", "own-network", UPDATING)
Counts = list[int] | None


class OwnModel(nn.Module):
    """Convolutions, each with a skip connection and a LayerNorm; ReLU and dropout are functions."""

    def __init__(
        self, conv: Callable[[int, int], nn.Module], features: int, hidden: int, classes: int, layers: int
    ) -> None:
        super().__init__()
        inputs = [features, *[hidden] * (layers - 2)]
        self.convs = nn.ModuleList([*(conv(width, hidden) for width in inputs), conv(hidden, classes)])
        self.skips = nn.ModuleList(nn.Linear(width, hidden) for width in inputs)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in inputs)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        num_sampled_nodes_per_hop: Counts = None,
        num_sampled_edges_per_hop: Counts = None,
    ) -> Tensor:
        """Returns [N, classes], or the rows that are left after trimming."""
        for layer, conv in enumerate(self.convs):
            if num_sampled_nodes_per_hop is not None:
                counts = num_sampled_nodes_per_hop, num_sampled_edges_per_hop
                x, edge_index, edge_attr = trim_to_layer(layer, *counts, x, edge_index, edge_attr)
            out = conv(x, edge_index) if edge_attr is None else conv(x, edge_index, edge_attr)
            if layer + 1 == len(self.convs):
                return out
            x = F.relu(self.norms[layer](out + self.skips[layer](x)))
            x = F.dropout(x, DROPOUT, self.training)
        raise AssertionError("a model has layers")


class JumpingModel(nn.Module):
    """SAGE with batch norms, of which a linear layer reads the results of all layers."""

    def __init__(self, features: int, hidden: int, classes: int, layers: int) -> None:
        super().__init__()
        inputs = [features, *[hidden] * (layers - 1)]
        self.convs = nn.ModuleList(pyg.SAGEConv(width, hidden) for width in inputs)
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in inputs)
        self.jump, self.out = pyg.JumpingKnowledge("cat"), nn.Linear(layers * hidden, classes)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        num_sampled_nodes_per_hop: Counts = None,
        num_sampled_edges_per_hop: Counts = None,
    ) -> Tensor:
        """Returns [N, classes], or the rows of the seeds after trimming."""
        found = []
        for layer, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            if num_sampled_nodes_per_hop is not None:
                counts = num_sampled_nodes_per_hop, num_sampled_edges_per_hop
                x, edge_index, _ = trim_to_layer(layer, *counts, x, edge_index)
            x = F.dropout(F.relu(norm(conv(x, edge_index))), DROPOUT, self.training)
            found.append(x)
        if num_sampled_nodes_per_hop is not None:
            found = [one[: num_sampled_nodes_per_hop[0]] for one in found]
        rows: Tensor = self.out(self.jump(found))
        return rows


class UpdatingModel(nn.Module):
    """GINE over features of edges that are updated from both ends after each layer, as in models of
    payments (Egressy et al. 2024, "Provably Powerful GNNs for Directed Multigraphs")."""

    def __init__(self, features: int, hidden: int, classes: int, layers: int) -> None:
        super().__init__()
        self.nodes, self.edges = nn.Linear(features, hidden), nn.Linear(8, hidden)
        self.convs = nn.ModuleList(
            pyg.GINEConv(nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden)))
            for _ in range(layers)
        )
        self.updates = nn.ModuleList(nn.Linear(3 * hidden, hidden) for _ in range(layers))
        self.out = nn.Linear(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        (source, target), h, e = edge_index, self.nodes(x), self.edges(edge_attr)
        for conv, update in zip(self.convs, self.updates, strict=True):
            h = h + F.relu(conv(h, edge_index, e))
            e = e + F.relu(update(torch.cat([h[source], h[target], e], dim=-1)))
        rows: Tensor = self.out(h)
        return rows


class TypedModel(nn.Module):
    """Two layers of `HeteroConv` of SAGE over dicts, and a linear layer of the seeds' type."""

    def __init__(self, relations: Sequence[Relation], features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            pyg.HeteroConv({one: pyg.SAGEConv((width, width), hidden) for one in relations})
            for width in (features, hidden)
        )
        self.out = nn.Linear(hidden, classes)

    def forward(
        self,
        x_dict: dict[str, Tensor],
        edge_index_dict: dict[Relation, Tensor],
        num_sampled_nodes_per_hop: dict[str, list[int]] | None = None,
        num_sampled_edges_per_hop: dict[Relation, list[int]] | None = None,
    ) -> Tensor:
        """Returns [N, classes] of the seeds' type, or the rows that are left after trimming."""
        for layer, conv in enumerate(self.convs):
            if num_sampled_nodes_per_hop is not None:
                counts = num_sampled_nodes_per_hop, num_sampled_edges_per_hop
                x_dict, edge_index_dict, _ = trim_to_layer(layer, *counts, x_dict, edge_index_dict)
            x_dict = conv(x_dict, edge_index_dict)
            x_dict = {name: F.dropout(F.relu(one), DROPOUT, self.training) for name, one in x_dict.items()}
        rows: Tensor = self.out(x_dict[SEEDS])
        return rows


def own_model(
    name: str, features: int, hidden: int, classes: int, layers: int, relations: Sequence[Relation] = ()
) -> nn.Module:
    """Returns a module of a user's own; ``relations``: of the typed one."""
    if name == TYPED:
        return TypedModel(relations, features, hidden, classes)
    if name in (JUMPING, UPDATING):
        return (JumpingModel if name == JUMPING else UpdatingModel)(features, hidden, classes, layers)
    return OwnModel(CONVOLUTIONS[name], features, hidden, classes, layers)


def seed_logits(model: nn.Module, batch: Any, call: Call, edges: bool = False) -> Tensor:
    """Returns the logits of the seed nodes of a batch."""
    values = {"edge_attr": batch.edge_attr} if edges else {}
    if call is Call.BATCH:
        whole: Tensor = model(batch, **values)
        return whole
    typed = not hasattr(batch, "edge_index")
    end = "_dict" if typed else ""
    if call is Call.TRIMMED:
        for kind in ("nodes", "edges"):
            values[f"num_sampled_{kind}_per_hop"] = getattr(batch, f"num_sampled_{kind}{end}")
    out: Tensor = model(getattr(batch, f"x{end}"), getattr(batch, f"edge_index{end}"), **values)
    return out[: batch[SEEDS].batch_size if typed else batch.batch_size]
