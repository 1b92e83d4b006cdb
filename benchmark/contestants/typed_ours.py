"""This package: steps of typed networks, and of links, on native layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from benchmark.contestants.ours import choose_products, versions
from benchmark.contestants.typed_jobs import featured_data, link_loader, typed_loader
from benchmark.networks.recipe import DROPOUT, HEADS, LinkTrainer, StepTrainer
from benchmark.support.graphs import GraphFolder
from benchmark.support.jobs import Job, Options, WorkDone
from benchmark.support.mag import CLASSES, FEATURES, SEEDS, TypedFolder
from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader, nn, ops

__all__ = ["JOBS", "versions"]


def _arguments(options: Options) -> dict[str, Any]:
    """Returns the arguments of loaders that are ours alone."""
    return {
        "seed": options.seed,
        "threads": options.threads,
        "macrobatch_size": options.macrobatch or "auto",
        "export": "native",
    }


@cache
def _loader(options: Options) -> Any:
    for x in TypedFolder.open(options.typed_graph).features.values():
        ops.advise_huge_pages(x)  # read in place; the main job asks for the same
    return typed_loader(MacrobatchNeighborLoader, options, **_arguments(options))


def _network(options: Options, features: int, outputs: int) -> Any:
    """Returns the homogeneous network of the options."""
    torch.manual_seed(options.seed)
    shape = (features, options.hidden, len(options.fanouts), outputs)
    if options.model == "sage":
        return nn.models.SAGE(*shape, dropout=DROPOUT)
    return nn.models.GAT(*shape, dropout=DROPOUT, heads=HEADS, attention_dropout=0.0, add_self_loops=False)


def _typed(options: Options) -> Job:
    choose_products(options, torch.float32, FEATURES, CLASSES)
    batches = _loader(options.without_model())
    metadata = featured_data(TypedFolder.open(options.typed_graph)).metadata()
    model = nn.to_hetero(_network(options, FEATURES, CLASSES), metadata)
    trainer = StepTrainer(model)

    def round_(_: int) -> WorkDone:
        work = WorkDone()
        for batch in batches:
            logits = model(batch)[SEEDS]
            trainer.step(logits, batch.attributes_of(SEEDS).gather("y", logits.size(0)))
            work.add(batch.num_nodes, batch.num_edges)
        return work

    return round_


def _links(options: Options) -> Job:
    graph = GraphFolder.open(options.graph)
    ops.advise_huge_pages(graph.x)
    choose_products(options, torch.float32, graph.num_features, options.hidden)
    batches = link_loader(MacrobatchLinkNeighborLoader, options, **_arguments(options))
    model = _network(options, graph.num_features, options.hidden)
    trainer = LinkTrainer(model)

    def round_(_: int) -> WorkDone:
        work = WorkDone()
        for batch in batches:
            (links,) = batch.links
            rows = model(batch)
            trainer.step(rows[links.index[0]], rows[links.index[1]], links.label)
            work.add(batch.num_nodes, batch.num_edges)
        return work

    return round_


JOBS: dict[str, Callable[[Options], Job]] = {"typed": _typed, "links": _links}
