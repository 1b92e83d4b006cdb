"""The loaders of typed training steps and of link steps: those of PyG, and those of this package.

This file needs torch-geometric alone, so that it loads in PyG's own environment.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from torch_geometric.data import HeteroData

from benchmark.contestants.loader_jobs import data_of, typed_data
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
