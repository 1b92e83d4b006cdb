"""The loaders of typed training steps and of link steps: those of PyG, and those of this package.

This file needs torch-geometric alone, so that it loads in PyG's own environment.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import HeteroData

from benchmark.contestants.loader_jobs import data_of, typed_data
from benchmark.networks.recipe import LEARNING_RATE
from benchmark.support.edge_values import links
from benchmark.support.graphs import GraphFolder
from benchmark.support.jobs import Options
from benchmark.support.mag import SEEDS, TypedFolder


@cache
def featured_data(folder: TypedFolder) -> HeteroData:
    """Returns a typed graph with features of every type; the same object every time."""
    data = typed_data(folder)
    for name, x in folder.features.items():
        data[name].x = x
    return data


def typed_loader(loader: Callable[..., Any], options: Options, **arguments: Any) -> Any:
    """Returns a loader of papers of the typed graph."""
    folder = TypedFolder.open(options.typed_graph)
    return loader(
        featured_data(folder),
        list(options.fanouts),
        input_nodes=(SEEDS, folder.seeds(options.batches * options.batch_size, options.seed)),
        batch_size=options.batch_size,
        **arguments,
    )


def link_loader(loader: Callable[..., Any], options: Options, **arguments: Any) -> Any:
    """Returns a loader of links with as many negatives."""
    graph = GraphFolder.open(options.graph)
    return loader(
        data_of(graph),
        list(options.fanouts),
        edge_label_index=links(graph, options.batches * options.batch_size, options.seed),
        neg_sampling="binary",
        batch_size=options.batch_size,
        is_sorted=True,
        **arguments,
    )


class LinkTrainer:
    """One optimiser step on links: forward, dot products, cross entropy, backward, Adam."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model.train()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)

    def step(self, rows: Tensor, index: Tensor, label: Tensor) -> None:
        """Finishes the step whose forward pass gave ``rows`` for the pairs ``index`` [2, P]."""
        scores = (rows[index[0]] * rows[index[1]]).sum(dim=-1)
        self.optimizer.zero_grad(set_to_none=True)
        F.binary_cross_entropy_with_logits(scores, label.float()).backward()
        self.optimizer.step()
