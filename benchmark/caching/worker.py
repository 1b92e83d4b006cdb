"""One rank of the aggregation cache's benchmark, started by `World` with JOB OPTIONS ANSWER."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import torch

from benchmark.ranks.rank_graph import Answer, RankGraph
from benchmark.ranks.worker import Meter, answer_with, train_epochs
from benchmark.support.meters import peak_bytes, release_free_memory, reset_peak, resident_bytes
from pyg_batchgnn import AggregationCache, MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import NODES
from pyg_batchgnn.nn import GCN, GIN, SAGE, NativeModel

#: By model, what its first layer aggregates by.
KINDS = {"sage": "mean", "gcn": "symmetric", "gin": "sum"}


def initialisation(comm: Communicator, options: Answer) -> Answer:
    """Makes the cache of every model, one after the other."""
    graph = RankGraph(comm, options)
    found = {}
    warming = options["models"][:1]  # unmeasured: connections, pages
    for model in [*warming, *options["models"]]:
        release_free_memory()
        before = resident_bytes()
        reset_peak()
        meter = Meter(comm)
        cache = graph.aggregates(KINDS[model], options["memory_budget"])
        figures = meter.stop()
        found[model] = {**figures, "bytes": cache.nbytes, "peak": peak_bytes() - before}
    return found


class CacheSetting:
    """A loader of one setting: model, with a cache or without, macrobatch size."""

    def __init__(self, graph: RankGraph, options: Answer, caches: dict[str, AggregationCache]) -> None:
        self.graph, self.options, self.caches = graph, options, caches

    def loader(self, model: str, cached: bool, macrobatch: int) -> MacrobatchNeighborLoader:
        """GCN's aggregates hold each node's own row, so that it needs no features beside them."""
        names = ["y"] if cached and model == "gcn" else ["x", "y"]
        return self.graph.loader(
            macrobatch, attributes=names, aggregation_cache=self._cache(model) if cached else None
        )

    def _cache(self, model: str) -> AggregationCache:
        if model not in self.caches:
            self.caches[model] = self.graph.aggregates(KINDS[model], self.options["memory_budget"])
        return self.caches[model]


def preparation(comm: Communicator, options: Answer) -> list[Answer]:
    """Prepares an epoch's minibatches in every setting."""
    graph = RankGraph(comm, options)
    setting = CacheSetting(graph, options, {})
    found = []
    for model, cached, macrobatch in options["settings"]:
        loader = setting.loader(model, cached, macrobatch)
        loader.set_epoch(0)
        meter, nodes, edges = Meter(comm), 0, 0
        for minibatch in loader:
            nodes += minibatch.num_nodes
            edges += minibatch.num_edges
        figures = meter.stop()
        stats = loader.stats().total
        counts = {"minibatches": len(loader), "nodes": nodes, "edges": edges}
        found.append(
            {**figures, **counts, "rows_fetched": stats.rows_fetched, "phases": dataclasses.asdict(stats)}
        )
        del loader
    return found


def training(comm: Communicator, options: Answer) -> list[Answer]:
    """Trains an epoch after an unmeasured one in every setting."""
    graph = RankGraph(comm, options)
    setting = CacheSetting(graph, options, {})
    return [
        train_epochs(graph, options, setting.loader(name, cached, macrobatch), _network(graph, options, name))
        for name, cached, macrobatch in options["settings"]
    ]


def _network(graph: RankGraph, options: dict[str, Any], name: str) -> NativeModel:
    torch.manual_seed(0)
    shape = (
        graph.part.attributes[NODES]["x"].shape[1],
        options["hidden"],
        len(options["fanouts"]),
        graph.classes(),
    )
    return GIN(*shape, norm="batch_norm") if name == "gin" else {"sage": SAGE, "gcn": GCN}[name](*shape)


JOBS = {"initialisation": initialisation, "preparation": preparation, "training": training}


if __name__ == "__main__":
    answer_with(JOBS, *sys.argv[1:])
