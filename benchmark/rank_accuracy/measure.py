"""Test accuracy of the main job on 1, 2 and 4 ranks at the same global batch, 20 paired seeds each.

A run of R ranks has minibatches of B / R nodes, so that its steps have the training nodes of those
of one process (schedule ``global``); a pair shares initial weights and their order. Every seed done
is a line in ``results/rank_accuracy/DATASET-R.jsonl``, ignored where the task has changed; a run
that is stopped goes on where it was. All ranks run on this machine, with one thread each. Features
are projected at random to the width of the task. Evaluation uses all neighbours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.accuracy.measure import compare, done
from benchmark.support.cli import RESULTS, pieces_folder, write_datasets
from benchmark.support.native import CACHE

RANKS = (1, 2, 4)
#: Accuracy points by which the lower bound of the difference may lie below zero.
ALLOWED_LOSS = 0.5


@dataclass(frozen=True)
class RankAccuracyTask:
    """The training task of a data set, the same on any number of ranks."""

    epochs: int
    global_batch: int
    fanout: tuple[int, ...] = (15, 10, 5)
    hidden: int = 64
    features: int = 256


#: Generated graphs by the names of their tasks; the number of features follows.
GENERATED = {"generated": "generated:nodes=8000,degree=12,classes=8,signal=0.75,features="}
#: Graphs whose test nodes are so many that twenty seeds tell half a point.
TASKS = {
    "amazon_photo": RankAccuracyTask(epochs=15, global_batch=512),
    "facebook_pages": RankAccuracyTask(epochs=6, global_batch=1024, fanout=(15, 10)),
}


def dataset_folder(dataset: str, task: RankAccuracyTask) -> Path:
    """Returns the folder of a data set with the task's number of features, written on first use."""
    from pyg_batchgnn.data import load_dataset, write_folder

    folder = CACHE / "ranks" / f"{dataset}-{task.features}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        source = GENERATED.get(dataset, f"{dataset}:feature_dim=")
        write_folder(load_dataset(f"{source}{task.features}"), folder)
    return folder


def settings(dataset: str, task: RankAccuracyTask, ranks: int, seed: int) -> list[str]:
    """The configuration of one run."""
    fanout = ",".join(map(str, task.fanout))
    return [
        f"run.dataset={dataset_folder(dataset, task)}",
        f"run.epochs={task.epochs}",
        f"run.seed={seed}",
        "run.threads=1",
        "run.matrix_product=native",
        f"model.hidden={task.hidden}",
        f"model.num_layers={len(task.fanout)}",
        f"sampling.fanout={fanout}",
        "sampling.evaluation=exact",
        f"sampling.batch_size={task.global_batch // ranks}",
        "sampling.replacement=without",
        "sampling.last_batch=keep",
        "ranks.schedule=global",
    ]


def worker(order: dict[str, Any]) -> None:
    """Trains the seeds that are missing; every rank runs this."""
    from rich.console import Console

    from pyg_batchgnn.train import assign, preset, start_run

    task = RankAccuracyTask(**{**order["task"], "fanout": tuple(order["task"]["fanout"])})
    for seed in order["seeds"]:
        config = assign(preset("batchgnn"), settings(order["dataset"], task, order["ranks"], seed))
        run = Path(order["folder"]) / str(seed)
        start_run(config, run, Console(quiet=True))
        if os.environ.get("RANK", "0") == "0":
            result = json.loads((run / "result.json").read_text())
            line = {"seed": seed, "task": order["task"], "test": result["test"]["accuracy"]}
            with Path(order["output"]).open("a") as file:
                file.write(json.dumps({**line, "seconds": result["seconds"]}) + "\n")


def train_missing(dataset: str, ranks: int, seeds: int, results: Path) -> None:
    """Starts the ranks for what is missing."""
    task = json.loads(json.dumps(asdict(TASKS[dataset])))
    output = pieces_folder(results, "rank_accuracy") / f"{dataset}-{ranks}.jsonl"
    missing = sorted(set(range(seeds)) - set(done(output, task)))
    if not missing:
        return
    dataset_folder(dataset, TASKS[dataset])
    print(f"{dataset}, {ranks} rank(s): {len(missing)} seeds to train", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        order = {"dataset": dataset, "ranks": ranks, "task": task, "seeds": missing}
        order |= {"output": str(output), "folder": folder}
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command = [sys.executable, *(launcher if ranks > 1 else []), "-m", "benchmark.rank_accuracy.measure"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([*command, "--work", json.dumps(order)], env=environment, check=True)


def summary(dataset: str, seeds: int, results: Path) -> dict[str, Any]:
    """Means, and the comparisons with one process of those ranks that have all seeds."""
    task = json.loads(json.dumps(asdict(TASKS[dataset])))
    tests: dict[int, np.ndarray] = {}
    for ranks in RANKS:
        records = done(pieces_folder(results, "rank_accuracy") / f"{dataset}-{ranks}.jsonl", task)
        if set(range(seeds)) <= set(records):
            tests[ranks] = np.array([records[seed]["test"] for seed in range(seeds)])
    pairs = [
        {"ranks": ranks, "against": 1, **compare(values, tests[1])}
        for ranks, values in tests.items()
        if ranks > 1 and 1 in tests
    ]
    for pair in pairs:
        pair["holds"] = bool(pair["lower_95"] >= -ALLOWED_LOSS)
    means = {ranks: 100 * float(values.mean()) for ranks, values in tests.items()}
    return {"task": task, "seeds": seeds, "mean": means, "pairs": pairs}


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains what is missing, then stores the JSON file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--datasets", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--ranks", nargs="+", type=int, choices=RANKS, default=list(RANKS))
    parser.add_argument("--seeds", type=int, default=20, help="paired seeds, at least 2")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--work", type=json.loads, help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.work is not None:
        worker(parsed.work)
        return
    for dataset in parsed.datasets:
        for ranks in parsed.ranks:
            train_missing(dataset, ranks, parsed.seeds, parsed.results)
    found = {dataset: summary(dataset, parsed.seeds, parsed.results) for dataset in parsed.datasets}
    for dataset, values in found.items():
        for pair in values["pairs"]:
            print(
                f"{dataset}, {pair['ranks']} ranks against 1: {pair['mean_difference']:+.2f} points, "
                f"at least {pair['lower_95']:+.2f} (95 %), {'holds' if pair['holds'] else 'FAILS'}"
            )
    write_datasets(parsed.results / "rank_accuracy.json", found)


if __name__ == "__main__":
    main()
