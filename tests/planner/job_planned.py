"""The jobs of ranks in test_plan.py: prepare an epoch with the settings of a plan."""

from __future__ import annotations

from typing import Any

from pyg_batchgnn import AggregationCache, MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import load_dataset
from pyg_batchgnn.partition import partition
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore, replicate_topology


def prepare(dataset: str, settings: list[dict[str, Any]], arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Rounds, rows and bytes of every setting."""
    found = []
    with Communicator.create("planned", timeout=60) as comm:
        graph = load_dataset(dataset)
        part = partition(graph, "random", comm=comm)
        seeds = "train" if graph.schema.is_plain else ("paper", graph.split("train", "paper"))
        features, whole = DistFeatureStore(part, comm), replicate_topology(part, comm)
        for setting in settings:
            kind, stores = setting["aggregation"], (features, DistGraphStore(part, comm))
            kept = AggregationCache.build(stores, kind) if kind else None
            names = ["y"] if kept is not None and kept.kind.holds_own_row else ["x", "y"]
            loader = MacrobatchNeighborLoader(
                (features, DistGraphStore(part, comm, whole if setting["hybrid"] else None)),
                input_nodes=seeds,
                shuffle=True,
                seed=0,
                export="native",
                attributes=names,
                macrobatch_size=setting["macrobatch"] or 1000,
                fetch_size=setting["fetch"] or setting["macrobatch"] or 1000,
                feature_cache=setting["feature_cache"] or None,
                aggregation_cache=kept,
                **arguments,
            )
            before = comm.counters.snapshot()
            minibatches = sum(1 for _ in loader)
            counts = comm.counters.snapshot() - before
            moved = (MessageKind.TOPOLOGY, MessageKind.FEATURES)
            found.append(
                {
                    "minibatches": minibatches,
                    "rows": loader.stats().total.rows_fetched,
                    "rounds": [counts[kind].rounds for kind in (*moved, MessageKind.LOOKUP)],
                    "bytes": [counts[kind].bytes_received for kind in moved],
                }
            )
    return found
