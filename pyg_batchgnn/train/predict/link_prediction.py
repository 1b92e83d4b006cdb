"""Scores of pairs and best partners of nodes, from the best weights of a run on links."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from pyg_batchgnn.train.config import EvaluationKind
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.loop import PairScorer, embed_all
from pyg_batchgnn.train.predict.arrays import PredictionArrays
from pyg_batchgnn.train.predict.link_ids import read_pairs, read_sources
from pyg_batchgnn.train.predict.new_folder import appearing_whole, refuse_existing
from pyg_batchgnn.train.predict.partners import find_partners
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.run import RestoredLinkRun, RestoredRun, RestoreRequest, restore_run
from pyg_batchgnn.train.run_folder import write_json

_FORMAT_VERSION = 1


@dataclass(frozen=True)
class LinkPredictRequest:
    """A request for scores of pairs, or for the best partners of nodes.

    Attributes:
        restore: the run whose model predicts.
        out: the folder to write, which must not exist. All ranks see it.
        ids: a .npy file of original ids, which all ranks see: pairs [P, 2] of source and target, or
            with `top` nodes [n] of the source type.
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
    """Writes scores to a new folder, which appears when it is complete; collective.

    Each rank scores the pairs whose sources it owns, or finds the partners of the nodes that it
    owns.

    Raises:
        TrainError: the run folder, the request or the data set cannot be used.
        DatasetError: the data set cannot be read.
        CommError: another rank failed, or was given other arguments.
    """
    given = {"ids": str(request.ids), "top": request.top, "out": str(request.out)}
    ranks.agree({"command": f"predict {request.restore.run}", **given})
    ranks.from_first(lambda: refuse_existing(request.out))
    restored = restore_run(request.restore, ranks)
    with ranks.any_error():
        run = _checked(restored, request)
        ids = _ids(request, run)
    ranks.agree({f"ids in {request.ids}": zlib.crc32(ids.numpy().tobytes())})
    with appearing_whole(request.out, ranks) as temporary:
        name = "pairs" if request.top is None else "node_ids"
        arrays = PredictionArrays(temporary, len(ids), ranks, {name: ids})
        _fill(arrays, run, ids, request.top, ranks)
        arrays.flush()
        if ranks.is_first:
            write_json(temporary / "META.json", _meta(request, run, arrays))
    return LinkPredictSummary(len(ids), run.epoch)


def _checked(run: RestoredRun, request: LinkPredictRequest) -> RestoredLinkRun:
    """Returns the run if it predicts links."""
    if not isinstance(run, RestoredLinkRun):
        raise TrainError(f"{request.restore.run}: the run predicts nodes; --pairs and --top are for links")
    return run


def _ids(request: LinkPredictRequest, run: RestoredLinkRun) -> Tensor:
    if request.top is None:
        return read_pairs(request.ids, run.links)
    return read_sources(request.ids, request.top, run.links)


def _fill(arrays: PredictionArrays, run: RestoredLinkRun, ids: Tensor, top: int | None, ranks: Ranks) -> None:
    """Fills in the scores, and with `top` the partners; collective."""
    rows = embed_all(run.network, run.graph)
    own = rows.own(run.links.relation[0])
    if top is None:
        source, target = ids.t().contiguous()
        found = own.find(source)
        scorer = PairScorer(run.network, rows, run.task.columns, ranks)
        scores = scorer.scores(own.rows, found.row, target[found.position])
        arrays.add(found.position, {"scores": scores}, scores)
        return
    nodes = own.find(ids)
    best = find_partners(run.network, rows, nodes.row, top)
    arrays.add(nodes.position, {"partners": best.partners, "scores": best.scores}, best.scores)


def _meta(request: LinkPredictRequest, run: RestoredLinkRun, arrays: PredictionArrays) -> dict[str, object]:
    """Returns the contents of META.json."""
    return {
        "format": _FORMAT_VERSION,
        "run": str(request.restore.run.resolve()),
        "epoch": run.epoch,
        "dataset": {"name": run.links.dataset, **run.checkpoint.dataset},
        "relation": list(run.links.relation),
        "top": request.top,
        "evaluation": EvaluationKind.EXACT.value,
        "arrays": arrays.described(),
    }
