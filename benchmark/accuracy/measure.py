"""Test accuracy of one model trained in several ways, 20 paired seeds each.

PyG's layers are trained on our minibatches, on a reference sampler's and on PyG's; native layers on
our minibatches, in float32 and in bfloat16. A pair shares initial weights and the order of the
training nodes, and where the sampler is the same, the neighbours. Evaluation uses all neighbours,
in the precision of training. A run that is stopped goes on where it was: every seed done is a line
in ``results/accuracy/DATASET-SIDE.jsonl``, ignored where the task has changed.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.support.cli import RESULTS, Peers, add_peer_option, pieces_folder, write_datasets
from benchmark.support.graphs import GraphFolder
from benchmark.support.prepare import dataset_folder
from benchmark.support.settings import MallocSetting, ProcessSetting

SIDES = ("reference", "ours", "pyg", "native", "native-bfloat16")
#: What is compared: the first side's accuracy minus the second's.
PAIRS = (("ours", "reference"), ("ours", "pyg"), ("native", "ours"), ("native-bfloat16", "native"))
PEERS = ("pyg",)


@dataclass(frozen=True)
class AccuracyTask:
    """The training task of a data set, the same for every side."""

    epochs: int
    batch_size: int
    allowed_loss: float
    """Accuracy points by which the lower bound may lie below zero."""
    fanouts: tuple[int, ...] = (15, 10, 5)
    hidden: int = 64
    features: int = 256
    replace: bool = False


TASKS = {
    "cora": AccuracyTask(epochs=40, batch_size=64, allowed_loss=1.0),
    "amazon_photo": AccuracyTask(epochs=15, batch_size=512, allowed_loss=0.5),
    "coauthor_physics": AccuracyTask(epochs=6, batch_size=1024, allowed_loss=0.5, fanouts=(15, 10)),
    "oewn": AccuracyTask(epochs=5, batch_size=1024, allowed_loss=0.5, fanouts=(15, 10)),
}


def projected(dataset: str) -> GraphFolder:
    """Returns the data set with features projected to the width of its task; writes it once."""
    width = TASKS[dataset].features
    return dataset_folder(f"{dataset}-{width}", dataset, feature_dim=width)


def done(path: Path, task: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The seeds already trained with this very task, from the file of a dataset and side."""
    if not path.is_file():
        return {}
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return {record["seed"]: record for record in records if record["task"] == task}


def train_missing(dataset: str, side: str, seeds: int, peers: Peers, results: Path) -> str | None:
    """Trains what is missing under the side's interpreter; returns why a side is absent."""
    task = json.loads(json.dumps(asdict(TASKS[dataset])))
    output = pieces_folder(results, "accuracy") / f"{dataset}-{side}.jsonl"
    missing = sorted(set(range(seeds)) - set(done(output, task)))
    if not missing:
        return None
    graph = projected(dataset)
    order = {"side": side, "graph": str(graph.path), "task": task, "seeds": missing, "output": str(output)}
    python = peers.python(side if side in PEERS else "ours")
    command = [python, "-m", "benchmark.accuracy.worker", json.dumps(order)]
    print(f"{dataset}, {side}: {len(missing)} seeds to train", flush=True)
    ended = subprocess.run(
        command, env=ProcessSetting(malloc=MallocSetting.KEPT).environment(), capture_output=True, text=True
    )
    return None if ended.returncode == 0 else ended.stderr.strip().splitlines()[-1]


def student_quantile(probability: float, freedom: int) -> float:
    """Returns a quantile of Student's t by integrating its density on a fine grid."""
    grid = np.linspace(0.0, 60.0, 600_001)
    log_density = -(freedom + 1) / 2 * np.log1p(grid**2 / freedom)
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    density = scale * np.exp(log_density)
    mass = 0.5 + np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid))])
    return float(np.interp(probability, mass, grid))


def compare(ours: np.ndarray, other: np.ndarray) -> dict[str, float]:
    """Returns the mean paired difference of accuracies in points and its one-sided 95 % bound."""
    difference = 100 * (ours - other)
    error = float(difference.std(ddof=1)) / math.sqrt(len(difference))
    bound = float(difference.mean()) - student_quantile(0.95, len(difference) - 1) * error
    return {"mean_difference": float(difference.mean()), "standard_error": error, "lower_95": bound}


def summary(dataset: str, seeds: int, results: Path) -> dict[str, Any]:
    """Means of every side that has all seeds, and the comparisons of ``PAIRS``."""
    task = json.loads(json.dumps(asdict(TASKS[dataset])))
    tests: dict[str, np.ndarray] = {}
    for side in SIDES:
        records = done(pieces_folder(results, "accuracy") / f"{dataset}-{side}.jsonl", task)
        if set(range(seeds)) <= set(records):
            tests[side] = np.array([records[seed]["test"] for seed in range(seeds)])
    return {
        "task": task,
        "seeds": seeds,
        "tests": {side: values.tolist() for side, values in tests.items()},
        "mean": {side: 100 * float(values.mean()) for side, values in tests.items()},
        "pairs": [
            {"side": side, "against": other, **compare(tests[side], tests[other])}
            for side, other in PAIRS
            if side in tests and other in tests
        ],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains what is missing, then stores the JSON file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--datasets", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), help="sides to train")
    parser.add_argument("--seeds", type=int, default=20, help="paired seeds, at least 2")
    add_peer_option(parser)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time, of one thread each")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parsed = parser.parse_args(arguments)
    peers = Peers(dict(parsed.peer))
    for dataset in parsed.datasets:  # written here once, before processes look for them
        projected(dataset)
    pairs = [(dataset, side) for dataset in parsed.datasets for side in parsed.sides]
    with ThreadPoolExecutor(parsed.jobs) as pool:
        reasons = pool.map(
            lambda pair: train_missing(pair[0], pair[1], parsed.seeds, peers, parsed.results), pairs
        )
        absent = {" ".join(pair): why for pair, why in zip(pairs, reasons, strict=True) if why}
    for what, why in absent.items():
        print(f"without {what}: {why}", flush=True)
    found = {dataset: summary(dataset, parsed.seeds, parsed.results) for dataset in parsed.datasets}
    write_datasets(parsed.results / "accuracy.json", found, absent=absent)


if __name__ == "__main__":
    main()
