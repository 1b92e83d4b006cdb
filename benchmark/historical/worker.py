"""One rank of the epochs with historical embeddings, started by `World` with JOB OPTIONS ANSWER."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

from benchmark.ranks.rank_graph import RankGraph
from benchmark.ranks.worker import JOBS, answer_with, traffic, train_epochs
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.history import HistoricalCaches, HistoricalSettings
from pyg_batchgnn.store import DistGraphStore

Answer = dict[str, Any]


def historical(comm: Communicator, options: Answer) -> Answer:
    """Trains SAGE; pushes are those of all epochs."""
    graph = RankGraph(comm, options)
    with Communicator.create("pushes", timeout=900) as pushes:
        settings = HistoricalSettings(**options["historical"])
        caches = HistoricalCaches(DistGraphStore(graph.part, comm), pushes, settings)
        loader = graph.loader(1, history=caches, attributes=["x", "y"])
        found = train_epochs(graph, options, loader, graph.sage())
        found["pushed"] = traffic(pushes.counters.snapshot())["push"]
        found["historical"] = asdict(caches.stats())
    return found


if __name__ == "__main__":
    answer_with({**JOBS, "historical": historical}, *sys.argv[1:])
