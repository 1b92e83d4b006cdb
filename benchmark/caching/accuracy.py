"""Test accuracy with the aggregation cache and without, on real graphs: paired seeds, one process.

A run with the cache is tested both ways, with it and without. Every seed done is a line in
``results/caching_accuracy/DATASET-MODEL.jsonl``; a run that is stopped goes on where it was.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.accuracy.measure import done
from benchmark.support.cli import pieces_folder, read_json, write_json
from benchmark.support.machine import describe


@dataclass(frozen=True)
class CachingTask:
    """The training task of a data set."""

    epochs: int
    batch_size: int
    fanout: tuple[int, ...] = (15, 10, 5)
    hidden: int = 64


#: By data set as `load_dataset` takes it; features of the second are projected at random.
TASKS = {
    "amazon_photo": CachingTask(epochs=15, batch_size=512),
    "facebook_pages:feature_dim=256": CachingTask(epochs=8, batch_size=1024),
}
#: Trained without; trained with, tested with; trained with, tested without.
WAYS = ("without", "with", "with, tested without")


def settings(dataset: str, task: CachingTask, model: str, seed: int, cached: bool) -> list[str]:
    """The configuration of one run: that of the paper, smaller.

    Validation is as in the last test.
    """
    return [
        f"run.dataset={dataset}",
        f"run.epochs={task.epochs}",
        f"run.seed={seed}",
        "run.threads=1",
        "run.matrix_product=native",
        f"model.kind={model}",
        f"model.hidden={task.hidden}",
        f"model.num_layers={len(task.fanout)}",
        f"sampling.fanout={','.join(map(str, task.fanout))}",
        f"sampling.batch_size={task.batch_size}",
        "sampling.last_batch=keep",
        *(["sampling.cache=aggregation"] if cached else []),
    ]


def accuracies(dataset: str, task: CachingTask, model: str, seed: int) -> dict[str, float]:
    """Returns the test accuracy of each way."""
    from rich.console import Console

    from pyg_batchgnn.train import assign, preset, start_run

    plain = assign(preset("batchgnn"), settings(dataset, task, model, seed, cached=False))
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        start_run(plain, Path(folder) / "plain", Console(quiet=True))
        found["without"] = _result(Path(folder) / "plain")
        for way, evaluated in (("with", "true"), ("with, tested without", "false")):
            cached = settings(dataset, task, model, seed, cached=True)
            config = assign(preset("batchgnn"), [*cached, f"sampling.evaluate_with_cache={evaluated}"])
            start_run(config, Path(folder) / way, Console(quiet=True))
            found[way] = _result(Path(folder) / way)
    return found


def _result(run: Path) -> float:
    accuracy: float = json.loads((run / "result.json").read_text())["test"]["accuracy"]
    return accuracy


def measure(models: Sequence[str], datasets: Sequence[str], repeats: int, results: Path) -> None:
    """Trains what is missing, then stores the JSON file."""
    for dataset in datasets:
        task = TASKS[dataset]
        said = json.loads(json.dumps(asdict(task)))
        for model in models:
            name = f"{dataset.partition(':')[0]}-{model}.jsonl"
            output = pieces_folder(results, "caching_accuracy") / name
            for seed in sorted(set(range(repeats)) - set(done(output, said))):
                test = accuracies(dataset, task, model, seed)
                with output.open("a") as file:
                    file.write(json.dumps({"seed": seed, "task": said, "test": test}) + "\n")
                print(f"  {dataset}, {model}, seed {seed}: {test}", flush=True)
    _store(results)


def _store(results: Path) -> None:
    """All that was measured, in one file for the report."""
    stored = read_json(results / "caching.json").get("accuracy", [])
    found = {(one["dataset"], one["model"]): one for one in stored}
    for dataset, task in TASKS.items():
        said = json.loads(json.dumps(asdict(task)))
        stem = dataset.partition(":")[0]
        for output in sorted(pieces_folder(results, "caching_accuracy").glob(f"{stem}-*.jsonl")):
            tests = [record["test"] for record in done(output, said).values()]
            values = {way: np.array([100 * test[way] for test in tests]) for way in WAYS}
            model = output.stem.removeprefix(f"{stem}-")
            found[dataset, model] = _summary(dataset, model, values)
    content = {"benchmark": "caching", "accuracy": list(found.values()), "machine": describe()}
    write_json(results / "caching.json", content)


def _summary(dataset: str, model: str, values: dict[str, np.ndarray]) -> dict[str, Any]:
    means = {way: float(value.mean()) for way, value in values.items()}
    spread = {way: float(value.std(ddof=1)) if len(value) > 1 else 0.0 for way, value in values.items()}
    return {
        "dataset": dataset,
        "model": model,
        "seeds": len(values["without"]),
        "mean": means,
        "spread": spread,
    }
