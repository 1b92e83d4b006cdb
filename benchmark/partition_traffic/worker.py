"""One rank of the benchmark of traffic, started by `World` with JOB OPTIONS ANSWER."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import torch

from benchmark.ranks.rank_graph import Answer
from benchmark.ranks.worker import Meter, answer_with
from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset, load_dataset
from pyg_batchgnn.partition import Metis, Multilevel, PolicyLike, partition, report_partition
from pyg_batchgnn.store import DistFeatureStore, DistGraphStore


def traffic(comm: Communicator, options: Answer) -> list[Answer]:
    """Cuts a graph for each case, and prepares an epoch for every schedule and macrobatch size."""
    return [_traffic(comm, options, case) for case in options["cases"]]


def _traffic(comm: Communicator, options: Answer, case: Answer) -> Answer:
    dataset = _with_training_nodes(load_dataset(options["dataset"]), unbalanced=case["unbalanced"])
    part = partition(dataset, _policy(case["policy"], case["balance"]), comm=comm)
    report = report_partition(part, comm)
    stores = DistFeatureStore(part, comm), DistGraphStore(part, comm)
    epochs = []
    for schedule in options["schedules"]:
        for macrobatch in options["macrobatches"]:
            loader = MacrobatchNeighborLoader(
                stores,
                options["fanouts"],
                dataset.split("train"),
                batch_size=options["batch_size"],
                shuffle=True,
                seed=0,
                threads=1,
                export="native",
                macrobatch_size=macrobatch or 1 << 20,
                fetch_size=macrobatch or 1 << 20,
                schedule=schedule,
            )
            loader.set_epoch(0)
            meter = Meter(comm)
            seeds = sum(minibatch.batch_size for minibatch in loader)
            found = {**meter.stop(), "rows_fetched": loader.stats().total.rows_fetched, "seeds": seeds}
            epochs.append({"schedule": schedule, "macrobatch": macrobatch, **found})
            del loader
    return {
        "edge_cut": report.edge_cut,
        "balance": {name: report.balance(name) for name in ("nodes", "edges", "train")},
        "epochs": epochs,
    }


def _with_training_nodes(dataset: Dataset, *, unbalanced: bool) -> Dataset:
    """Returns the data set with a tenth of its nodes as training nodes.

    They are spread evenly; or they are nodes of the lowest classes, which lie together.
    """
    count, labels = dataset.num_nodes // 10, dataset.node_sets[0].tables["y"]
    train = torch.arange(count) * dataset.num_nodes // count
    if unbalanced:
        train = torch.sort(labels, stable=True).indices[:count].sort().values
    nodes = replace(dataset.node_sets[0], splits={"train": train})
    return replace(dataset, node_sets=(nodes,))


def _policy(name: str, balance: dict[str, float]) -> PolicyLike:
    return {"multilevel": Multilevel(balance), "metis": Metis(balance)}.get(name, name)


JOBS: dict[str, Any] = {"traffic": traffic}


if __name__ == "__main__":
    answer_with(JOBS, *sys.argv[1:])
