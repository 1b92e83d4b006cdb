"""Predictions and embeddings of nodes from a run's best weights, as ``batchgnn predict`` makes
them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graph import evaluation_loader
from pyg_batchgnn.train.loop import infer, infer_all
from pyg_batchgnn.train.predict.arrays import PredictionArrays
from pyg_batchgnn.train.predict.new_folder import appearing_whole, refuse_existing
from pyg_batchgnn.train.predict.node_ids import node_ids
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.run import RestoredNodeRun, RestoredRun, RestoreRequest, restore_run
from pyg_batchgnn.train.run_folder import write_json
from pyg_batchgnn.train.task import Scoring

_FORMAT_VERSION = 1
#: Rows that are written together.
_ROWS = 1 << 16


@dataclass(frozen=True)
class PredictRequest:
    """A request for predictions.

    Attributes:
        restore: the run whose model predicts.
        out: the folder to write, which must not exist. All ranks see it.
        nodes: "all", "train", "val", "test" or the path of a .npy file of node ids.
        embeddings: True to write the last hidden layer as well.
    """

    restore: RestoreRequest
    out: Path
    nodes: str = "all"
    embeddings: bool = False


@dataclass(frozen=True)
class PredictSummary:
    """A summary of predictions.

    Attributes:
        nodes: the number of nodes.
        epoch: of the weights, counted from 1.
        scores: the loss and the metrics on nodes with a label; None if there are none.
    """

    nodes: int
    epoch: int
    scores: dict[str, float] | None


@dataclass(frozen=True, eq=False)
class PredictedRows:
    """The outputs of some nodes of a list.

    Attributes:
        positions: [S] int64, their positions in the list.
        logits: [S, columns] float32.
        hidden: [S, hidden], the last hidden layer.
        labels: [S, ...], the rows of the labels "y".
    """

    positions: Tensor
    logits: Tensor
    hidden: Tensor
    labels: Tensor


def predict_nodes(request: PredictRequest, ranks: Ranks) -> PredictSummary:
    """Writes predictions to a new folder, which appears when it is complete; collective.

    Raises:
        TrainError: the run folder, the request or the data set cannot be used.
        DatasetError: the data set cannot be read.
        CommError: another rank failed, or was given other arguments.
    """
    given = {"nodes": request.nodes, "out": str(request.out), "embeddings": request.embeddings}
    ranks.agree({"command": f"predict {request.restore.run}", **given})
    ranks.from_first(lambda: refuse_existing(request.out))
    restored = restore_run(request.restore, ranks)
    with ranks.any_error():
        run = _checked(restored, request)
        ids = node_ids(request.nodes, run.nodes)
    ranks.agree({f"nodes of {request.nodes}": zlib.crc32(ids.numpy().tobytes())})
    score = Scoring(run.task)
    with appearing_whole(request.out, ranks) as temporary:
        arrays = PredictionArrays(temporary, len(ids), ranks, {"node_ids": ids})
        for found in _exact(run, ids) if run.is_exact else _sampled(run, ids, ranks):
            embeddings = {"embeddings": found.hidden.float()} if request.embeddings else {}
            rows = {**run.task.predictions(found.logits), **embeddings}
            arrays.add(found.positions, rows, found.logits)
            score.add(found.logits, found.labels)
        arrays.flush()
        result = score.result(ranks)
        scores = None if result is None else result.to_dict()
        if ranks.is_first:
            write_json(temporary / "META.json", _meta(request, run, scores, arrays))
    return PredictSummary(len(ids), run.epoch, scores)


def _checked(run: RestoredRun, request: PredictRequest) -> RestoredNodeRun:
    """Returns the run if it predicts nodes."""
    if not isinstance(run, RestoredNodeRun):
        raise TrainError(
            f"{request.restore.run}: this run predicts links; give --pairs, or --top with --nodes FILE.npy"
        )
    return run


def _sampled(run: RestoredNodeRun, ids: Tensor, ranks: Ranks) -> Iterator[PredictedRows]:
    """Yields the nodes of this rank's minibatches. Rank g mod R has minibatch g of the list."""
    loader, size = evaluation_loader(run.config, run.graph, ids), run.config.test_batch_size
    for step, (batch, output) in enumerate(infer(run.network, loader)):
        seeds = run.network.seeds(batch)
        begin = (step * ranks.size + ranks.rank) * size
        positions = torch.arange(begin, begin + len(seeds))
        assert torch.equal(ids[positions], seeds), "minibatches are in the order of the list"
        yield PredictedRows(positions, output.logits, output.hidden, run.graph.labels(run.network, batch))


def _exact(run: RestoredNodeRun, ids: Tensor) -> Iterator[PredictedRows]:
    """Yields the nodes that this rank owns, each computed from all its neighbours."""
    outputs, labels = infer_all(run.network, run.graph), run.graph.owned_labels()
    found = outputs.find(ids)
    for positions, rows in zip(found.position.split(_ROWS), found.row.split(_ROWS), strict=True):
        yield PredictedRows(positions, outputs.logits[rows], outputs.hidden[rows], labels[rows])


def _meta(
    request: PredictRequest, run: RestoredNodeRun, scores: dict[str, float] | None, arrays: PredictionArrays
) -> dict[str, object]:
    """Returns the contents of META.json."""
    return {
        "format": _FORMAT_VERSION,
        "run": str(request.restore.run.resolve()),
        "epoch": run.epoch,
        "dataset": {"name": run.nodes.dataset, **run.checkpoint.dataset},
        "nodes": request.nodes,
        "evaluation": run.config.sampling.evaluation.value,
        "fanout": None if run.is_exact else list(run.config.test_fanout),
        "seed": run.config.run.seed,
        "scores": scores,
        "arrays": arrays.described(),
    }
