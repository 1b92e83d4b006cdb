"""Test accuracy of one model trained in several ways, and MRR of links; paired seeds.

On homogeneous graphs PyG's layers are trained on our minibatches, on a reference sampler's and on
PyG's; native layers on our minibatches, in float32 and in bfloat16. On typed graphs and on links
PyG's layers and native ones are trained on our minibatches. A pair shares initial weights and the
order of the training nodes, and where the sampler is the same, the neighbours. Evaluation uses all
neighbours, in the precision of training. A run that is stopped goes on where it was: every seed
done is a line in ``results/accuracy/TASK-SIDE.jsonl``, ignored where the task has changed.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.accuracy.tasks import PAIRS, SIDES, TASKS, PlainTask
from benchmark.support.cli import RESULTS, Peers, add_peer_option, pieces_folder, read_json, write_datasets
from benchmark.support.prepare import dataset_folder
from benchmark.support.settings import MallocSetting, ProcessSetting

PEERS = ("pyg",)


def graph_folder(name: str) -> str:
    """Returns the folder of a homogeneous graph with features projected to the width of its task.

    It is written once. Other graphs are loaded where they are used, and need none.
    """
    task = TASKS[name]
    if not isinstance(task, PlainTask):
        return ""
    return str(dataset_folder(f"{name}-{task.features}", name, feature_dim=task.features).path)


def done(path: Path, task: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The seeds already trained with this very task, from the file of a dataset and side."""
    if not path.is_file():
        return {}
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return {record["seed"]: record for record in records if record["task"] == task}


def train_missing(name: str, side: str, seeds: int, peers: Peers, results: Path) -> str | None:
    """Trains what is missing under the side's interpreter; returns why a side is absent."""
    task = json.loads(json.dumps(asdict(TASKS[name])))
    output = pieces_folder(results, "accuracy") / f"{name}-{side}.jsonl"
    missing = sorted(set(range(seeds)) - set(done(output, task)))
    if not missing:
        return None
    order = {
        **{"task": name, "side": side, "graph": graph_folder(name)},
        **{"seeds": missing, "output": str(output)},
    }
    python = peers.python(side if side in PEERS else "ours")
    command = [python, "-m", "benchmark.accuracy.worker", json.dumps(order)]
    print(f"{name}, {side}: {len(missing)} seeds to train", flush=True)
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


def summary(name: str, seeds: int, results: Path) -> dict[str, Any]:
    """Means of every side that has all seeds, and the comparisons of ``PAIRS``."""
    chosen = TASKS[name]
    task = json.loads(json.dumps(asdict(chosen)))
    tests: dict[str, np.ndarray] = {}
    for side in chosen.sides:
        records = done(pieces_folder(results, "accuracy") / f"{name}-{side}.jsonl", task)
        if set(range(seeds)) <= set(records):
            tests[side] = np.array([records[seed]["test"] for seed in range(seeds)])
    return {
        "task": task,
        "metric": chosen.metric,
        "seeds": seeds,
        "tests": {side: values.tolist() for side, values in tests.items()},
        "mean": {side: 100 * float(values.mean()) for side, values in tests.items()},
        "pairs": [
            {"side": side, "against": other, **compare(tests[side], tests[other])}
            for side, other in PAIRS
            if side in tests and other in tests
        ],
    }


def merged(
    stored: dict[str, str], absent: dict[str, str], asked: Sequence[tuple[str, str]]
) -> dict[str, str]:
    """Returns why sides are absent: as stored where a task and side were not asked for."""
    now = set(map(" ".join, asked))
    return {what: why for what, why in stored.items() if what not in now} | absent


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains what is missing, then stores the JSON file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), help="sides to train")
    parser.add_argument("--seeds", type=int, help="paired seeds, at least 2; None: those of each task")
    add_peer_option(parser)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time, of one thread each")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parsed = parser.parse_args(arguments)
    peers = Peers(dict(parsed.peer))
    seeds = {name: parsed.seeds or TASKS[name].seeds for name in parsed.tasks}
    for name in parsed.tasks:  # written here once, before processes look for them
        graph_folder(name)
    pairs = [(name, side) for name in parsed.tasks for side in TASKS[name].sides if side in parsed.sides]
    with ThreadPoolExecutor(parsed.jobs) as pool:
        reasons = pool.map(
            lambda pair: train_missing(pair[0], pair[1], seeds[pair[0]], peers, parsed.results), pairs
        )
        absent = {" ".join(pair): why for pair, why in zip(pairs, reasons, strict=True) if why}
    for what, why in absent.items():
        print(f"without {what}: {why}", flush=True)
    found = {name: summary(name, seeds[name], parsed.results) for name in parsed.tasks}
    path = parsed.results / "accuracy.json"
    write_datasets(path, found, absent=merged(read_json(path).get("absent", {}), absent, pairs))


if __name__ == "__main__":
    main()
