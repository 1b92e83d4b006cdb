"""Time to accuracy of the main job on real graphs: native layers against PyG's, several seeds each.

Every run is ``batchgnn train`` in a process of its own, with the same options and seed on both
sides; native and PyG's layers take turns. The clock is the run's own: training and validation of
all epochs so far. A run that is stopped goes on where it was: every run done is a line in
``results/convergence/DATASET.jsonl``, ignored where the task has changed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmark.support.cli import RESULTS, pieces_folder, read_json, write_json
from benchmark.support.machine import describe

LAYERS = ("native", "pyg")
WITHIN = 0.5  # accuracy points below the best that count as reached


@dataclass(frozen=True)
class ConvergenceTask:
    """Options of ``batchgnn train``, the same for both sides."""

    epochs: int
    batch_size: int
    model: str = "sage"
    hidden: int = 256
    fanout: str = "15,10,5"
    threads: int = 1

    def arguments(self) -> list[str]:
        """Returns the options as they are typed."""
        given = asdict(self).items()
        return [word for name, value in given for word in (f"--{name.replace('_', '-')}", str(value))]


TASKS = {
    "cora": ConvergenceTask(epochs=20, batch_size=64),
    "amazon_photo": ConvergenceTask(epochs=15, batch_size=512),
    "citeseer": ConvergenceTask(epochs=20, batch_size=64),
    "coauthor_cs": ConvergenceTask(epochs=10, batch_size=512, fanout="15,10"),
    "facebook_pages": ConvergenceTask(epochs=10, batch_size=512, fanout="15,10"),
    "coauthor_physics": ConvergenceTask(epochs=6, batch_size=1024, fanout="15,10"),
    "oewn": ConvergenceTask(epochs=6, batch_size=1024, fanout="15,10"),
}


@dataclass(frozen=True)
class TrainingRun:
    """One training run, and the line that keeps it."""

    dataset: str
    layers: str
    seed: int
    task: ConvergenceTask

    @property
    def key(self) -> dict[str, Any]:
        """The fields that tell it from other runs, for JSON."""
        return asdict(self)

    def trained(self) -> dict[str, Any]:
        """Trains; returns the validation accuracies with the seconds at which they were known.

        Raises:
            RuntimeError: the run failed; the text says why.
        """
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            command = [sys.executable, "-m", "pyg_batchgnn", "train", self.dataset, "--run", str(run)]
            options = [*self.task.arguments(), "--layers", self.layers, "--seed", str(self.seed)]
            ended = subprocess.run([*command, *options], capture_output=True, text=True, env=dict(os.environ))
            if ended.returncode:
                raise RuntimeError(f"{' '.join(command)} failed:\n{ended.stderr.strip()}")
            epochs = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            result = json.loads((run / "result.json").read_text())
        return {
            **self.key,
            "seconds": [round(epoch["elapsed_seconds"], 3) for epoch in epochs],
            "validation": [epoch["val"]["accuracy"] for epoch in epochs],
            "test": result["test"]["accuracy"],
        }


def wanted(dataset: str, seeds: int) -> Iterator[TrainingRun]:
    """All runs of a data set, the sides in turn."""
    for seed in range(seeds):
        order = LAYERS if seed % 2 == 0 else LAYERS[::-1]
        yield from (TrainingRun(dataset, layers, seed, TASKS[dataset]) for layers in order)


def recorded(path: Path, runs: Sequence[TrainingRun]) -> dict[TrainingRun, dict[str, Any]]:
    """Those of ``runs`` that the file has."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    return {run: line for run in runs for line in lines if run.key == {name: line[name] for name in run.key}}


def seconds_to(line: dict[str, Any], target: float) -> float | None:
    """Returns the seconds until validation reached ``target``, or None."""
    reached = (s for s, v in zip(line["seconds"], line["validation"], strict=True) if v >= target)
    return next(reached, None)


def summary(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the median curves and the seconds to the accuracy that both sides reach."""
    sides = {side: [line for line in lines if line["layers"] == side] for side in LAYERS}
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
    return {"task": lines[0]["task"], "seeds": len(lines) // 2, "target": 100 * target, "sides": found}


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains what is missing, then stores the JSON file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--datasets", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=5, help="runs a side and data set")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parsed = parser.parse_args(arguments)
    found = read_json(parsed.results / "convergence.json").get("datasets", {})
    for dataset in parsed.datasets:
        path = pieces_folder(parsed.results, "convergence") / f"{dataset}.jsonl"
        runs = list(wanted(dataset, parsed.seeds))
        done = recorded(path, runs)
        for run in runs:
            if run not in done:
                print(f"{dataset}, {run.layers} layers, seed {run.seed}", flush=True)
                done[run] = run.trained()
                with path.open("a") as lines:
                    lines.write(json.dumps(done[run]) + "\n")
        found[dataset] = summary(list(done.values()))
    content = {"benchmark": "convergence", "datasets": found, "machine": describe()}
    write_json(parsed.results / "convergence.json", content)


if __name__ == "__main__":
    main()
