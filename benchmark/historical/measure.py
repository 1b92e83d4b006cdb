"""Test accuracy with historical embeddings on 2 and 4 ranks, against one process.

The main job trains in the exact mode on one rank and on several, and with historical embeddings at
the settings of DistGNN-MB's section 4.4. With 2 ranks it also varies one setting at a time: the
life span, the delay and the number of pushed rows, and trains in the exact mode on a random
partition. A run of R ranks has minibatches of B / R nodes, schedule ``local`` and, where nothing
else is said, a partition by ldg. Evaluation uses all neighbours. Every run is a line in
``results/historical/DATASET-R-VARIANT.jsonl``, ignored where the task has changed; a measurement
that is stopped goes on where it was. All ranks run on this machine, with one thread each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.accuracy.measure import compare, done
from benchmark.rank_accuracy.measure import RankAccuracyTask, dataset_folder
from benchmark.rank_accuracy.measure import settings as settings_of_ranks
from benchmark.support.cli import RESULTS, pieces_folder, write_datasets

RANKS = (2, 4)
#: Accuracy points by which the mean may lie below one process.
ALLOWED_LOSS = 1.0
PAPER = {"cache_lines": 1_000_000, "life_span": 2, "push": 2000, "delay": 1}
#: The values of each setting that are tried while the others are the paper's.
VARIED: dict[str, tuple[int | None, ...]] = {
    "life_span": (1, 2, 5, None),
    "delay": (1, 2, 5),
    "push": (20, 100, 2000, None),
}
#: The exact mode where the seed nodes of a rank have the classes of the whole graph.
SKEW = "exact, partition=random"
#: Three layers, as in the paper, or two; minibatches of an epoch are some tens.
TASKS = {
    "amazon_photo": RankAccuracyTask(epochs=15, global_batch=256),
    "generated": RankAccuracyTask(epochs=6, global_batch=128, fanout=(10, 10, 5), features=64),
    "facebook_pages": RankAccuracyTask(epochs=6, global_batch=512, fanout=(15, 10)),
}


def variants(ranks: int) -> dict[str, dict[str, Any]]:
    """Returns the fields of the configuration of each variant, by its name."""
    found: dict[str, dict[str, Any]] = {"exact": {}}
    if ranks > 1:
        found["paper"] = {"remote": "historical", **PAPER}
    if ranks == 2:
        found[SKEW] = {"partition": "random"}
        for name, values in VARIED.items():
            for value in values:
                if value != PAPER[name]:
                    found[f"{name}={value}"] = {**found["paper"], name: value}
    return found


def settings(dataset: str, task: RankAccuracyTask, ranks: int, seed: int, variant: str) -> list[str]:
    """Returns the configuration of one run."""
    fields = {"schedule": "local", "partition": "ldg", **variants(ranks)[variant]}
    own = [f"ranks.{name}={json.dumps(value).strip(chr(34))}" for name, value in fields.items()]
    return [*settings_of_ranks(dataset, task, ranks, seed), *own]


def worker(order: dict[str, Any]) -> None:
    """Trains what is missing; every rank runs this."""
    from rich.console import Console

    from pyg_batchgnn.train import assign, preset, start_run

    task = RankAccuracyTask(**{**order["task"], "fanout": tuple(order["task"]["fanout"])})
    for variant, seed, output in order["runs"]:
        options = settings(order["dataset"], task, order["ranks"], seed, variant)
        run = Path(order["folder"]) / f"{variant} {seed}"
        start_run(assign(preset("batchgnn"), options), run, Console(quiet=True))
        if os.environ.get("RANK", "0") == "0":
            result = json.loads((run / "result.json").read_text())
            line = {"seed": seed, "task": order["task"], "test": result["test"]["accuracy"]}
            line |= {"seconds": result["seconds"], "historical": result["historical"]}
            with Path(output).open("a") as file:
                file.write(json.dumps(line) + "\n")


def lines_of(dataset: str, ranks: int, variant: str, results: Path) -> Path:
    """Returns the file of the runs of a variant."""
    return pieces_folder(results, "historical") / f"{dataset}-{ranks}-{variant}.jsonl"


def train_missing(dataset: str, ranks: int, seeds: int, wanted: Sequence[str] | None, results: Path) -> None:
    """Starts the ranks for what is missing of the wanted variants, None for all."""
    task = json.loads(json.dumps(asdict(TASKS[dataset])))
    runs = []
    for variant in variants(ranks):
        if wanted is not None and variant not in wanted:
            continue
        output = lines_of(dataset, ranks, variant, results)
        missing = sorted(set(range(seeds)) - set(done(output, task)))
        runs += [(variant, seed, str(output)) for seed in missing]
    if not runs:
        return
    dataset_folder(dataset, TASKS[dataset])
    print(f"{dataset}, {ranks} rank(s): {len(runs)} runs", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        order = {"dataset": dataset, "ranks": ranks, "task": task, "runs": runs, "folder": folder}
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command = [sys.executable, *(launcher if ranks > 1 else []), "-m", "benchmark.historical.measure"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([*command, "--work", json.dumps(order)], env=environment, check=True)


def summary(dataset: str, seeds: int, results: Path) -> dict[str, Any]:
    """Returns the comparisons with one process of the variants that have all seeds."""
    task = json.loads(json.dumps(asdict(TASKS[dataset])))

    def read(ranks: int, variant: str) -> list[dict[str, Any]]:
        records = done(lines_of(dataset, ranks, variant, results), task)
        return [records[seed] for seed in range(seeds) if seed in records]

    alone = np.array([one["test"] for one in read(1, "exact")])
    found = []
    for ranks in RANKS:
        for variant in variants(ranks):
            records = read(ranks, variant)
            if len(records) < seeds or len(alone) < seeds:
                continue
            tests = np.array([one["test"] for one in records])
            figures: dict[str, Any] = {"ranks": ranks, "variant": variant, "mean": 100 * float(tests.mean())}
            figures |= {**compare(tests, alone), **_means(records)}
            figures["holds"] = bool(figures["mean_difference"] >= -ALLOWED_LOSS)
            found.append(figures)
    mean = 100 * float(alone.mean()) if len(alone) else None
    return {"task": task, "seeds": seeds, "alone": mean, "variants": found}


def _means(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the means of what caches and pushes did."""
    figures = [one["historical"] for one in records if one["historical"] is not None]
    if not figures:
        return {}
    return {
        "hit_rates": np.mean([one["hit_rates"] for one in figures], axis=0).tolist(),
        "edges_left_out": np.mean([one["edges_left_out"] for one in figures], axis=0).tolist(),
        "megabytes": float(np.mean([one["bytes_pushed"] for one in figures])) / 1e6,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains what is missing, then stores the JSON file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--datasets", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--ranks", nargs="+", type=int, choices=RANKS, default=list(RANKS))
    parser.add_argument("--seeds", type=int, default=5, help="paired seeds, at least 2")
    parser.add_argument("--variants", nargs="+", choices=list(variants(2)), help="all where left out")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--work", type=json.loads, help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.work is not None:
        worker(parsed.work)
        return
    for dataset in parsed.datasets:
        for ranks in (1, *parsed.ranks):
            train_missing(dataset, ranks, parsed.seeds, parsed.variants, parsed.results)
    found = {dataset: summary(dataset, parsed.seeds, parsed.results) for dataset in parsed.datasets}
    for dataset, values in found.items():
        for one in values["variants"]:
            print(
                f"{dataset}, {one['ranks']} ranks, {one['variant']}: {one['mean']:.2f} %, "
                f"{one['mean_difference']:+.2f} points, {'holds' if one['holds'] else 'FAILS'}"
            )
    write_datasets(parsed.results / "historical.json", found)


if __name__ == "__main__":
    main()
