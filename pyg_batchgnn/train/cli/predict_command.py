"""The command ``batchgnn predict``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyg_batchgnn.train.cli import options
from pyg_batchgnn.train.cli.restoring import restore_request

if TYPE_CHECKING:
    from pyg_batchgnn.train.predict import LinkPredictRequest
    from pyg_batchgnn.train.run import RestoreRequest


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
    pairs: Annotated[
        Path | None,
        typer.Option(help="Links: .npy file [P, 2] of node ids, source and target, to score."),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(help="Links: number of best partners to find for each node of --nodes FILE.npy."),
    ] = None,
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

    A run that predicts links scores pairs of nodes (--pairs), or finds the
    partners with the highest scores (--top), in one process. It writes pairs.npy
    and scores.npy, or node_ids.npy, partners.npy and scores.npy. A node is no
    partner of itself; partners that it has already are not left out.

    [bold]Examples[/bold]

      batchgnn predict runs/cora-gcn-1 --out predictions

      batchgnn predict runs/cora-gcn-1 --exact --out predictions

      batchgnn predict runs/cora-gcn-1 --nodes test --embeddings --out test

      batchgnn predict runs/cora-gcn-1 --nodes ids.npy --out some

      batchgnn predict runs/links --pairs pairs.npy --out scores

      batchgnn predict runs/links --top 10 --nodes ids.npy --out partners

    Several ranks predict together under torchrun, each its share of the nodes.

      torchrun --nproc-per-node=4 -m pyg_batchgnn predict runs/cora-gcn-1
        --exact --out predictions
    """
    from pyg_batchgnn.train.predict import PredictRequest, predict_links, predict_nodes

    restore = restore_request(run, exact, dataset, threads, layers, partition, backend, timeout)
    if pairs is not None or top is not None:
        request = _of_links(restore, out, nodes, embeddings, pairs, top)
        with restore.join() as ranks:
            scored = predict_links(request, ranks)
        typer.echo(
            f"{scored.rows:,} {'pairs' if top is None else 'nodes'}, weights of epoch {scored.epoch}; "
            f"written to {out}"
        )
        return
    with restore.join() as ranks:
        done = predict_nodes(PredictRequest(restore, out, nodes, embeddings), ranks)
    if ranks.is_first:
        typer.echo(
            f"{done.nodes:,} nodes, weights of epoch {done.epoch}, {_shown(done.scores)}; written to {out}"
        )


def _of_links(
    restore: RestoreRequest, out: Path, nodes: str, embeddings: bool, pairs: Path | None, top: int | None
) -> LinkPredictRequest:
    """Returns the request for links that the options make."""
    from pyg_batchgnn.train.errors import TrainError
    from pyg_batchgnn.train.predict import LinkPredictRequest

    if embeddings:
        raise TrainError("--embeddings does not go with --pairs and --top; leave it out")
    if top is None:
        assert pairs is not None, "pairs or partners are wanted"
        if nodes != "all":
            raise TrainError(f"--nodes {nodes} does not go with --pairs; leave it out, or give --top")
        return LinkPredictRequest(restore, out, pairs)
    if pairs is not None:
        raise TrainError("--pairs and --top are given; give one of them")
    if nodes in ("all", "train", "val", "test"):
        raise TrainError(f"--top {top} with --nodes {nodes}; give --nodes a .npy file of node ids")
    return LinkPredictRequest(restore, out, Path(nodes), top)


def _shown(scores: dict[str, float] | None) -> str:
    """Returns the metrics as a part of a sentence."""
    from pyg_batchgnn.train.config import Metric

    if scores is None:
        return "no labels"
    metrics = [f"{metric.label} {scores[metric.value]:.4f}" for metric in Metric if metric.value in scores]
    return f"{', '.join(metrics)} on labelled nodes"
