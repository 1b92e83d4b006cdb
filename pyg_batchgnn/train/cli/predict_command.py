"""``batchgnn predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyg_batchgnn.train.predict import PredictRequest, predict_nodes


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a run that has a checkpoint.")],
    out: Annotated[Path, typer.Option(help="New folder to write.")],
    nodes: Annotated[str, typer.Option(help="all, train, val, test, or a .npy file of node ids.")] = "all",
    embeddings: Annotated[
        bool, typer.Option("--embeddings", help="Also write the last hidden layer.")
    ] = False,
    dataset: Annotated[str | None, typer.Option(help="Where the data set is now, if it has moved.")] = None,
    threads: Annotated[int | None, typer.Option(help="Default: those of the run.")] = None,
    layers: Annotated[str | None, typer.Option(help="native or pyg; default: those of the run.")] = None,
) -> None:
    """Classify nodes with the best weights of a run.

    Writes node_ids.npy, predictions.npy (classes), probabilities.npy,
    with --embeddings also embeddings.npy, and META.json. Row i of each
    array is about node node_ids[i].

    [bold]Examples[/bold]

      batchgnn predict runs/cora-gcn-1 --out predictions

      batchgnn predict runs/cora-gcn-1 --nodes test --embeddings --out test

      batchgnn predict runs/cora-gcn-1 --nodes ids.npy --out some
    """
    done = predict_nodes(PredictRequest(run, out, nodes, embeddings, dataset, threads, layers))
    accuracy = "no labels" if done.accuracy is None else f"accuracy {done.accuracy:.4f} where labelled"
    typer.echo(f"{done.nodes:,} nodes, weights of epoch {done.epoch}, {accuracy}; written to {out}")
