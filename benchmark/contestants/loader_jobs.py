"""The jobs of loaders that take PyG's arguments: those of PyG, and those of this package.

This file needs torch-geometric alone, so that it loads in PyG's own environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch_geometric.data import Data, HeteroData

from benchmark.support.edge_values import edge_times, edge_weights, links, seed_times
from benchmark.support.graphs import GraphFolder
from benchmark.support.jobs import Job, Options, WorkDone
from benchmark.support.mag import SEEDS, TypedFolder


def data_of(graph: GraphFolder, **edge_values: torch.Tensor) -> Data:
    """Returns a graph folder as a ``Data``, with values of its edges."""
    return Data(x=graph.x, y=graph.y, edge_index=graph.edge_index, **edge_values)


def typed_data(graph: TypedFolder) -> HeteroData:
    """Returns a typed graph as a ``HeteroData``. Papers have features and labels."""
    data = HeteroData()
    for name, count in graph.num_nodes.items():
        data[name].num_nodes = count
    data[SEEDS].x, data[SEEDS].y = graph.x, graph.y
    for names, edges in graph.edges.items():
        data[names].edge_index = edges
    return data


def loads(batches: Any, features: Callable[[Any], torch.Tensor]) -> Job:
    """Returns a job that iterates a loader and lets each batch go."""

    def counts(batch: Any) -> Iterator[int]:
        stores = batch.edge_stores if isinstance(batch, HeteroData) else [batch]
        return (store.edge_index.size(1) for store in stores)

    def round_(_: int) -> WorkDone:
        work = WorkDone()
        for batch in batches:
            work.add(batch.num_nodes, sum(counts(batch)), features(batch).nbytes)
        return work

    return round_


def typed_loading(loader: Callable[..., Any], options: Options, **arguments: Any) -> Job:
    """Returns a job of a loader of papers of the typed graph, features included."""
    folder = TypedFolder.open(options.typed_graph)
    seeds = folder.seeds(options.batches * options.batch_size, options.seed)
    batches = loader(
        typed_data(folder),
        list(options.fanouts),
        input_nodes=(SEEDS, seeds),
        batch_size=options.batch_size,
        **arguments,
    )
    return loads(batches, lambda batch: batch[SEEDS].x)


def loading(
    loader: Callable[..., Any],
    options: Options,
    values: Callable[[GraphFolder], dict[str, Any]],
    **rules: Any,
) -> Job:
    """Returns a job of a loader of training nodes, features included.

    Args:
        loader: the class of the loader.
        options: the workload.
        values: returns the values of edges that ``rules`` name.
        rules: further arguments of the loader.
    """
    graph = GraphFolder.open(options.graph)
    batches = loader(
        data_of(graph, **values(graph)),
        list(options.fanouts),
        input_nodes=graph.seeds(options.batches * options.batch_size, options.seed),
        batch_size=options.batch_size,
        is_sorted=True,
        **rules,
    )
    return loads(batches, lambda batch: batch.x)


def timed(loader: Callable[..., Any], options: Options, strategy: str, **rules: Any) -> Job:
    """Returns a job of a loader of the neighbours that the seeds' times allow."""
    return loading(
        loader,
        options,
        lambda graph: {"edge_time": edge_times(graph, options.seed)},
        time_attr="edge_time",
        temporal_strategy=strategy,
        input_time=seed_times(options.batches * options.batch_size, options.seed),
        **rules,
    )


def weighted(loader: Callable[..., Any], options: Options, **rules: Any) -> Job:
    """Returns a job of a loader that picks by weight, without replacement."""
    return loading(
        loader,
        options,
        lambda graph: {"edge_weight": edge_weights(graph, options.seed)},
        weight_attr="edge_weight",
        **rules,
    )


def link_loading(loader: Callable[..., Any], options: Options, **rules: Any) -> Job:
    """Returns a job of a link loader with as many negatives as links, features included."""
    graph = GraphFolder.open(options.graph)
    batches = loader(
        data_of(graph),
        list(options.fanouts),
        edge_label_index=links(graph, options.batches * options.batch_size, options.seed),
        neg_sampling="binary",
        batch_size=options.batch_size,
        is_sorted=True,
        **rules,
    )
    return loads(batches, lambda batch: batch.x)


def jobs(
    loader: Callable[..., Any],
    link_loader: Callable[..., Any],
    arguments: Callable[[Options], dict[str, Any]] = lambda _: {},
) -> dict[str, Callable[[Options], Job]]:
    """Returns the jobs of a pair of loaders with PyG's arguments.

    Args:
        loader, link_loader: their classes.
        arguments: further arguments of both.
    """

    def plain(graph: GraphFolder) -> dict[str, Any]:  # noqa: ARG001
        return {}

    return {
        "typed loading": lambda o: typed_loading(loader, o, **arguments(o)),
        "disjoint": lambda o: loading(loader, o, plain, disjoint=True, **arguments(o)),
        "temporal, uniform": lambda o: timed(loader, o, "uniform", **arguments(o)),
        "temporal, last": lambda o: timed(loader, o, "last", **arguments(o)),
        "weighted": lambda o: weighted(loader, o, **arguments(o)),
        "links": lambda o: link_loading(link_loader, o, **arguments(o)),
    }
