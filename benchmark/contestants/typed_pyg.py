"""PyTorch Geometric with pyg-lib: steps of typed networks, and of links."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader

from benchmark.contestants.pyg import require_sampler, versions
from benchmark.contestants.typed_jobs import featured_data, link_loader, typed_loader
from benchmark.networks.basic import basic_model
from benchmark.networks.recipe import LinkTrainer, StepTrainer
from benchmark.networks.typed_pyg import Prefixes, Trimmed
from benchmark.support.graphs import GraphFolder
from benchmark.support.jobs import Job, Options, WorkDone
from benchmark.support.mag import CLASSES, FEATURES, SEEDS, TypedFolder

__all__ = ["JOBS", "versions"]


@cache
def _loader(options: Options) -> Any:
    require_sampler()
    return typed_loader(NeighborLoader, options)


def _typed(network: Callable[..., torch.nn.Module]) -> Callable[[Options], Job]:
    def build(options: Options) -> Job:
        batches = _loader(options.without_model())
        metadata = featured_data(TypedFolder.open(options.typed_graph)).metadata()
        torch.manual_seed(options.seed)
        shape = (FEATURES, options.hidden, CLASSES, len(options.fanouts))
        model = network(options.model, *shape, metadata)
        trainer = StepTrainer(model)

        def round_(_: int) -> WorkDone:
            work = WorkDone()
            for batch in batches:
                seeds = batch[SEEDS]
                trainer.step(model(batch), seeds.y[: seeds.batch_size])
                work.add(batch.num_nodes, batch.num_edges)
            return work

        return round_

    return build


def _links(options: Options) -> Job:
    """Returns a job of PyG's GraphSAGE on whole minibatches of links."""
    require_sampler()
    graph, batches = GraphFolder.open(options.graph), link_loader(LinkNeighborLoader, options)
    torch.manual_seed(options.seed)
    shape = (graph.num_features, options.hidden, options.hidden, len(options.fanouts))
    model = basic_model(options.model, *shape)
    trainer = LinkTrainer(model)

    def round_(_: int) -> WorkDone:
        work = WorkDone()
        for batch in batches:
            rows = model(batch.x, batch.edge_index)
            source, target = batch.edge_label_index
            trainer.step(rows[source], rows[target], batch.edge_label)
            work.add(batch.num_nodes, batch.num_edges)
        return work

    return round_


JOBS: dict[str, Callable[[Options], Job]] = {
    "trimmed": _typed(Trimmed),
    "prefixes": _typed(Prefixes),
    "links": _links,
}
