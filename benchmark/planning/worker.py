"""One rank of the planner's benchmark, started by `World` with JOB OPTIONS ANSWER."""

from __future__ import annotations

import sys
from typing import Any

from benchmark.ranks.rank_graph import Answer, RankGraph
from benchmark.ranks.worker import Meter, answer_with
from benchmark.support.meters import peak_bytes, release_free_memory, reset_peak, resident_bytes
from pyg_batchgnn import AggregationCache, MacrobatchNeighborLoader, ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import NODES


def planned(comm: Communicator, options: Answer) -> list[Answer]:
    """Prepares some epochs with each setting of a plan, of which the last counts."""
    graph, found = RankGraph(comm, options), list[Answer]()
    cache: AggregationCache | None = None
    for setting in options["settings"]:
        if setting["aggregation"] != (cache and cache.kind.value):
            cache = None  # its memory, before that of another
            cache = graph.aggregates(setting["aggregation"]) if setting["aggregation"] else None
        # What the setting before, or making the cache, has left is no part of this one.
        ops.empty_cache()
        release_free_memory()
        reset_peak()
        ops.reset_peak()
        found.append(_epochs(graph, setting, cache, options["epochs"]))
    return found


def _epochs(graph: RankGraph, setting: dict[str, Any], cache: AggregationCache | None, epochs: int) -> Answer:
    before, loader = resident_bytes(), _loader(graph, setting, cache)
    for _ in range(epochs - 1):
        sum(1 for _ in loader)
    rows = loader.stats().total.rows_fetched
    meter = Meter(graph.comm)
    minibatches = sum(1 for _ in loader)
    return {
        **meter.stop(),
        "minibatches": minibatches,
        "rows_fetched": loader.stats().total.rows_fetched - rows,
        "resident": before,
        "peak": peak_bytes(),
        "blocks": ops.memory_stats().peak,
    }


def _loader(
    graph: RankGraph, setting: dict[str, Any], cache: AggregationCache | None
) -> MacrobatchNeighborLoader:
    macrobatch, names = setting["macrobatch"] or 1 << 20, list(graph.part.attributes[NODES])
    if cache is not None and cache.kind.holds_own_row:
        names.remove("x")
    return graph.loader(
        macrobatch,
        fetch_size=setting["fetch"] or macrobatch,
        feature_cache=setting["feature_cache"] or None,
        aggregation_cache=cache,
        attributes=names,
    )


if __name__ == "__main__":
    answer_with({"planned": planned}, *sys.argv[1:])
