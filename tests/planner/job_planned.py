"""The jobs of ranks in test_plan.py: epochs with the settings of a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from pyg_batchgnn import AggregationCache, MacrobatchNeighborLoader, ops
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.data import Dataset, load_dataset
from pyg_batchgnn.history import HistoricalCaches, HistoricalSettings
from pyg_batchgnn.nn import SAGE
from pyg_batchgnn.partition import partition
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore, replicate_topology


def first_trained(dataset: Dataset, first: int) -> Dataset:
    nodes = [
        replace(one, splits={**one.splits, "train": torch.arange(min(first, one.num_nodes))})
        if "train" in one.splits
        else one
        for one in dataset.node_sets
    ]
    return replace(dataset, node_sets=tuple(nodes))


def prepare_all(cases: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [prepare(**case) for case in cases]


def prepare(
    dataset: str,
    settings: list[dict[str, Any]],
    arguments: dict[str, Any],
    policy: str = "random",
    first: int = 0,
) -> list[dict[str, Any]]:
    found = []
    with Communicator.create("planned", timeout=60) as comm:
        graph = load_dataset(dataset)
        graph = first_trained(graph, first) if first else graph
        part = partition(graph, policy, comm=comm)
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
            ops.empty_cache()
            before, held = comm.counters.snapshot(), ops.memory_stats()
            minibatches = sum(1 for _ in loader)
            memory = ops.memory_stats()
            counts = comm.counters.snapshot() - before
            moved = (MessageKind.TOPOLOGY, MessageKind.FEATURES)
            found.append(
                {
                    "minibatches": minibatches,
                    "rows": loader.stats().total.rows_fetched,
                    "rounds": [counts[kind].rounds for kind in (*moved, MessageKind.LOOKUP)],
                    "bytes": [counts[kind].bytes_received for kind in moved],
                    "memory": memory.live + memory.cached - held.live,
                }
            )
    return found


def push(
    dataset: str, settings: list[dict[str, Any]], arguments: dict[str, Any], hidden: int
) -> list[dict[str, Any]]:
    found = []
    with Communicator.create("planned", timeout=60) as comm:
        graph = load_dataset(dataset)
        part = partition(graph, "random", comm=comm)
        features, topology = DistFeatureStore(part, comm), DistGraphStore(part, comm)
        layers = len(arguments["num_neighbors"])
        model = SAGE(graph.num_features, hidden, layers, graph.num_classes)
        for setting in settings:
            with Communicator.create("pushes", timeout=60) as pushes, torch.no_grad():
                caches = HistoricalCaches(topology, pushes, HistoricalSettings(**setting))
                loader = MacrobatchNeighborLoader(
                    (features, topology),
                    input_nodes="train",
                    shuffle=True,
                    seed=0,
                    export="native",
                    history=caches,
                    **arguments,
                )
                edges = 0
                for minibatch in loader:
                    edges += sum(minibatch.edges_per_hop)
                    model(minibatch)
                counts, stats = pushes.counters.snapshot()[MessageKind.PUSH], caches.stats()
                found.append(
                    {
                        "steps": stats.steps,
                        "rounds": counts.rounds,
                        "edges": edges / stats.steps,
                        "rows": sum(one.pushed for one in stats.layers),
                        "bytes": sum(one.pushed_bytes for one in stats.layers),
                        "feature_bytes": stats.feature_bytes,
                    }
                )
    return found
