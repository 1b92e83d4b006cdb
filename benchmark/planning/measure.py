"""The planner's predictions, against a run of 4 ranks on hosts of their own with 1 Gbit/s links.

The planner looks at some minibatches and measures one core of this machine; then the ranks prepare
an epoch with every setting. Hosts are network namespaces (needs root; see namespaces.py), or
`--network loopback`, where seconds mean nothing. All ranks share this machine's cores, and the
planner is told so.

    python -m benchmark planning --graph /data/arxiv --graph /data/products --graph
    oewn:feature_dim=128
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmark.ranks.workload import RankWorkload, add_sampling_options
from benchmark.support.cli import write_json
from benchmark.support.graphs import GraphFolder
from benchmark.support.machine import describe
from benchmark.support.prepare import dataset_folder
from benchmark.support.world import World
from pyg_batchgnn.cache import Aggregation
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.planner import (
    PlannerMachine,
    PlannerNetwork,
    PlannerProbe,
    PlannerSetting,
    Prediction,
    Workload,
    measure_machine,
    owners_of,
    predict,
    probe_graph,
    workload_of,
)
from pyg_batchgnn.sample import Replacement
from pyg_batchgnn.store import CscGraph

RANKS, WORKER = 4, "benchmark.planning.worker"

KINDS = (Aggregation.MEAN, Aggregation.SYMMETRIC)


def settings(features: int, nodes: int, group: int) -> list[PlannerSetting]:
    """The settings that are compared: B, ``group`` as B and as F below B, hybrid, a cache of a
    tenth of all rows, aggregates of SAGE (beside each node's own features) and of GCN (in place of
    them).
    """
    cache = features * nodes // 10
    return [
        PlannerSetting(1),
        PlannerSetting(1, feature_cache=cache),
        PlannerSetting(group),
        PlannerSetting(0, group),
        PlannerSetting(0),
        PlannerSetting(0, feature_cache=cache),
        *(PlannerSetting(size, aggregation=kind) for kind in KINDS for size in (1, 0)),
        PlannerSetting(1, hybrid=True),
        PlannerSetting(0, hybrid=True),
    ]


def opened(name: str) -> GraphFolder:
    """Returns a folder of arrays, or a data set of the package by name."""
    if Path(name).is_dir():
        return GraphFolder.open(name)
    return dataset_folder(re.sub(r"[^\w]+", "-", name), name)


def as_dataset(graph: GraphFolder) -> Dataset:
    """Returns the planner's view of a folder, without reading features."""
    return Dataset.homogeneous(
        graph.describe()["name"],
        graph.num_nodes,
        torch.empty(2, graph.row.numel(), dtype=torch.int64, device="meta"),
        nodes={"x": torch.empty(graph.num_nodes, graph.num_features, device="meta"), "y": graph.y},
        splits={"train": graph.read("train_idx").long()},
        num_classes=graph.num_classes,
    )


def look(graph: GraphFolder, options: argparse.Namespace) -> tuple[Workload, PlannerProbe, PlannerMachine]:
    """Returns what the planner finds out before anything runs."""
    dataset = as_dataset(graph)
    training = dataset.split("train").sort().values
    wanted = min(options.seeds or training.numel(), training.numel())
    training = training[torch.arange(wanted) * training.numel() // wanted]
    workload = workload_of(dataset, tuple(options.fanouts), options.batch_size, drop_last=False)
    topology = CscGraph.from_csc(graph.colptr, graph.row).typed
    with Communicator.create("planning") as comm:
        owner = owners_of(dataset, "random", RANKS, comm)
        without = Replacement.WITHOUT
        probe = probe_graph(
            *(workload, topology, training, owner), ranks=RANKS, replacement=without, samples=options.samples
        )
        machine = measure_machine(workload, topology, training, comm, replacement=without)
    return workload, probe, machine


def measure(
    bench: RankWorkload, network: str, epochs: int, chosen: Sequence[PlannerSetting]
) -> list[dict[str, Any]]:
    """Measures every setting, in one world for each kind of topology."""
    answers: dict[PlannerSetting, list[Any]] = {}
    for hybrid in (False, True):
        some = [setting for setting in chosen if setting.hybrid is hybrid]
        if not some:
            continue
        with World(RANKS, network, worker=WORKER).standing() as world:
            plain = [vars(setting) for setting in some]
            of_ranks = bench.job(world, "planned", settings=plain, hybrid=hybrid, epochs=epochs)
        for at, setting in enumerate(some):
            answers[setting] = [one[at] for one in of_ranks]
    return [compared(answers[setting]) for setting in chosen]


def compared(of_ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the measured figures: means over ranks, the slowest seconds, the most memory."""

    def mean(*path: str) -> float:
        values = []
        for one in of_ranks:
            value: Any = one
            for key in path:
                value = value[key]
            values.append(float(value))
        return sum(values) / len(values)

    return {
        "minibatches": of_ranks[0]["minibatches"],
        "rounds": [of_ranks[0][kind]["rounds"] for kind in ("topology", "features")],
        "rows": mean("rows_fetched"),
        "topology_bytes": mean("topology", "bytes"),
        "feature_bytes": mean("features", "bytes"),
        "memory": max(one["peak"] for one in of_ranks),
        "resident": max(one["resident"] for one in of_ranks),
        "blocks": max(one["blocks"] for one in of_ranks),
        "preparation": max(one["wall"] for one in of_ranks),
        "cpu": sum(one["cpu"] for one in of_ranks),
    }


def predicted(prediction: Prediction) -> dict[str, Any]:
    """Returns the same figures of a prediction."""
    return {
        "minibatches": prediction.minibatches,
        "rounds": [prediction.rounds.topology, prediction.rounds.features],
        "rows": prediction.rows,
        "topology_bytes": prediction.topology_bytes,
        "feature_bytes": prediction.feature_bytes,
        "memory": prediction.memory,
        "preparation": prediction.preparation,
        "seconds": prediction.seconds,
    }


def run(graph: GraphFolder, options: argparse.Namespace) -> dict[str, Any]:
    """Predicts, then measures."""
    workload, probe, machine = look(graph, options)
    machine = machine.on((os.cpu_count() or 1) / RANKS, 0.0)
    network = PlannerNetwork(options.bandwidth)
    chosen = settings(workload.features, workload.nodes, options.group)
    chosen = [one for one in chosen if options.hybrid or not one.hybrid]
    forecasts = [predict(workload, probe, machine, network, setting) for setting in chosen]
    for attribute in ("colptr", "row", "x", "y"):  # memory for the ranks
        vars(graph).pop(attribute, None)
    print("  planned", flush=True)
    bench = RankWorkload(graph, options.fanouts, options.batch_size, 0, options.seeds, 1)
    bench.partition(RANKS)
    series = []
    measured = measure(bench, options.network, options.epochs, chosen)
    for setting, forecast, found in zip(chosen, forecasts, measured, strict=True):
        series.append({"setting": vars(setting), "predicted": predicted(forecast), "measured": found})
        told, seen = forecast.preparation, found["preparation"]
        print(f"  {vars(setting)}: {told:.2f} s predicted, {seen:.2f} s measured", flush=True)
    return {
        "series": series,
        # All that forecasts are made of, so that another model can be tried on the same runs.
        "workload": asdict(workload),
        "probe": asdict(probe),
        "machine_speeds": vars(machine),
        "samples": options.samples,
        "network": options.network,
    }


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = result.add_argument
    add("--graph", action="append", help="folder of arrays or name of a data set; may be repeated")
    add("--network", default="1gbit", help="rate of the links, or loopback (default: 1gbit)")
    add("--bandwidth", type=float, default=125e6, help="the network's bytes per second for the planner")
    add_sampling_options(add)
    add("--epochs", type=int, default=2, help="of each setting, of which the last counts (default: 2)")
    add("--group", type=int, default=4, help="B between 1 and all, and F below B (default: 4)")
    add("--no-hybrid", dest="hybrid", action="store_false", help="leave out the topology on every host")
    add("--samples", type=int, default=12, help="minibatches that the planner looks at (default: 12)")
    add("--prepare", action="store_true", help="only make the partitions, which takes a while once")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures every graph and stores one result file each."""
    options = parser().parse_args(arguments)
    torch.set_num_threads(1)
    for name in options.graph or ["generated:nodes=200000"]:
        graph = opened(name)
        if options.prepare:
            RankWorkload(graph, options.fanouts, options.batch_size, 0, 0, 1).partition(RANKS)
            continue
        print(graph.describe()["name"], flush=True)
        found = run(graph, options)
        kept = {"fanouts": options.fanouts, "batch_size": options.batch_size}
        kept |= {"seeds": options.seeds, "samples": options.samples, "epochs": options.epochs}
        content = {
            "benchmark": "planning",
            "graph": graph.describe(),
            "parts": {"planning": {**found, "options": kept}},
            "machine": describe(),
            "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        }
        write_json(options.results / f"planning-{graph.describe()['name']}.json", content)


if __name__ == "__main__":
    main()
