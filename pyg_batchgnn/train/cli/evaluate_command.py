"""The command ``batchgnn evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyg_batchgnn.train.cli import options
from pyg_batchgnn.train.cli.restoring import restore_request
from pyg_batchgnn.train.errors import TrainError

if TYPE_CHECKING:
    from pyg_batchgnn.train.predict import EvaluateSummary


def evaluate(
    run: options.Run,
    splits: Annotated[
        str, typer.Option(help="Splits to evaluate, separated by commas: train, val, test.")
    ] = "val,test",
    out: Annotated[
        Path | None, typer.Option(help="JSON file for the metrics. Default: they are printed only.")
    ] = None,
    exact: options.Exact = None,
    dataset: options.DatasetName = None,
    threads: options.Threads = None,
    partition: options.Partition = None,
    backend: options.Backend = None,
    timeout: options.Timeout = None,
) -> None:
    """Computes the metrics of a run's best weights on its splits.

    Prints the loss and the metrics of each split. Where an output is not finite,
    they are nan, and the exit status is 2. A run that predicts links
    computes every node from all its neighbours, as its training does.

    [bold]Examples[/bold]

      batchgnn evaluate runs/cora-gcn-1

      batchgnn evaluate runs/cora-gcn-1 --exact --splits train,val,test

      batchgnn evaluate runs/cora-gcn-1 --exact --out metrics.json

    Several ranks evaluate together under torchrun, each its share of the nodes.

      torchrun --nproc-per-node=4 -m pyg_batchgnn evaluate runs/cora-gcn-1 --exact
    """
    from pyg_batchgnn.train.predict import EvaluateRequest, evaluate_run

    restore = restore_request(run, exact, dataset, threads, partition, backend, timeout)
    names = tuple(name.strip() for name in splits.split(",") if name.strip())
    with restore.join() as ranks:
        found = evaluate_run(EvaluateRequest(restore, names, out), ranks)
    if ranks.is_first:
        typer.echo(f"weights of epoch {found.epoch}")
        for name in found.sizes:
            typer.echo(_line(name, found))
    if found.problems:
        shown = "; ".join(f"{name}: {problem}" for name, problem in found.problems.items())
        with ranks.one_error():
            raise TrainError(
                f"{shown}; look for NaN and huge values in the features, or train with a lower --lr"
            )


def _line(split: str, found: EvaluateSummary) -> str:
    """Returns the line of a split."""
    from pyg_batchgnn.train.config import Metric

    scores = found.scores[split]
    if scores is None:
        return f"{split}: no {found.unit}"
    shown = [f"{metric.label} {scores[metric.value]:.4f}" for metric in Metric if metric.value in scores]
    shown.append(f"loss {scores['loss']:.4f}")
    return f"{split}: {', '.join(shown)} on {found.sizes[split]:,} {found.unit}"
