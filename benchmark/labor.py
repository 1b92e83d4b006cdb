"""Minibatches whose destinations share the words of sources (LABOR), beside plain ones.

Steps: rows of a minibatch, sampling, and whole training steps, alternating in one run. Accuracy:
native models over paired seeds, on real graphs and on one with communities; a pair shares initial
weights and the order of the training nodes. A run that is stopped goes on where it was, see
`accuracy`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from benchmark.accuracy import LABOR, AccuracyTask, compare, graph_of, train_missing
from benchmark.support.cli import BenchmarkRun, Peers, parser, pieces_folder, seeds_done, write_datasets
from benchmark.support.graphs import GraphFolder, dataset_folder
from benchmark.support.plots import bars, subplots
from benchmark.support.tables import SECONDS, Result, absences, figures_of, markdown, threads_in_words

STRENGTHS = tuple(LABOR.values())
#: What is timed, by the job of a contestant, and the model that it trains.
WORK = {
    "sampling-csc": ("sampling alone", "sage"),
    "training-native": ("step of native SAGE", "sage"),
    "batch": ("step of an own module", "own-sage"),
}
#: One hop of 15 from the same seeds: names, sides and jobs.
BESIDE_DGL = (
    ("plain", "ours", "sampling-csc"),
    ("hop", "ours", "sampling-csc-hop"),
    ("DGL LaborSampler", "dgl", "sampling-labor"),
    ("DGL NeighborSampler", "dgl", "sampling"),
)
SIDES = ("native", *LABOR)
GRAPHS = {
    "cora": AccuracyTask(epochs=40, batch_size=64),
    "amazon_photo": AccuracyTask(epochs=15, batch_size=512),
    "facebook_pages": AccuracyTask(epochs=6, batch_size=512),
    "oewn": AccuracyTask(epochs=5, batch_size=1024),
    "communities": AccuracyTask(epochs=10, batch_size=256, features=None),
}
FANOUTS = ((10, 5), (15, 10, 5))
MODELS = ("SAGE", "GAT")
Place = tuple[str, str, tuple[int, ...]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures steps, trains what is missing, and stores a JSON file of each."""
    options = parser(__doc__ or "", batches=8, rounds=9, threads=(1,))
    options.set_defaults(malloc=["kept"])
    parts = ("steps", "hop", "accuracy")
    options.add_argument("--parts", nargs="+", choices=parts, default=list(parts))
    options.add_argument("--seeds", type=int, default=20, help="paired seeds of accuracy, at least 2")
    options.add_argument("--jobs", type=int, default=2, help="processes of accuracy, of one thread each")
    parsed = options.parse_args(arguments)
    if "steps" in parsed.parts:
        _measure_steps(BenchmarkRun.parse(parsed))
    if "hop" in parsed.parts:
        run = BenchmarkRun.parse(parsed)
        one_hop = replace(run, options=replace(run.options, fanouts=(15,)))
        one_hop.store("labor-hop", {"series": one_hop.measure(BESIDE_DGL)})
    if "accuracy" in parsed.parts:
        _measure_accuracy(parsed)


# Steps ############################################################################################


def _measure_steps(run: BenchmarkRun) -> None:
    found = []
    for job, (_, model) in WORK.items():
        columns = [(name, "ours", f"{job}-{name}") for name in STRENGTHS]
        for one in replace(run, options=replace(run.options, model=model)).measure(
            [("plain", "ours", job), *columns]
        ):
            found.append({**one, "work": job})
            run.store("labor", {"series": found})


def _hop_table(result: Result) -> str:
    found = figures_of(result["series"][0])
    sizes = ("edges_per_minibatch", "nodes_per_minibatch")
    rows = [
        [name, f"{one['edges_per_second'] / 1e6:.1f}", *(f"{one[size]:,.0f}" for size in sizes)]
        for name, one in found.items()
    ]
    return markdown(["", "M edges/s", "edges", "nodes"], rows) + absences(result["series"])


def _steps_table(result: Result) -> str:
    rows = []
    for one in result["series"]:
        found = figures_of(one)
        name = f"{WORK[one['work']][0]}, {threads_in_words(one['threads'])}"
        seconds = [found[side][SECONDS] for side in ("plain", *STRENGTHS)]
        rows.append([f"{name}, ms", *(f"{1e3 * one:,.1f}" for one in seconds)])
        rows.append([f"{name}, of plain", "1", *(f"{one / seconds[0]:.2f}" for one in seconds[1:])])
    counts = figures_of(result["series"][0])
    for name in ("nodes", "edges"):
        each = [counts[side][f"{name}_per_minibatch"] for side in ("plain", *STRENGTHS)]
        rows.append([f"{name} of a minibatch", *(f"{one:,.0f} ({one / each[0]:.2f})" for one in each)])
    return markdown(["", "plain", *STRENGTHS], rows)


# Accuracy #########################################################################################


def opened(name: str, task: AccuracyTask) -> GraphFolder:
    if name != "communities":
        return graph_of(name, task)
    options = {"nodes": 20_000, "degree": 20.0, "features": 64, "signal": 0.4, "train": 0.2}
    return dataset_folder(name, "generated", **options)


def tasks() -> dict[Place, AccuracyTask]:
    return {
        (name, model, fanouts): replace(task, model=model, fanouts=fanouts)
        for name, task in GRAPHS.items()
        for model in MODELS
        for fanouts in FANOUTS
    }


def _measure_accuracy(parsed: argparse.Namespace) -> None:
    pieces = pieces_folder(parsed.results, "labor")
    outputs = {
        (place, side): pieces / f"{place[0]}-{place[1]}-{len(place[2])}-{side}.jsonl"
        for place in tasks()
        for side in SIDES
    }
    graphs = {name: opened(name, task) for name, task in GRAPHS.items()}  # before processes look for them
    with ThreadPoolExecutor(parsed.jobs) as pool:
        orders = [
            (graphs[place[0]], task, side, parsed.seeds, Peers({}), outputs[place, side])
            for place, task in tasks().items()
            for side in SIDES
        ]
        wrong = list(filter(None, pool.map(lambda order: train_missing(*order), orders)))
    if wrong:
        raise RuntimeError(wrong[0])
    found: dict[str, Any] = {}
    for place, task in tasks().items():
        tests = {}
        for side in SIDES:
            records = seeds_done(outputs[place, side], asdict(task))
            tests[side] = np.array([records[seed]["test"] for seed in range(parsed.seeds)])
        found["-".join((*place[:2], str(len(place[2]))))] = {
            "task": asdict(task),
            "graph": place[0],
            "seeds": parsed.seeds,
            "mean": {side: 100 * float(values.mean()) for side, values in tests.items()},
            "against plain": {side: compare(tests[side], tests["native"]) for side in LABOR},
        }
    write_datasets(parsed.results / "labor.json", found)


def _accuracy_table(result: Result) -> str:
    rows = []
    for found in result["datasets"].values():
        task = found["task"]
        differences = [found["against plain"][side] for side in LABOR]
        rows.append(
            [
                f"{found['graph']}, {task['model']}, {', '.join(map(str, task['fanouts']))}",
                str(found["seeds"]),
                f"{found['mean']['native']:.2f}",
                *(f"{one['mean_difference']:+.2f} ({one['lower_95']:+.2f})" for one in differences),
            ]
        )
    return markdown(["", "seeds", "plain %", *(f"{one} (lower 95 % bound)" for one in STRENGTHS)], rows)


# The page #########################################################################################


def table(result: Result) -> str:
    """Returns rows and times of steps, or of one hop; or mean accuracies and paired differences."""
    if "datasets" in result:
        return _accuracy_table(result)
    return _hop_table(result) if result["benchmark"] == "labor-hop" else _steps_table(result)


def plot(result: Result) -> Any:
    """Draws the ms of each kind of work; or the differences of accuracy with their bounds."""
    if "datasets" not in result:
        figure, axes = subplots(1, len(result["series"]), figsize=(4.5 * len(result["series"]), 2.4))
        for panel, one in zip(axes[0], result["series"], strict=True):
            values = {name: 1e3 * found[SECONDS] for name, found in figures_of(one).items()}
            title = WORK[one["work"]][0] if "work" in one else "sampling of one hop"
            bars(panel, list(values), list(values.values()), "ms", title)
        return figure
    datasets = list(result["datasets"].values())
    figure, axes = subplots(1, 1, figsize=(8, 0.3 * len(datasets) + 1.5))
    for at, side in enumerate(LABOR):
        one = [found["against plain"][side] for found in datasets]
        error = [found["mean_difference"] - found["lower_95"] for found in one]
        place = np.arange(len(one)) + 0.2 * (at - 1)
        points = [found["mean_difference"] for found in one]
        axes[0][0].errorbar(points, place, xerr=error, fmt="o", markersize=4, label=LABOR[side])
    names = [
        f"{one['graph']}, {one['task']['model']}, {len(one['task']['fanouts'])} layers" for one in datasets
    ]
    axes[0][0].set_yticks(range(len(names)), names)
    axes[0][0].axvline(0, color="grey", linewidth=0.8)
    axes[0][0].set_xlabel("points of test accuracy against plain sampling, and the one-sided 95 % bound")
    axes[0][0].legend()
    return figure
