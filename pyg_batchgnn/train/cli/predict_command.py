"""The command ``batchgnn predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def predict(
    run: Annotated[Path, typer.Argument(help="Run folder with a checkpoint, as train writes it.")],
    out: Annotated[Path, typer.Option(help="New folder for the predictions.")],
    nodes: Annotated[
        str,
        typer.Option(help="Nodes to predict: all, train, val, test, or a .npy file of node ids."),
    ] = "all",
    embeddings: Annotated[
        bool,
        typer.Option("--embeddings", help="Write the last hidden layer too, one row per node."),
    ] = False,
    dataset: Annotated[
        str | None,
        typer.Option(help="Name or folder of the data set, if it has moved since the run."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads of torch and the loader. Default: those of the run.")
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(help="native or pyg; both read the same weights. Default: those of the run."),
    ] = None,
) -> None:
    """Predicts classes, labels or values of nodes with the best weights of a run.

    Writes node_ids.npy, predictions.npy, probabilities.npy (of classes and
    labels) and META.json; with --embeddings embeddings.npy too. Row i of each
    array belongs to node node_ids[i].

    [bold]Examples[/bold]

      batchgnn predict runs/cora-gcn-1 --out predictions

      batchgnn predict runs/cora-gcn-1 --nodes test --embeddings --out test

      batchgnn predict runs/cora-gcn-1 --nodes ids.npy --out some
    """
    from pyg_batchgnn.train.predict import PredictRequest, predict_nodes

    done = predict_nodes(PredictRequest(run, out, nodes, embeddings, dataset, threads, layers))
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
