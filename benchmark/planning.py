"""The planner's predictions, against a run of 4 ranks on hosts of their own with 1 Gbit/s links.

The planner looks at some minibatches and measures one core of this machine; then the ranks prepare
an epoch with every setting. Hosts are network namespaces (needs root; see support/namespaces.py),
or `--network loopback`, where seconds mean nothing. All ranks share this machine's cores, and the
planner is told so.

    python -m benchmark planning --graph /data/arxiv --graph oewn:feature_dim=128
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from benchmark.support.cli import new_parser, write_part
from benchmark.support.graphs import GraphFolder, dataset_folder
from benchmark.support.ranks import JOBS as SHARED_JOBS
from benchmark.support.ranks import Answer, Job, RankGraph, RankWorkload, add_sampling_options, prepared_epoch
from benchmark.support.tables import Result, markdown
from benchmark.support.world import summary
from pyg_batchgnn import AggregationCache, MacrobatchNeighborLoader, ops
from pyg_batchgnn.cache import Aggregation
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import NODES, Dataset
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

RANKS, WORKER = 4, "benchmark.planning"
KINDS = (Aggregation.MEAN, Aggregation.SYMMETRIC)


# What a rank does


def planned(comm: Communicator, options: Answer) -> list[Answer]:
    """Prepares some epochs with each setting of a plan. The last epoch counts."""
    graph, found = RankGraph(comm, options), list[Answer]()
    cache: AggregationCache | None = None
    for setting in options["settings"]:
        if setting["aggregation"] != (cache and cache.kind.value):
            cache = None  # its memory, before that of another
            cache = graph.aggregates(setting["aggregation"]) if setting["aggregation"] else None
        ops.empty_cache()
        loader = _loader(graph, setting, cache)
        found.append([prepared_epoch(graph, loader, epoch) for epoch in range(options["epochs"])][-1])
    return found


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


JOBS: dict[str, Job] = {**SHARED_JOBS, "planned": planned}


# Measuring


def settings(features: int, nodes: int, group: int) -> list[PlannerSetting]:
    """The settings that are compared."""
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
    if Path(name).is_dir():
        return GraphFolder.open(name)
    return dataset_folder(re.sub(r"[^\w]+", "-", name), name)


def planners_view(graph: GraphFolder) -> Dataset:
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
    dataset = planners_view(graph)
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


def measure(bench: RankWorkload, epochs: int, chosen: Sequence[PlannerSetting]) -> list[dict[str, Any]]:
    """Measures every setting, in one world for each kind of topology."""
    found: dict[PlannerSetting, dict[str, Any]] = {}
    for hybrid in dict.fromkeys(setting.hybrid for setting in chosen):
        some = [setting for setting in chosen if setting.hybrid is hybrid]
        with bench.world(RANKS) as world:
            plain = [vars(setting) for setting in some]
            answers = bench.job(world, "planned", settings=plain, hybrid=hybrid, epochs=epochs)
        for at, setting in enumerate(some):
            one = summary([answer[at] for answer in answers])
            found[setting] = {
                "minibatches": one["minibatches"],
                "rounds": [round(one[kind]["rounds"]) for kind in ("topology", "features")],
                "rows": one["rows_fetched"],
                "topology_bytes": one["topology"]["bytes"],
                "feature_bytes": one["features"]["bytes"],
                "preparation": one["wall"],
            }
    return [found[setting] for setting in chosen]


def predicted(prediction: Prediction) -> dict[str, Any]:
    """Returns the same figures of a prediction."""
    return {
        "minibatches": prediction.minibatches,
        "rounds": [prediction.rounds.topology, prediction.rounds.features],
        "rows": prediction.rows,
        "topology_bytes": prediction.topology_bytes,
        "feature_bytes": prediction.feature_bytes,
        "preparation": prediction.preparation,
    }


def run(graph: GraphFolder, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Predicts, then measures."""
    workload, probe, machine = look(graph, options)
    machine = machine.on((os.cpu_count() or 1) / RANKS, 0.0)
    chosen = settings(workload.features, workload.nodes, options.group)
    chosen = [one for one in chosen if options.hybrid or not one.hybrid]
    network = PlannerNetwork(options.bandwidth)
    forecasts = [predict(workload, probe, machine, network, setting) for setting in chosen]
    for attribute in ("colptr", "row", "x", "y"):  # memory for the ranks
        vars(graph).pop(attribute, None)
    print("  planned", flush=True)
    bench = RankWorkload(graph, options.fanouts, options.batch_size, seeds=options.seeds, worker=WORKER)
    measured = measure(replace(bench, network=options.network), options.epochs, chosen)
    series = []
    for setting, forecast, found in zip(chosen, forecasts, measured, strict=True):
        series.append({"setting": asdict(setting), "predicted": predicted(forecast), "measured": found})
        told, seen = forecast.preparation, found["preparation"]
        print(f"  {vars(setting)}: {told:.2f} s predicted, {seen:.2f} s measured", flush=True)
    return series


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures every graph and stores one result file each."""
    parser = new_parser(__doc__)
    add = parser.add_argument
    add("--graph", action="append", help="folder of arrays or name of a data set; may be repeated")
    add("--network", default="1gbit", help="rate of the links, or loopback")
    add("--bandwidth", type=float, default=125e6, help="the network's bytes per second for the planner")
    add_sampling_options(parser)
    add("--epochs", type=int, default=2, help="of each setting; the last one counts")
    add("--group", type=int, default=4, help="B between 1 and all, and F below B")
    add("--no-hybrid", dest="hybrid", action="store_false", help="leave out the topology on every host")
    add("--samples", type=int, default=12, help="minibatches that the planner looks at")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    names = ("fanouts", "batch_size", "seeds", "samples", "epochs", "network")
    about = {name: getattr(options, name) for name in names}
    for name in options.graph or ["generated:nodes=200000"]:
        graph = opened(name)
        described = graph.describe()
        print(described["name"], flush=True)
        path = options.results / f"planning-{described['name']}.json"
        write_part(path, "planning", run(graph, options), described, about)


# Tables

#: What is compared, by name in the results, and how it is shown.
COMPARED = {
    "rows": ("rows", 1.0, ",.0f"),
    "topology_bytes": ("topology MB", 1e6, ",.1f"),
    "feature_bytes": ("feature MB", 1e6, ",.1f"),
    "preparation": ("seconds", 1.0, ".2f"),
}


def name_of(setting: Result) -> str:
    """Returns a setting in words."""
    words = [f"B = {setting['macrobatch'] or 'all'}"]
    words += [f"F = {setting['fetch']}"] if setting["fetch"] else []
    words += ["hybrid"] if setting["hybrid"] else []
    words += [f"aggregates by {setting['aggregation']}"] if setting["aggregation"] else []
    words += [f"cache {setting['feature_cache'] / 1e6:.1f} MB"] if setting["feature_cache"] else []
    return ", ".join(words)


def table(result: Result) -> str:
    """Returns the measured figures, and by how much the predictions were off."""
    part, lines = result["parts"]["planning"], []
    for one in part["series"]:
        told, seen = one["predicted"], one["measured"]
        same = "" if told["rounds"] == seen["rounds"] else " (!)"
        line = [name_of(one["setting"]), f"{' + '.join(map(str, seen['rounds']))}{same}"]
        for key, (_, unit, form) in COMPARED.items():
            off = f"{100 * (told[key] / seen[key] - 1):+.0f} %" if seen[key] else "exact"
            line.append(f"{seen[key] / unit:{form}} ({off})")
        lines.append(line)
    header = [f"4 hosts, {part['network']} links: measured (forecast)", "rounds"]
    return markdown([*header, *(title for title, _, _ in COMPARED.values())], lines)
