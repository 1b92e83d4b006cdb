"""Time to accuracy on real graphs: GraphSAGE on native layers against PyG's, several seeds each.

Both sides train on the minibatches of this package's loader, native ones for native layers; native
and PyG's layers take turns. The clock counts training and validation of all epochs so far. A run
that is stopped goes on where it was: every run done is a line in
``results/pieces/convergence/DATASET-SIDE.jsonl``, ignored where the task has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmark.accuracy import AccuracyTask, graph_of
from benchmark.support.cli import new_parser, pieces_folder, seeds_done, write_datasets
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
                order = {"task": asdict(TASKS[dataset]), "side": LAYERS[layers], "seeds": [seed]}
                in_process("benchmark.accuracy", "train", {**order, "graph": graph, "output": str(output)})


def reached(curve: dict[str, Any], target: float, unit: str = "seconds") -> float | None:
    """Returns the seconds, or the rows, after which a run's validation was as good as a target."""
    found = (at for at, value in zip(curve[unit], curve["validation"], strict=True) if value >= target)
    return next(found, None)


def median_of(curves: Sequence[dict[str, Any]], name: str) -> list[float]:
    """Returns the medians over runs, epoch by epoch."""
    return [median(at) for at in zip(*(curve[name] for curve in curves), strict=True)]


def summary(dataset: str, results: Path) -> dict[str, Any]:
    """Returns the median curves and the seconds to the accuracy that both sides reach."""
    task = asdict(TASKS[dataset])
    sides = {side: list(seeds_done(lines_of(dataset, side, results), task).values()) for side in LAYERS}
    best = {side: median(line["val"] for line in found) for side, found in sides.items()}
    target = min(best.values()) - WITHIN / 100
    found = {}
    for side, some in sides.items():
        curves = [line["curve"] for line in some]
        times = [seconds for curve in curves if (seconds := reached(curve, target)) is not None]
        found[side] = {
            "best_validation": 100 * best[side],
            "test": 100 * median(line["test"] for line in some),
            "reached": len(times),
            "seconds": median(times) if times else None,
            "curve_seconds": median_of(curves, "seconds"),
            "curve": [100 * value for value in median_of(curves, "validation")],
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
