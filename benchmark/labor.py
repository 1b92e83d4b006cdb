"""Minibatches whose destinations share the words of sources (LABOR), beside plain ones.

Steps: rows of a minibatch, sampling, and whole training steps, alternating in one run. Accuracy:
native models over paired seeds, on real graphs and on one with communities; a pair shares initial
weights and the order of the training nodes. A run that is stopped goes on where it was, see
`accuracy`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.accuracy import LABOR, AccuracyTask, compare, graph_of, train_all
from benchmark.convergence import WITHIN, median_of, reached
from benchmark.support.cli import BenchmarkRun, parser, pieces_folder, seeds_done, write_datasets
from benchmark.support.graphs import GraphFolder, dataset_folder
from benchmark.support.plots import subplots
from benchmark.support.tables import SECONDS, Result, absences, figures_of, markdown, threads_in_words

STRENGTHS = tuple(LABOR.values())
#: What is timed, by the job of a contestant, and the model that it trains.
WORK = {
    "sampling-csc": ("sampling alone", "sage"),
    "training-native": ("step of native SAGE", "sage"),
    "batch": ("step of an own module", "own-sage"),
}
#: One hop of 15 from the same seeds: names, sides and jobs.
ONE_HOP = (
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
#: Where curves are drawn, and seeds whose median they are.
CURVES, OF_SEEDS = ("facebook_pages-SAGE-3", "communities-SAGE-3"), 5
NAMES = {"native": "plain", **LABOR}
UNITS = {"epochs": "d", "seconds": ".2f", "rows": ",.0f"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures steps, trains what is missing, and stores a JSON file of each."""
    options = parser(__doc__ or "", batches=8, rounds=9, threads=(1,))
    options.set_defaults(malloc=["kept"])
    parts = ("steps", "hop", "accuracy", "curves")
    options.add_argument("--parts", nargs="+", choices=parts, default=list(parts))
    options.add_argument("--seeds", type=int, default=20, help="paired seeds of accuracy, at least 2")
    options.add_argument("--jobs", type=int, default=2, help="processes of accuracy, of one thread each")
    parsed = options.parse_args(arguments)
    if "steps" in parsed.parts:
        _measure_steps(BenchmarkRun.parse(parsed))
    if "hop" in parsed.parts:
        run = BenchmarkRun.parse(parsed)
        one_hop = replace(run, options=replace(run.options, fanouts=(15,)))
        one_hop.store("labor-hop", {"series": one_hop.measure(ONE_HOP)})
    if "accuracy" in parsed.parts:
        _measure_accuracy(parsed)
    if "curves" in parsed.parts:
        _measure_curves(parsed)


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


def tasks() -> dict[str, tuple[GraphFolder, AccuracyTask]]:
    """Returns the graph and the task of each row of the table, by graph, model and layers."""
    return {
        f"{name}-{model}-{len(fanouts)}": (opened(name, task), replace(task, model=model, fanouts=fanouts))
        for name, task in GRAPHS.items()
        for model in MODELS
        for fanouts in FANOUTS
    }


def _trained(some: dict[str, Any], seeds: int, pieces: Path, jobs: int) -> dict[tuple[str, str], list[Any]]:
    """Trains what is missing; returns the records of the seeds in order, by task and side."""
    for reason in train_all(some, SIDES, seeds, pieces, jobs).values():
        raise RuntimeError(reason)
    found = {}
    for name, side in product(some, SIDES):
        records = seeds_done(pieces / f"{name}-{side}.jsonl", asdict(some[name][1]))
        found[name, side] = [records[seed] for seed in range(seeds)]
    return found


def _measure_accuracy(parsed: argparse.Namespace) -> None:
    found: dict[str, Any] = {}
    records = _trained(tasks(), parsed.seeds, pieces_folder(parsed.results, "labor"), parsed.jobs)
    for name, (_, task) in tasks().items():
        tests = {side: np.array([one["test"] for one in records[name, side]]) for side in SIDES}
        found[name] = {
            "task": asdict(task),
            "graph": name.partition("-")[0],
            "seeds": parsed.seeds,
            "mean": {side: 100 * float(values.mean()) for side, values in tests.items()},
            "against plain": {side: compare(tests[side], tests["native"]) for side in LABOR},
        }
    write_datasets(parsed.results / "labor.json", found)


def _measure_curves(parsed: argparse.Namespace) -> None:
    chosen = {name: task for name, task in tasks().items() if name in CURVES}
    records = _trained(chosen, OF_SEEDS, pieces_folder(parsed.results, "labor-curves"), 1)
    found: dict[str, Any] = {name: {"seeds": OF_SEEDS, "sides": {}} for name in CURVES}
    for (name, side), some in records.items():
        curves = [one["curve"] for one in some]
        found[name]["sides"][side] = {unit: median_of(curves, unit) for unit in curves[0]}
    write_datasets(parsed.results / "labor-curves.json", found)


def _curves_table(result: Result) -> str:
    rows = []
    for name, found in result["datasets"].items():
        target = max(found["sides"]["native"]["validation"]) - WITHIN / 100
        for side, curve in found["sides"].items():
            numbered = {**curve, "epochs": range(1, 1 + len(curve["rows"]))}
            found_at = {unit: reached(numbered, target, unit) for unit in UNITS}
            cells = ["-" if at is None else f"{at:{UNITS[unit]}}" for unit, at in found_at.items()]
            rows.append([f"{name}, {NAMES[side]}", f"{100 * max(curve['validation']):.2f}", *cells])
    header = ["", "best validation %", *(f"{unit} to plain's best - {WITHIN}" for unit in UNITS)]
    return markdown(header, rows)


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
    kinds = {"labor-hop": _hop_table, "labor-curves": _curves_table}
    other = _accuracy_table if "datasets" in result else _steps_table
    return kinds.get(result["benchmark"], other)(result)


def plot(result: Result) -> Any:
    """Draws validation over seconds and over rows of minibatches, where there are curves."""
    if result["benchmark"] != "labor-curves":
        return None
    figure, axes = subplots(1, 2 * len(CURVES), figsize=(7.2 * len(CURVES), 3.0))
    for panel, (name, unit) in zip(axes[0], product(CURVES, ("seconds", "rows")), strict=True):
        for side, curve in result["datasets"][name]["sides"].items():
            panel.plot(curve[unit], curve["validation"], "o-", markersize=3, label=NAMES[side])
        panel.set_title(f"{name}: validation accuracy", fontsize=10)
        panel.set_xlabel(unit)
    axes[0][0].legend()
    return figure
