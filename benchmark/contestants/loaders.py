"""The jobs of loaders that take PyG's arguments: those of PyG, and those of this package.

This file needs torch-geometric alone, so that it loads in PyG's own environment.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch_geometric.data import Data, HeteroData

from benchmark.networks.own import TYPED, Call, seed_logits
from benchmark.networks.pyg import basic_model
from benchmark.networks.recipe import LinkTrainer, StepTrainer
from benchmark.support.graphs import GraphFolder, edge_times, edge_weights, links, seed_times
from benchmark.support.jobs import Counts, Job, MakeJob, Options, each
from benchmark.support.mag import CLASSES, FEATURES, SEEDS, TypedFolder

#: The works on links: with one negative for each, and with those of their minibatch.
IN_BATCH = "in-batch"
LINKS = ("links", IN_BATCH)
#: The class of a loader, called as PyG's are.
Loader = Callable[..., Any]
Prepare = Callable[[torch.nn.Module], torch.nn.Module]


def data_of(graph: GraphFolder, **values: torch.Tensor) -> Data:
    return Data(**{"x": graph.x, "y": graph.y, "edge_index": graph.edge_index, **values})


@cache
def typed_data(graph: TypedFolder, featured: bool = False) -> HeteroData:
    """Returns a typed graph as a ``HeteroData``, the same object every time."""
    data = HeteroData()
    for name, count in graph.num_nodes.items():
        data[name].num_nodes = count
    data[SEEDS].x, data[SEEDS].y = graph.x, graph.y
    for names, edges in graph.edges.items():
        data[names].edge_index = edges
    for name, x in graph.features.items() if featured else ():
        data[name].x = x
    return data


def typed_loader(loader: Loader, options: Options, featured: bool = False, **arguments: Any) -> Any:
    """Returns a loader of papers of the typed graph."""
    folder = TypedFolder.open(options.typed_graph)
    return loader(
        typed_data(folder, featured),
        list(options.fanouts),
        input_nodes=(SEEDS, folder.seeds(options.seeds, options.seed)),
        batch_size=options.batch_size,
        **arguments,
    )


def node_loader(
    loader: Loader, options: Options, values: dict[str, torch.Tensor] | None = None, **rules: Any
) -> Any:
    """Returns a loader of training nodes."""
    graph = GraphFolder.open(options.graph)
    values = dict(values or {})
    if options.work == "edges":
        values["edge_attr"] = torch.randn(graph.row.numel(), 8, generator=torch.Generator().manual_seed(4))
    return loader(
        data_of(graph, **values),
        list(options.fanouts),
        input_nodes=graph.seeds(options.seeds, options.seed),
        batch_size=options.batch_size,
        is_sorted=True,
        **rules,
    )


def link_loader(loader: Loader, options: Options, **arguments: Any) -> Any:
    """Returns a loader of links with as many negatives, or with in-batch ones."""
    graph = GraphFolder.open(options.graph)
    return loader(
        data_of(graph),
        list(options.fanouts),
        edge_label_index=links(graph, options.seeds, options.seed),
        neg_sampling=IN_BATCH if options.work == IN_BATCH else "binary",
        batch_size=options.batch_size,
        is_sorted=True,
        **arguments,
    )


def _timed(loader: Loader, options: Options, strategy: str, **rules: Any) -> Any:
    times = edge_times(GraphFolder.open(options.graph), options.seed)
    rules |= {"time_attr": "edge_time", "temporal_strategy": strategy}
    rules |= {"input_time": seed_times(options.seeds, options.seed)}
    return node_loader(loader, options, {"edge_time": times}, **rules)


def _weighted(loader: Loader, options: Options, **rules: Any) -> Any:
    weights = edge_weights(GraphFolder.open(options.graph), options.seed)
    return node_loader(loader, options, {"edge_weight": weights}, weight_attr="edge_weight", **rules)


def loads(batches: Any) -> Job:
    """Returns the job of iterating a loader, features included, and of letting each batch go."""

    def counts(batch: Any) -> tuple[int, int, int]:
        if not isinstance(batch, HeteroData):
            return batch.num_nodes, batch.num_edges, batch.x.nbytes
        edges = sum(store.edge_index.size(1) for store in batch.edge_stores)
        return batch.num_nodes, edges, batch[SEEDS].x.nbytes

    return each(batches, counts)


def pyg_labels(batch: Any, count: int, typed: bool) -> torch.Tensor:
    return (batch[SEEDS] if typed else batch).y[:count]


def script_steps(
    options: Options,
    batches: Any,
    call: Call,
    prepare: Prepare | None = None,
    labels: Callable[[Any, int, bool], torch.Tensor] = pyg_labels,
) -> Job:
    """Returns the job of a script's steps with a model of PyG's or of the user's own. ``labels``
    returns those of the seeds from (batch, count, whether it has types)."""
    typed = options.model == TYPED
    if typed:
        relations = typed_data(TypedFolder.open(options.typed_graph), featured=True).edge_types
        model = basic_model(options, FEATURES, CLASSES, relations)
    else:
        graph = GraphFolder.open(options.graph)
        model = basic_model(options, graph.num_features, graph.num_classes)
    trainer = StepTrainer(model if prepare is None else prepare(model))

    def step(batch: Any) -> Counts:
        logits = seed_logits(model, batch, call, options.work == "edges")
        trainer.step(logits, labels(batch, logits.size(0), typed))
        return batch.num_nodes, batch.num_edges

    return each(batches, step)


def link_steps(
    options: Options,
    batches: Any,
    call: Call = Call.WHOLE,
    prepare: Prepare | None = None,
    loss: Callable[..., torch.Tensor] | None = None,
) -> Job:
    """Returns the job of a script's steps on links. ``loss``: that of in-batch negatives."""
    features = GraphFolder.open(options.graph).num_features
    model = basic_model(options, features, options.hidden)
    trainer = LinkTrainer(model if prepare is None else prepare(model))

    def step(batch: Any) -> Counts:
        rows = model(batch) if call is Call.BATCH else model(batch.x, batch.edge_index)
        source, target = (F.embedding(end, rows) for end in batch.edge_label_index)
        if loss is None:
            trainer.step(source, target, batch.edge_label)
        else:
            trainer.update(loss(source, target, batch.edge_label_log_q, batch.edge_label_hits))
        return batch.num_nodes, batch.num_edges

    return each(batches, step)


def loading_jobs(
    loader: Loader, link_class: Loader, arguments: Callable[[Options], dict[str, Any]] = lambda _: {}
) -> dict[str, MakeJob]:
    """Returns the jobs of a pair of loaders with PyG's arguments."""
    return {
        "typed loading": lambda o: loads(typed_loader(loader, o, **arguments(o))),
        "disjoint": lambda o: loads(node_loader(loader, o, disjoint=True, **arguments(o))),
        "temporal, uniform": lambda o: loads(_timed(loader, o, "uniform", **arguments(o))),
        "temporal, last": lambda o: loads(_timed(loader, o, "last", **arguments(o))),
        "weighted": lambda o: loads(_weighted(loader, o, **arguments(o))),
        "links": lambda o: loads(link_loader(link_class, o, **arguments(o))),
    }
