"""Trains a task on one side and writes a line of JSON for every seed.

`benchmark.accuracy.measure` starts it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch

from benchmark.accuracy.plain import PlainTraining
from benchmark.accuracy.tasks import TASKS, LinkTask, PlainTask, TypedTask
from benchmark.support.graphs import GraphFolder


class Training(Protocol):
    """The training of a task on one side, from the initial weights of a seed."""

    @property
    def model(self) -> torch.nn.Module:
        """The model that is trained."""

    @property
    def minibatches(self) -> Iterable[Any]:
        """The minibatches; an epoch per iteration."""

    def step(self, batch: Any) -> None:
        """Trains on a minibatch."""

    def measure(self) -> tuple[float, float]:
        """Returns what the task measures, on validation and on test data."""


def begin(name: str, side: str, graph: str, seed: int) -> Training:
    """Returns the training of a task. ``graph``: the folder of its graph, if it has one."""
    task = TASKS[name]
    if isinstance(task, PlainTask):
        return PlainTraining(side, task, GraphFolder.open(graph), seed)
    # Only in interpreters that have the package.
    from benchmark.accuracy.typed import LinkTraining, TypedTraining

    if isinstance(task, LinkTask):
        return LinkTraining(side, task, seed)
    assert isinstance(task, TypedTask)
    return TypedTraining(side, task, seed)


def train_once(training: Training, epochs: int, unmeasured: int) -> dict[str, Any]:
    """Trains, and tests the epoch with the best validation among those that are measured."""
    started, best, best_epoch = time.perf_counter(), (-1.0, -1.0), 0
    for epoch in range(epochs):
        training.model.train()
        for batch in training.minibatches:
            training.step(batch)
        if epoch < unmeasured:
            continue
        training.model.eval()
        with torch.no_grad():
            now = training.measure()
        if now[0] > best[0]:
            best, best_epoch = now, epoch
    seconds = time.perf_counter() - started
    return {"val": best[0], "test": best[1], "epoch": best_epoch, "seconds": round(seconds, 2)}


def main() -> None:
    """Arguments: one JSON object with ``task``, ``side``, ``graph``, ``seeds`` and ``output``."""
    order = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    task, output = TASKS[order["task"]], Path(order["output"])
    for seed in order["seeds"]:
        training = begin(order["task"], order["side"], order["graph"], seed)
        found = train_once(training, task.epochs, task.unmeasured)
        record = {"seed": seed, **found, "task": asdict(task)}
        with output.open("a") as lines:
            lines.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
