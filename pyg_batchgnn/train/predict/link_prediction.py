"""Scores of pairs and best partners of nodes, from the best weights of a run on links."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.loop import PairScorer, embed_all
from pyg_batchgnn.train.predict.arrays import PredictionArrays
from pyg_batchgnn.train.predict.new_folder import appearing_whole, refuse_existing
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.run import RestoredLinkRun, RestoreRequest, restore_run
from pyg_batchgnn.train.run_folder import write_json

_FORMAT_VERSION = 1


@dataclass(frozen=True)
class LinkPredictRequest:
    """A request for scores of pairs, or for the best partners of nodes.

    Attributes:
        restore: the run whose model predicts.
        out: the folder to write, which must not exist.
        ids: a .npy file of original ids: pairs [P, 2] of source and target, or with `top` nodes
            [n] of the source type.
        top: the number of partners per node; None scores the pairs.
    """

    restore: RestoreRequest
    out: Path
    ids: Path
    top: int | None = None


@dataclass(frozen=True)
class LinkPredictSummary:
    """A summary of predictions of links.

    Attributes:
        rows: the number of pairs, or of nodes with partners.
        epoch: of the weights, counted from 1.
    """

    rows: int
    epoch: int


def predict_links(request: LinkPredictRequest, ranks: Ranks) -> LinkPredictSummary:
    """Writes scores to a new folder, which appears when it is complete.

    Raises:
        TrainError: the run folder, the request or the data set cannot be used, or there are
            several ranks.
        DatasetError: the data set cannot be read.
    """
    with ranks.one_error():
        if not ranks.is_alone:
            raise TrainError(f"--pairs and --top are for one process, but there are {ranks.size} ranks")
        refuse_existing(request.out)
    run = restore_run(request.restore, ranks)
    if not isinstance(run, RestoredLinkRun):
        raise TrainError(f"{request.restore.run}: the run predicts nodes; --pairs and --top are for links")
    ids = _pairs(request.ids, run) if request.top is None else _nodes(request.ids, request.top, run)
    with appearing_whole(request.out, ranks) as temporary:
        arrays = PredictionArrays(temporary, "pairs" if request.top is None else "node_ids", ids, ranks)
        scorer = PairScorer(run.network, embed_all(run.network, run.graph), run.task.columns)
        if request.top is None:
            for piece in torch.arange(len(ids)).split(scorer.pairs_at_a_time):
                source, target = ids[piece].unbind(1)
                arrays.add(piece, {"scores": scorer.scores(source, target.unsqueeze(1))[:, 0]})
        else:
            for piece in torch.arange(len(ids)).split(_side(scorer)):
                arrays.add(piece, _best(scorer, ids[piece], request.top, run))
        arrays.flush()
        write_json(temporary / "META.json", _meta(request, run, arrays))
    return LinkPredictSummary(len(ids), run.epoch)


def _pairs(path: Path, run: RestoredLinkRun) -> Tensor:
    """Returns [P, 2] int64, the pairs of a file."""
    pairs = _read(path, "pairs of ids [P, 2]", 2)
    if pairs.size(1) != 2:
        raise TrainError(f"{path}: has the shape {list(pairs.shape)}, but pairs of ids are [P, 2]")
    source, _, target = run.links.relation
    _check_range(path, pairs[:, 0], source, run.links.num_sources)
    _check_range(path, pairs[:, 1], target, run.links.num_targets)
    return pairs


def _nodes(path: Path, top: int, run: RestoredLinkRun) -> Tensor:
    """Returns [n] int64, the nodes of a file."""
    nodes = _read(path, "ids of nodes [n]", 1)
    source, _, target = run.links.relation
    _check_range(path, nodes, source, run.links.num_sources)
    others = run.links.num_targets - (source == target)
    if not 1 <= top <= others:
        raise TrainError(f"--top {top}: a node has {others} possible partners; give 1..{others}")
    return nodes


def _read(path: Path, what: str, dimensions: int) -> Tensor:
    """Returns the integers of a file as int64."""
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise TrainError(f"{path}: cannot be read; give a .npy file of {what}: {error}") from None
    if not isinstance(array, np.ndarray) or array.ndim != dimensions or array.dtype.kind not in "iu":
        raise TrainError(f"{path}: must hold integers, {what}")
    if not len(array):
        raise TrainError(f"{path}: is empty; give {what}")
    return torch.from_numpy(array.astype(np.int64))


def _check_range(path: Path, ids: Tensor, node_type: str, count: int) -> None:
    outside = (ids < 0) | (ids >= count)
    if bool(outside.any()):
        raise TrainError(f"{path}: {node_type} {int(ids[outside][0])} is not in 0..{count - 1}")


def _side(scorer: PairScorer) -> int:
    """Returns the number of nodes that are scored against as many targets at a time."""
    return max(1, math.isqrt(scorer.pairs_at_a_time))


def _best(scorer: PairScorer, nodes: Tensor, top: int, run: RestoredLinkRun) -> dict[str, Tensor]:
    """Returns "partners" and "scores", [n, top] each, the best first. Of equal scores, those of
    lower ids come first.

    Args:
        scorer: of the run.
        nodes: [n] int64 original ids, so few that their pairs with a piece of the targets fit.
        top: the number of partners per node.
        run: gives the targets. A node is no partner of itself.
    """
    source_type, _, target_type = run.links.relation
    scores, partners = torch.empty(len(nodes), 0), torch.empty(len(nodes), 0, dtype=torch.int64)
    for targets in torch.arange(run.links.num_targets).split(_side(scorer)):
        found = scorer.all_scores(nodes, targets)
        if source_type == target_type:
            found = found.masked_fill(nodes.unsqueeze(1) == targets, -math.inf)
        scores = torch.cat([scores, found], dim=1)
        partners = torch.cat([partners, targets.expand(len(nodes), -1)], dim=1)
        order = scores.argsort(dim=1, descending=True, stable=True)[:, :top]
        scores, partners = scores.gather(1, order), partners.gather(1, order)
    return {"partners": partners, "scores": scores}


def _meta(request: LinkPredictRequest, run: RestoredLinkRun, arrays: PredictionArrays) -> dict[str, object]:
    """Returns the contents of META.json."""
    return {
        "format": _FORMAT_VERSION,
        "run": str(request.restore.run.resolve()),
        "epoch": run.epoch,
        "dataset": {"name": run.links.dataset, **run.checkpoint.dataset},
        "relation": list(run.links.relation),
        "top": request.top,
        "arrays": arrays.described(),
    }
