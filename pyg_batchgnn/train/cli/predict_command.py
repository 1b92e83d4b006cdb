"""The command ``batchgnn predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyg_batchgnn.train.cli import options
from pyg_batchgnn.train.cli.restoring import restore_request


def predict(
    run: options.Run,
    out: Annotated[Path, typer.Option(help="New folder for the predictions. All ranks must see it.")],
    nodes: Annotated[
        str,
        typer.Option(help="Nodes to predict: all, train, val, test, or a .npy file of node ids."),
    ] = "all",
    embeddings: Annotated[
        bool,
        typer.Option("--embeddings", help="Write the last hidden layer too, one row per node."),
    ] = False,
    exact: options.Exact = None,
    dataset: options.DatasetName = None,
    threads: options.Threads = None,
    layers: options.Layers = None,
    partition: options.Partition = None,
    backend: options.Backend = None,
    timeout: options.Timeout = None,
) -> None:
    """Predicts classes, labels or values of nodes with the best weights of a run.

    Writes node_ids.npy, predictions.npy, probabilities.npy (of classes and
    labels) and META.json; with --embeddings embeddings.npy too. Row i of each
    array belongs to node node_ids[i].

    [bold]Examples[/bold]

      batchgnn predict runs/cora-gcn-1 --out predictions

      batchgnn predict runs/cora-gcn-1 --exact --out predictions

      batchgnn predict runs/cora-gcn-1 --nodes test --embeddings --out test

      batchgnn predict runs/cora-gcn-1 --nodes ids.npy --out some

    Several ranks predict together under torchrun, each its share of the nodes.

      torchrun --nproc-per-node=4 -m pyg_batchgnn predict runs/cora-gcn-1
        --exact --out predictions
    """
    from pyg_batchgnn.train.predict import PredictRequest, predict_nodes

    restore = restore_request(run, exact, dataset, threads, layers, partition, backend, timeout)
    with restore.join() as ranks:
        done = predict_nodes(PredictRequest(restore, out, nodes, embeddings), ranks)
    if ranks.is_first:
        typer.echo(
            f"{done.nodes:,} nodes, weights of epoch {done.epoch}, {_shown(done.scores)}; written to {out}"
        )


def _shown(scores: dict[str, float] | None) -> str:
    """Returns the metrics as a part of a sentence."""
    from pyg_batchgnn.train.config import Metric

    if scores is None:
        return "no labels"
    metrics = [f"{metric.label} {scores[metric.value]:.4f}" for metric in Metric if metric.value in scores]
    return f"{', '.join(metrics)} on labelled nodes"
