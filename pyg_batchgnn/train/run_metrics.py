"""Metrics of a run's best weights, as ``batchgnn evaluate`` computes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from pyg_batchgnn.data import SPLITS
from pyg_batchgnn.train.config import EvaluationKind
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.evaluate import embed_all, evaluate, infer_all, rank_links, score_nodes
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.restored import (
    RestoredLinkRun,
    RestoredNodeRun,
    RestoredRun,
    RestoreRequest,
    restore_run,
)
from pyg_batchgnn.train.run_folder import write_json
from pyg_batchgnn.train.tasks import Evaluation


@dataclass(frozen=True)
class EvaluateRequest:
    """A request for metrics.

    Attributes:
        restore: the run whose model is evaluated.
        splits: the names of splits.
        out: the JSON file to write; None writes none.
    """

    restore: RestoreRequest
    splits: tuple[str, ...] = ("val", "test")
    out: Path | None = None


@dataclass(frozen=True)
class EvaluateSummary:
    """The metrics of a run's best weights.

    Attributes:
        epoch: of the weights, counted from 1.
        unit: what the run predicts: "nodes" or "links".
        sizes: the number of nodes or links of each split.
        scores: the loss and the metrics of each split; None if it is empty.
        problems: what is not finite, by the splits whose metrics are therefore NaN.
    """

    epoch: int
    unit: str
    sizes: dict[str, int]
    scores: dict[str, dict[str, float] | None]
    problems: dict[str, str]


def evaluate_run(request: EvaluateRequest, ranks: Ranks) -> EvaluateSummary:
    """Computes the metrics; collective.

    Raises:
        TrainError: the run folder, the request or the data set cannot be used.
        DatasetError: the data set cannot be read.
        CommError: another rank failed, or was given other arguments.
    """
    given = {"splits": list(request.splits), "out": str(request.out)}
    ranks.agree({"command": f"evaluate {request.restore.run}", **given})
    with ranks.one_error():
        _check_splits(request.splits)
    if (out := request.out) is not None:
        ranks.from_first(lambda: _check_out(out))
    run = restore_run(request.restore, ranks)
    if isinstance(run, RestoredLinkRun):
        measured = _links(run, request.splits, ranks)
    else:
        measured = _nodes(run, request.splits, ranks)
    sizes = {name: one.size for name, one in measured.items()}
    scores = {name: one.scores for name, one in measured.items()}
    problems = {name: one.problem for name, one in measured.items() if one.problem}
    summary = EvaluateSummary(run.epoch, run.task.unit, sizes, scores, problems)
    if out is not None:
        ranks.from_first(lambda: write_json(out, _content(run, summary)))
    return summary


def _check_splits(splits: tuple[str, ...]) -> None:
    unknown = [name for name in splits if name not in SPLITS]
    if unknown or not splits:
        raise TrainError(f"--splits {','.join(splits)}: give one or more of {', '.join(SPLITS)}")


def _check_out(out: Path) -> None:
    """Raises TrainError for a path that no file can have, before anything is computed."""
    if out.is_dir():
        raise TrainError(f"--out {out}: this is a folder; give a JSON file, as {out / 'metrics.json'}")
    if out.exists() and not out.is_file():
        raise TrainError(f"--out {out}: this is no ordinary file; give a JSON file")
    if not out.parent.is_dir():
        raise TrainError(f"--out {out}: there is no folder {out.parent}; make it, or give another file")


@dataclass(frozen=True)
class _Measured:
    """The metrics of a split.

    Attributes:
        size: the number of its nodes or links.
        scores: the loss and the metrics; None if it is empty.
        problem: what is not finite; "" if everything is.
    """

    size: int
    scores: dict[str, float] | None
    problem: str

    @classmethod
    def of(cls, size: int, found: Evaluation | None, unit: str) -> _Measured:
        if found is None:
            return cls(size, None, "")
        return cls(size, found.to_dict(), "" if found.is_finite else found.problem(unit))


def _nodes(run: RestoredNodeRun, splits: tuple[str, ...], ranks: Ranks) -> dict[str, _Measured]:
    """Measures nodes; collective."""
    outputs, measured = infer_all(run.network, run.graph) if run.is_exact else None, {}
    for name in splits:
        ids = run.nodes.split(name)
        if outputs is not None:
            found = score_nodes(outputs, run.graph, ids, run.task, ranks)
        else:
            loader = run.graph.evaluation_loader(ids)
            found = evaluate(run.network, loader, run.graph, run.task, ranks)
        measured[name] = _Measured.of(len(ids), found, run.task.unit)
    return measured


def _links(run: RestoredLinkRun, splits: tuple[str, ...], ranks: Ranks) -> dict[str, _Measured]:
    """Measures links, from rows of nodes that are computed once; collective."""
    with ranks.one_error():
        links = {name: run.links.measured(name) for name in splits}
    rows = embed_all(run.network, run.graph)
    return {
        name: _Measured.of(
            len(one),
            rank_links(run.network, rows, one, run.task, ranks) if len(one) else None,
            run.task.unit,
        )
        for name, one in links.items()
    }


def _content(run: RestoredRun, summary: EvaluateSummary) -> dict[str, object]:
    return {
        "epoch": summary.epoch,
        "evaluation": (EvaluationKind.EXACT if run.is_exact else EvaluationKind.SAMPLED).value,
        "fanout": None if run.is_exact else list(run.config.test_fanout),
        summary.unit: summary.sizes,
        "scores": {name: _finite(scores) for name, scores in summary.scores.items()},
    }


def _finite(scores: dict[str, float] | None) -> dict[str, float | None] | None:
    """Returns the scores with None for NaN and infinity, which JSON does not have."""
    if scores is None:
        return None
    return {name: score if math.isfinite(score) else None for name, score in scores.items()}
