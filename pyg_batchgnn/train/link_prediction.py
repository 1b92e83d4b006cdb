"""Scores of pairs, and best partners of nodes, from the best weights of a run on links."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.train.config.choices import EvaluationKind
from pyg_batchgnn.train.errors import TrainError, as_train_error
from pyg_batchgnn.train.evaluate import PairScorer, embed_all, rows_at, score_pairs
from pyg_batchgnn.train.keyed_tables import KEY_FILES, DatasetKeys, write_pairs
from pyg_batchgnn.train.link_tasks import PredictedLinks
from pyg_batchgnn.train.network import LinkNetwork
from pyg_batchgnn.train.prediction import (
    PredictionArrays,
    appearing_whole,
    check_range,
    moment_of,
    read_integers,
    read_nodes,
    restored_for,
    write_meta,
)
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.restored import RestoredLinkRun, RestoreRequest
from pyg_batchgnn.train.run_graph import EmbeddedNodes, EmbeddedRows, SampledRows, first_times_of


def read_pairs(path: Path, links: PredictedLinks, keys: DatasetKeys) -> Tensor:
    """Returns [P, 2] int64 ids, source and target of each pair, from a .npy file of ids or a
    Parquet or CSV file of keys. Raises `TrainError`, for keys `DatasetError`."""
    if path.suffix in KEY_FILES:
        return torch.from_numpy(keys.read_pairs(path, links))
    pairs = read_integers(path, "integers, pairs of ids [P, 2]", 2)
    if pairs.size(1) != 2:
        raise TrainError(f"{path}: has the shape {list(pairs.shape)}, but pairs of ids are [P, 2]")
    source, _, target = links.relation
    check_range(path, pairs[:, 0], source, links.num_sources)
    check_range(path, pairs[:, 1], target, links.num_targets)
    return pairs


#: The most targets whose rows pass by together, and the most elements of these rows.
_TARGETS, _NUMBERS = 1 << 13, 1 << 24
_SCORES = 1 << 22  # scores that are computed together
_NOBODY = torch.iinfo(torch.int64).max  # the id of no node, above all others
_LOW = (1 << 32) - 1


class BestPartners:
    """The best partners found so far of each of ``num_nodes`` nodes; of equal scores, the lowest
    ids. ``scores`` and ``partners``: [num_nodes, top], in no order between calls of `offer`."""

    def __init__(self, num_nodes: int, top: int) -> None:
        self.scores = torch.full((num_nodes, top), -math.inf)
        self.partners = torch.full((num_nodes, top), _NOBODY)

    def offer(self, nodes: slice, scores: Tensor, ids: Tensor) -> None:
        """Keeps the better of the known and of the offered partners. ``nodes``: rows of this
        object. ``scores``: [n, m] float32. ``ids``: [m] int64, the partners offered."""
        known, partners = self.scores[nodes], self.partners[nodes]
        better = (~(scores.amax(dim=1) < known[:, -1])).nonzero().view(-1)
        offered = scores[better]
        best = best_columns(offered, min(known.size(1), len(ids)))
        found = torch.cat([known[better], offered.gather(1, best)], dim=1)
        theirs, order = torch.cat([partners[better], ids[best]], dim=1).sort(dim=1)
        found = found.gather(1, order)
        kept = best_columns(found, known.size(1))
        known[better], partners[better] = found.gather(1, kept), theirs.gather(1, kept)


def best_columns(scores: Tensor, count: int) -> Tensor:
    """Returns [n, count] int64, the columns with the highest scores of each row, descending; of
    equal scores the lowest columns. NaN is below all."""
    bits = (scores + 0.0).view(torch.int32)  # of no negative zeros
    bits ^= (bits >> 31) & torch.iinfo(torch.int32).max  # now in the order of the scores
    bits.masked_fill_(scores.isnan(), torch.iinfo(torch.int32).min)
    behind = torch.arange(scores.size(1) - 1, -1, -1)
    keys = bits.to(torch.int64).bitwise_left_shift_(32).bitwise_or_(behind)
    return scores.size(1) - 1 - (keys.topk(count, dim=1).values & _LOW)


@torch.no_grad()
def find_partners(
    network: LinkNetwork, rows: EmbeddedRows | SampledRows, nodes: Tensor, top: int
) -> BestPartners:
    """Finds the ``top`` partners with the highest scores of each node; collective. The rows of all
    targets pass by in blocks, so that no rank holds them all. ``nodes``: [n] int64, rows in
    ``rows.own(source type)``."""
    source_type, _, target_type = network.relation
    own, found = rows.own(source_type), BestPartners(len(nodes), top)
    size = min(_TARGETS, max(1, _NUMBERS // max(1, own.rows.size(1))))
    for targets in rows.pieces(target_type, size):
        side = max(1, _SCORES // max(1, len(targets)))
        for begin in range(0, len(nodes), side):
            some = nodes[begin : begin + side]
            scores = network.decoder.all_pairs(own.at(some), targets.rows)
            if source_type == target_type:
                selves = targets.find(own.node[some])
                scores[selves.position, selves.row] = -math.inf
            found.offer(slice(begin, begin + side), scores, targets.node)
    return found


@dataclass(frozen=True)
class LinkPredictRequest:
    """What `predict_links` computes: scores of pairs, or the best partners of nodes."""

    restore: RestoreRequest  # the run, and how it is restored
    out: Path  # a new folder, which all ranks see
    #: the file of pairs, or with `top` of nodes of the source type: .npy with original ids, [P, 2]
    #: or [n], or Parquet or CSV with keys. All ranks see it
    ids: Path
    top: int | None = None  # best partners per node; None scores the pairs
    at: str | None = None  # the time of the scores, as in an `EmbedRequest`


@dataclass(frozen=True)
class LinkPredictSummary:
    """What `predict_links` wrote."""

    rows: int  # pairs, or nodes with partners
    epoch: int  # the epoch of the weights, counted from 1


def predict_links(request: LinkPredictRequest, ranks: Ranks) -> LinkPredictSummary:
    """Writes scores of pairs, or the best partners of nodes, to a new folder; collective. The
    folder appears when it is complete.

    >>> restore = RestoreRequest(Path("runs/links"))
    >>> with restore.join() as ranks:
    ...     predict_links(LinkPredictRequest(restore, Path("out"), Path("pairs.npy")), ranks).rows
    2

    Files: pairs.npy [P, 2] and scores.npy [P]; with ``request.top`` node_ids.npy [n], partners.npy
    and scores.npy [n, top]; META.json; predictions.parquet if the data set has keys. The rest is as
    in `predict_nodes`.
    """
    given: dict[str, Any] = {"ids": str(request.ids), "top": request.top, "at": request.at}
    run = restored_for(request.restore, request.out, ranks, **given)
    with ranks.any_error():
        if not isinstance(run, RestoredLinkRun):
            raise TrainError(f"{request.restore.run}: this run predicts nodes; leave --pairs and --top out")
        with as_train_error(DatasetError):
            keys = DatasetKeys.of(run.dataset, run.config)
            at = moment_of(run, request.at, keys)
            if request.top is None:
                ids = read_pairs(request.ids, run.predicted, keys)
            else:
                ids = read_nodes(request.ids, keys, run.predicted.relation[0])
        if not len(ids):
            raise TrainError(f"{request.ids}: is empty; give at least one row")
        targets, name = torch.arange(run.predicted.num_targets), run.config.sampling.time_attr
        if at is not None and name is not None:
            first = first_times_of(run.dataset, run.predicted.relation[2], name)
            targets = targets if first is None else targets[first <= at]
        others = len(targets) - (run.predicted.relation[0] == run.predicted.relation[2])
        if request.top is not None and not 1 <= request.top <= others:
            raise TrainError(f"--top {request.top}: a node has {others} possible partners; give 1..{others}")
    ranks.agree({f"ids in {request.ids}": zlib.crc32(ids.numpy().tobytes())})
    with appearing_whole(request.out, ranks) as temporary:
        name = "pairs" if request.top is None else "node_ids"
        arrays = PredictionArrays(temporary, len(ids), ranks, {name: ids})
        _fill(arrays, run, ids, request.top, at, targets, ranks)
        arrays.flush()

        def write() -> None:
            if keys.folder is not None:
                write_pairs(temporary, keys, run.predicted, at)
            write_meta(
                *(temporary, run, request.restore, [arrays]),
                relation=list(run.predicted.relation),
                top=request.top,
                evaluation=(EvaluationKind.EXACT if at is None else EvaluationKind.SAMPLED).value,
                time=at,
            )

        ranks.from_first(write)
    return LinkPredictSummary(len(ids), run.epoch)


def _fill(
    arrays: PredictionArrays,
    run: RestoredLinkRun,
    ids: Tensor,
    top: int | None,
    at: int | None,
    targets: Tensor,
    ranks: Ranks,
) -> None:
    """Computes the arrays, with a time ``at`` from sampled neighbours. ``targets``: [m] int64, the
    nodes of the target type that exist at that time."""
    source_type, _, target_type = run.predicted.relation
    if top is None and at is not None:
        times = torch.full((len(ids),), at)
        loader = run.graph.link_loader(run.predicted, ids.t(), times, excludes=False)
        for positions, scores in score_pairs(run.network, loader):
            arrays.add(positions, {"scores": scores.float()}, scores)
    elif top is None:
        rows = embed_all(run.network, run.graph)
        own, (source, target) = rows.own(source_type), ids.t().contiguous()
        found = own.find(source)
        scorer = PairScorer(run.network, rows, run.task.columns, ranks)
        scores = scorer.scores(own, found.row, target[found.position])
        arrays.add(found.position, {"scores": scores}, scores)
    else:
        if at is None:
            held: EmbeddedRows | SampledRows = embed_all(run.network, run.graph)
        else:
            nodes = ids.unique() if source_type != target_type else torch.cat([ids, targets]).unique()
            of_types = {
                name: _joined(rows_at(run.network, run.graph, name, some, at, run.task.columns))
                for name, some in {target_type: targets, source_type: nodes}.items()
            }
            held = SampledRows(of_types, targets, ranks.training)
        found = held.own(source_type).find(ids)
        best = find_partners(run.network, held, found.row, top)
        arrays.add(found.position, {"partners": best.partners, "scores": best.scores}, best.scores)


def _joined(pieces: Iterable[EmbeddedNodes]) -> EmbeddedNodes:
    every = list(pieces)
    return EmbeddedNodes(torch.cat([one.node for one in every]), torch.cat([one.rows for one in every]))
