"""Time to accuracy on real graphs: GraphSAGE on native layers against PyG's, several seeds each.

Both sides train on the minibatches of this package's loader, native ones for native layers; native
and PyG's layers take turns. The clock counts training and validation of all epochs so far. A run
that is stopped goes on where it was: every run done is a line in
``results/pieces/convergence/DATASET-SIDE.jsonl``, ignored where the task has changed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmark.accuracy import AccuracyTask, Training, graph_of, side_of
from benchmark.support.cli import add_line, new_parser, pieces_folder, seeds_done, write_datasets
from benchmark.support.graphs import GraphFolder
from benchmark.support.plots import OURS_COLOUR, PEER_COLOUR, subplots
from benchmark.support.start import in_process
from benchmark.support.tables import Result, markdown

#: The sides, and what `accuracy` calls them.
LAYERS = {"native": "native", "pyg": "ours"}
WITHIN = 0.5  # accuracy points below the best that count as reached
_SHAPE: dict[str, Any] = {"hidden": 256, "features": None}
TASKS = {
    "cora": AccuracyTask(epochs=20, batch_size=64, fanouts=(15, 10, 5), **_SHAPE),
    "amazon_photo": AccuracyTask(epochs=15, batch_size=512, fanouts=(15, 10, 5), **_SHAPE),
    "citeseer": AccuracyTask(epochs=20, batch_size=64, fanouts=(15, 10, 5), **_SHAPE),
    "coauthor_cs": AccuracyTask(epochs=10, batch_size=512, **_SHAPE),
    "facebook_pages": AccuracyTask(epochs=10, batch_size=512, **_SHAPE),
    "coauthor_physics": AccuracyTask(epochs=6, batch_size=1024, **_SHAPE),
    "oewn": AccuracyTask(epochs=6, batch_size=1024, **_SHAPE),
}


def train(order: dict[str, Any]) -> None:
    """Trains a seed on one side; its line has accuracies and when they were known."""
    torch.set_num_threads(1)
    task, graph = TASKS[order["dataset"]], GraphFolder.open(order["graph"])
    side = side_of(LAYERS[order["layers"]], graph, task, order["seed"])
    training, seconds, found = Training(side, task, order["seed"]), [], []
    begun = time.perf_counter()
    for _ in range(task.epochs):
        found.append(training.epoch())
        seconds.append(round(time.perf_counter() - begun, 3))
    test = max(found, key=lambda one: one[0])[1]
    curve = {"seconds": seconds, "validation": [validation for validation, _ in found], "test": test}
    add_line(Path(order["output"]), {"seed": order["seed"], "task": asdict(task), **curve})


def lines_of(dataset: str, layers: str, results: Path) -> Path:
    return pieces_folder(results, "convergence") / f"{dataset}-{layers}.jsonl"


def train_missing(dataset: str, seeds: int, results: Path) -> None:
    """Trains what is missing of a data set, the sides in turn."""
    graph = str(graph_of(dataset, TASKS[dataset]).path)
    for seed in range(seeds):
        for layers in list(LAYERS) if seed % 2 == 0 else list(LAYERS)[::-1]:
            output = lines_of(dataset, layers, results)
            if seed not in seeds_done(output, asdict(TASKS[dataset])):
                print(f"{dataset}, {layers} layers, seed {seed}", flush=True)
                order = {"dataset": dataset, "layers": layers, "seed": seed}
                in_process("benchmark.convergence", "train", {**order, "graph": graph, "output": str(output)})


def seconds_to(line: dict[str, Any], target: float) -> float | None:
    reached = (s for s, v in zip(line["seconds"], line["validation"], strict=True) if v >= target)
    return next(reached, None)


def summary(dataset: str, results: Path) -> dict[str, Any]:
    """Returns the median curves and the seconds to the accuracy that both sides reach."""
    task = asdict(TASKS[dataset])
    sides = {side: list(seeds_done(lines_of(dataset, side, results), task).values()) for side in LAYERS}
    best = {side: median(max(line["validation"]) for line in found) for side, found in sides.items()}
    target = min(best.values()) - WITHIN / 100
    found = {}
    for side, some in sides.items():
        reached = [seconds for line in some if (seconds := seconds_to(line, target)) is not None]
        found[side] = {
            "best_validation": 100 * best[side],
            "test": 100 * median(line["test"] for line in some),
            "reached": len(reached),
            "seconds": median(reached) if reached else None,
            "curve_seconds": [median(at) for at in zip(*(line["seconds"] for line in some), strict=True)],
            "curve": [100 * median(at) for at in zip(*(line["validation"] for line in some), strict=True)],
        }
    return {"task": task, "seeds": len(sides["native"]), "target": 100 * target, "sides": found}


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains what is missing, then stores the JSON file."""
    parser = new_parser(__doc__)
    parser.add_argument("--datasets", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=5, help="runs per side and data set")
    parsed = parser.parse_args(arguments)
    found = {}
    for dataset in parsed.datasets:
        train_missing(dataset, parsed.seeds, parsed.results)
        found[dataset] = summary(dataset, parsed.results)
    write_datasets(parsed.results / "convergence.json", found)


def table(result: Result) -> str:
    """Returns the seconds in which each side came within half a point of the best of both."""
    rows = []
    for dataset, found in result["datasets"].items():
        native, pyg = (found["sides"][side] for side in ("native", "pyg"))
        both = native["seconds"] and pyg["seconds"]
        rows.append(
            [
                dataset,
                str(found["seeds"]),
                f"{found['target']:.2f}",
                *(f"{side['seconds']:.2f}" if side["seconds"] else "-" for side in (native, pyg)),
                f"{pyg['seconds'] / native['seconds']:.1f}x" if both else "-",
                *(f"{side['reached']}" for side in (native, pyg)),
                *(f"{side['test']:.2f}" for side in (native, pyg)),
            ]
        )
    header = ["", "seeds", "validation %", "native, s", "PyG's layers, s", "times as fast"]
    header += ["runs that got there", "PyG's", "test %, native", "PyG's"]
    return markdown(header, rows)


def plot(result: Result) -> Any:
    """Draws the median validation accuracy against seconds, one panel per data set."""
    count = len(result["datasets"])
    across = min(count, 4)
    down = -(-count // across)
    figure, axes = subplots(down, across, figsize=(3.6 * across, 3.0 * down))
    for empty in axes.flat[count:]:
        empty.axis("off")
    for one, (dataset, found) in zip(axes.flat, result["datasets"].items(), strict=False):
        for side, colour in (("native", OURS_COLOUR), ("pyg", PEER_COLOUR)):
            curve = found["sides"][side]
            one.plot(curve["curve_seconds"], curve["curve"], "o-", markersize=3, color=colour, label=side)
        one.axhline(found["target"], color="black", linewidth=0.5)
        one.set_title(dataset, fontsize=10)
        one.set_xlabel("seconds")
    for one in axes[:, 0]:
        one.set_ylabel("validation accuracy, %")
    axes[0][0].legend()
    return figure
