"""The commands of a saved run: ``batchgnn predict`` and ``batchgnn evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyg_batchgnn.train.cli.options import OF_SAVED_RUN, Run, opt, restore_request, with_options
from pyg_batchgnn.train.errors import TrainError

if TYPE_CHECKING:
    from pyg_batchgnn.train.link_prediction import LinkPredictRequest
    from pyg_batchgnn.train.restored import RestoreRequest


@with_options(OF_SAVED_RUN)
def predict(
    run: Run,
    out: Annotated[Path, opt("New folder for the predictions. All ranks must see it.")],
    nodes: Annotated[
        str,
        opt(
            "Nodes or edges to predict: all, train, val, test, a .npy file of ids, or a .parquet or "
            ".csv file of the keys of nodes."
        ),
    ] = "all",
    embeddings: Annotated[
        bool, opt("Write the last hidden layer too, one row per node.", "--embeddings")
    ] = False,
    pairs: Annotated[
        Path | None,
        opt(
            "Links: .npy file [P, 2] of node ids, source and target, to score, or a .parquet or .csv "
            "file of their keys."
        ),
    ] = None,
    top: Annotated[
        int | None, opt("Links: number of best partners to find for each node of --nodes FILE.")
    ] = None,
    at: Annotated[
        str | None,
        opt(
            "Links of a run with --time-attr: the time that scores, partners or embeddings hold for, an "
            "integer or a date such as 2024-03-01. Default: the latest time in the data."
        ),
    ] = None,
    embeddings_of: Annotated[
        str | None,
        opt(
            "Write the embeddings of all nodes of these types instead, separated by commas; all stands "
            "for every type that the model has embeddings of."
        ),
    ] = None,
    **given: Any,
) -> None:
    """Predicts classes, labels or values of nodes or edges with the best weights of a run.

    Writes node_ids.npy or edge_ids.npy, predictions.npy, probabilities.npy (of
    classes and labels) and META.json; with --embeddings embeddings.npy too.
    Row i of each array belongs to the i-th of these ids.

    A data set that was made of tables has the keys of its nodes. Then
    predictions.parquet has them too, of edges those of both ends, with the
    original values of classes, and --nodes and --pairs take files with keys.

    A run that predicts links scores pairs of nodes (--pairs), or finds the
    partners with the highest scores (--top). It writes pairs.npy and scores.npy,
    or node_ids.npy, partners.npy and scores.npy. A node is no partner of itself;
    partners that it has already are not left out.

    With --embeddings-of, a run writes the embeddings of all nodes of some
    types, each node from all its neighbours, or of a run with --time-attr as
    of --at: one file per type, TYPE.npy, in the order of ids. They are the
    rows that the last layer reads, or in a run that predicts links those that
    the decoder reads. A homogeneous graph has the type node.

    [bold]Examples[/bold]

      batchgnn predict runs/cora-gcn-1 --out predictions

      batchgnn predict runs/cora-gcn-1 --exact --out predictions

      batchgnn predict runs/cora-gcn-1 --nodes test --embeddings --out test

      batchgnn predict runs/cora-gcn-1 --nodes ids.npy --out some

      batchgnn predict runs/links --pairs pairs.npy --out scores

      batchgnn predict runs/links --top 10 --nodes ids.npy --out partners

      batchgnn predict runs/shop --top 10 --nodes users.csv --at 2024-03-01
        --out offers

      batchgnn predict runs/papers --embeddings-of paper,author --out embeddings

    Several ranks predict together under torchrun, each its share of the nodes.

      torchrun --nproc-per-node=4 -m pyg_batchgnn predict runs/cora-gcn-1
        --exact --out predictions
    """
    from pyg_batchgnn.train.link_prediction import predict_links
    from pyg_batchgnn.train.prediction import EmbedRequest, PredictRequest, embed_nodes, predict_nodes

    restore = restore_request(run, given)
    if embeddings_of is not None:
        if nodes != "all" or embeddings or pairs is not None or top is not None:
            raise TrainError(
                f"--embeddings-of {embeddings_of} writes no predictions; leave --nodes, --embeddings, "
                f"--pairs and --top out"
            )
        types = tuple(name.strip() for name in embeddings_of.split(",") if name.strip())
        with restore.join() as ranks:
            made = embed_nodes(EmbedRequest(restore, out, None if types == ("all",) else types, at), ranks)
        if ranks.is_first:
            counts = ", ".join(f"{count:,} of {name}" for name, count in made.nodes.items())
            typer.echo(f"embeddings: {counts}, weights of epoch {made.epoch}; written to {out}")
        return
    if pairs is not None or top is not None:
        request = _of_links(restore, out, nodes, embeddings, pairs, top, at)
        with restore.join() as ranks:
            scored = predict_links(request, ranks)
        if ranks.is_first:
            unit = "pairs" if top is None else "nodes"
            typer.echo(f"{scored.rows:,} {unit}, weights of epoch {scored.epoch}; written to {out}")
        return
    if at is not None:
        raise TrainError(f"--at {at} goes with --pairs, --top and --embeddings-of; leave it out")
    with restore.join() as ranks:
        done = predict_nodes(PredictRequest(restore, out, nodes, embeddings), ranks)
    if ranks.is_first:
        scores = "no labels"
        if done.scores is not None:
            scores = f"{', '.join(_shown(done.scores))} on labelled {done.unit}"
        typer.echo(f"{done.nodes:,} {done.unit}, weights of epoch {done.epoch}, {scores}; written to {out}")


def _of_links(
    restore: RestoreRequest,
    out: Path,
    nodes: str,
    embeddings: bool,
    pairs: Path | None,
    top: int | None,
    at: str | None,
) -> LinkPredictRequest:
    from pyg_batchgnn.train.link_prediction import LinkPredictRequest

    if embeddings:
        raise TrainError("--embeddings does not go with --pairs and --top; leave it out")
    if top is None:
        assert pairs is not None, "pairs or partners are wanted"
        if nodes != "all":
            raise TrainError(f"--nodes {nodes} does not go with --pairs; leave it out, or give --top")
        return LinkPredictRequest(restore, out, pairs, at=at)
    if pairs is not None:
        raise TrainError("--pairs and --top are given; give one of them")
    if nodes in ("all", "train", "val", "test"):
        raise TrainError(f"--top {top} with --nodes {nodes}; give a file of node ids or keys with --nodes")
    return LinkPredictRequest(restore, out, Path(nodes), top, at)


def _shown(scores: dict[str, float]) -> list[str]:
    from pyg_batchgnn.train.config.choices import Metric

    return [f"{metric.label} {scores[metric.value]:.4f}" for metric in Metric if metric.value in scores]


@with_options(OF_SAVED_RUN)
def evaluate(
    run: Run,
    splits: Annotated[str, opt("Splits to evaluate, separated by commas: train, val, test.")] = "val,test",
    out: Annotated[Path | None, opt("JSON file for the metrics. Default: they are printed only.")] = None,
    **given: Any,
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
    from pyg_batchgnn.train.restored import EvaluateRequest, evaluate_run

    restore = restore_request(run, given)
    names = tuple(name.strip() for name in splits.split(",") if name.strip())
    with restore.join() as ranks:
        found = evaluate_run(EvaluateRequest(restore, names, out), ranks)
    if ranks.is_first:
        typer.echo(f"weights of epoch {found.epoch}")
        for name, size in found.sizes.items():
            scores = found.scores[name]
            if scores is None:
                typer.echo(f"{name}: no {found.unit}")
                continue
            shown = ", ".join([*_shown(scores), f"loss {scores['loss']:.4f}"])
            typer.echo(f"{name}: {shown} on {size:,} {found.unit}")
    if found.problems:
        shown = "; ".join(f"{name}: {problem}" for name, problem in found.problems.items())
        with ranks.one_error():
            raise TrainError(
                f"{shown}; look for NaN and huge values in the features, or train with a lower --lr"
            )
