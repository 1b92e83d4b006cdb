"""Test accuracy with historical embeddings on 2 and 4 ranks, against one process.

The main job trains in the exact mode on one rank and on several ("exact"), and with historical
embeddings at the settings of DistGNN-MB's section 4.4 ("paper"). A run of R ranks has minibatches
of B / R nodes, schedule ``local`` and a partition by ldg. Evaluation uses all neighbours. Every run
is a line in ``results/pieces/historical/DATASET-R-VARIANT.jsonl``, ignored where the task has
changed; a measurement that is stopped goes on where it was. All ranks run on this machine, with one
thread each. Features are projected at random to the width of the task.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.accuracy import compare
from benchmark.support.cli import (
    add_line,
    missing_seeds,
    new_parser,
    pieces_folder,
    seeds_done,
    write_datasets,
)
from benchmark.support.machine import CACHE
from benchmark.support.start import in_process
from benchmark.support.tables import Result, markdown

RANKS = (2, 4)
#: The fields of the configuration of each variant.
VARIANTS: dict[str, dict[str, Any]] = {
    "exact": {},
    "paper": {"remote": "historical", "cache_lines": 1_000_000, "life_span": 2, "push": 2000, "delay": 1},
}


@dataclass(frozen=True)
class RankTask:
    """The training task of a data set, the same on any number of ranks."""

    epochs: int
    global_batch: int
    fanout: tuple[int, ...] = (15, 10, 5)
    hidden: int = 64
    features: int = 256


#: A generated graph by the name of its task; the number of features follows.
GENERATED = {"generated": "generated:nodes=8000,degree=12,classes=8,signal=0.75,features="}
#: Three layers, as in the paper, or two; minibatches of an epoch are some tens.
TASKS = {
    "amazon_photo": RankTask(epochs=15, global_batch=256),
    "generated": RankTask(epochs=6, global_batch=128, fanout=(10, 10, 5), features=64),
    "facebook_pages": RankTask(epochs=6, global_batch=512, fanout=(15, 10)),
}


def dataset_folder(dataset: str) -> Path:
    """Returns the folder of a data set with the task's number of features, written on first use."""
    from pyg_batchgnn.data import load_dataset, write_folder

    features = TASKS[dataset].features
    folder = CACHE / "ranks" / f"{dataset}-{features}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        source = GENERATED.get(dataset, f"{dataset}:feature_dim=")
        write_folder(load_dataset(f"{source}{features}"), folder)
    return folder


def settings(dataset: str, ranks: int, seed: int, variant: str) -> list[str]:
    """Returns the configuration of one run."""
    task = TASKS[dataset]
    return [
        f"run.dataset={dataset_folder(dataset)}",
        f"run.epochs={task.epochs}",
        f"run.seed={seed}",
        "run.threads=1",
        "run.matrix_product=native",
        f"model.hidden={task.hidden}",
        f"model.num_layers={len(task.fanout)}",
        f"sampling.fanout={','.join(map(str, task.fanout))}",
        "sampling.evaluation=exact",
        f"sampling.batch_size={task.global_batch // ranks}",
        "sampling.replacement=without",
        "sampling.last_batch=keep",
        "ranks.schedule=local",
        "ranks.partition=ldg",
        *(f"ranks.{name}={value}" for name, value in VARIANTS[variant].items()),
    ]


def train(order: dict[str, Any]) -> None:
    """Trains what is missing; every rank runs this."""
    from rich.console import Console

    from pyg_batchgnn.train import assign, preset, start_run

    for variant, seed, output in order["runs"]:
        options = settings(order["dataset"], order["ranks"], seed, variant)
        run = Path(order["folder"]) / f"{variant} {seed}"
        start_run(assign(preset("batchgnn"), options), run, Console(quiet=True))
        if os.environ.get("RANK", "0") == "0":
            result = json.loads((run / "result.json").read_text())
            line = {"seed": seed, "task": asdict(TASKS[order["dataset"]]), "test": result["test"]["accuracy"]}
            add_line(Path(output), {**line, "historical": result["historical"]})


def lines_of(dataset: str, ranks: int, variant: str, results: Path) -> Path:
    return pieces_folder(results, "historical") / f"{dataset}-{ranks}-{variant}.jsonl"


def train_missing(dataset: str, ranks: int, seeds: int, results: Path) -> None:
    """Starts the ranks for what is missing."""
    runs = []
    for variant in VARIANTS if ranks > 1 else ("exact",):
        output = lines_of(dataset, ranks, variant, results)
        missing = missing_seeds(output, asdict(TASKS[dataset]), seeds)
        runs += [(variant, seed, str(output)) for seed in missing]
    if not runs:
        return
    dataset_folder(dataset)
    print(f"{dataset}, {ranks} rank(s): {len(runs)} runs", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        order = {"dataset": dataset, "ranks": ranks, "runs": runs, "folder": folder}
        in_process("benchmark.historical", "train", order, ranks=ranks)


def summary(dataset: str, seeds: int, results: Path) -> dict[str, Any]:
    """Returns the comparisons with one process of the variants that have all seeds."""
    task = asdict(TASKS[dataset])

    def read(ranks: int, variant: str) -> list[dict[str, Any]]:
        records = seeds_done(lines_of(dataset, ranks, variant, results), task)
        return [records[seed] for seed in range(seeds) if seed in records]

    alone, found = np.array([one["test"] for one in read(1, "exact")]), []
    for ranks in RANKS:
        for variant in VARIANTS:
            records = read(ranks, variant)
            if len(records) < seeds or len(alone) < seeds:
                continue
            tests = np.array([one["test"] for one in records])
            figures: dict[str, Any] = {"ranks": ranks, "variant": variant, "mean": 100 * float(tests.mean())}
            found.append({**figures, **compare(tests, alone), **_means(records)})
    mean = 100 * float(alone.mean()) if len(alone) else None
    return {"task": task, "seeds": seeds, "alone": mean, "variants": found}


def _means(records: list[dict[str, Any]]) -> dict[str, Any]:
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
    parser = new_parser(__doc__)
    parser.add_argument("--datasets", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--ranks", nargs="+", type=int, choices=RANKS, default=list(RANKS))
    parser.add_argument("--seeds", type=int, default=5, help="paired seeds, at least 2")
    parsed = parser.parse_args(arguments)
    for dataset in parsed.datasets:
        for ranks in (1, *parsed.ranks):
            train_missing(dataset, ranks, parsed.seeds, parsed.results)
    found = {dataset: summary(dataset, parsed.seeds, parsed.results) for dataset in parsed.datasets}
    write_datasets(parsed.results / "historical.json", found)


def table(result: Result) -> str:
    """Returns the table of accuracies, and of what caches had."""
    lines = [
        [
            f"{dataset}, {one['ranks']} ranks, {one['variant']}",
            f"{one['mean']:.2f}",
            f"{found['alone']:.2f}",
            f"{one['mean_difference']:+.2f}",
            _percent(one.get("hit_rates", [])),
            _percent(one.get("edges_left_out", [])),
            f"{one['megabytes']:.1f}" if "megabytes" in one else "",
        ]
        for dataset, found in result["datasets"].items()
        for one in found["variants"]
    ]
    header = ["", "%", "one process, %", "difference", "hits by layer, %", "edges left out, %", "MB pushed"]
    return markdown(header, lines)


def _percent(shares: Sequence[float]) -> str:
    return " / ".join(f"{100 * share:.1f}" for share in shares)
