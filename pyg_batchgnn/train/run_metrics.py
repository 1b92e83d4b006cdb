"""Metrics of a run's best weights, as ``batchgnn evaluate`` computes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pyg_batchgnn.data import SPLITS
from pyg_batchgnn.train.config.choices import EvaluationKind
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.evaluate import (
    MeasuredTimedLinks,
    embed_all,
    evaluate,
    infer_all,
    rank_links,
    score_nodes,
)
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.restored import RestoredLinkRun, RestoredNodeRun, RestoreRequest, restore_run
from pyg_batchgnn.train.run_folder import write_json
from pyg_batchgnn.train.tasks import Evaluation

#: The number of nodes or links of a split, and their evaluation; None if it is empty.
_Measured: TypeAlias = tuple[int, Evaluation | None]


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
    command = f"evaluate {request.restore.run}"
    ranks.agree({"command": command, "splits": list(request.splits), "out": str(request.out)})
    with ranks.one_error():
        if not request.splits or not set(request.splits) <= set(SPLITS):
            given = ",".join(request.splits)
            raise TrainError(f"--splits {given}: give one or more of {', '.join(SPLITS)}")
    if (out := request.out) is not None:
        ranks.from_first(lambda: _check_out(out))
    run = restore_run(request.restore, ranks)
    if isinstance(run, RestoredLinkRun):
        measured = _links(run, request.splits, ranks)
    else:
        measured = _nodes(run, request.splits, ranks)
    unit, found = run.task.unit, {name: one for name, (_, one) in measured.items()}
    summary = EvaluateSummary(
        run.epoch,
        unit,
        sizes={name: size for name, (size, _) in measured.items()},
        scores={name: None if one is None else one.to_dict() for name, one in found.items()},
        problems={name: one.problem(unit) for name, one in found.items() if one and not one.is_finite},
    )
    if out is not None:
        content = {
            "epoch": summary.epoch,
            "evaluation": (EvaluationKind.EXACT if run.is_exact else EvaluationKind.SAMPLED).value,
            "fanout": None if run.is_exact else list(run.config.test_fanout),
            unit: summary.sizes,
            "scores": {  # JSON has neither NaN nor infinity
                split: None
                if scores is None
                else {name: one if math.isfinite(one) else None for name, one in scores.items()}
                for split, scores in summary.scores.items()
            },
        }
        ranks.from_first(lambda: write_json(out, content))
    return summary


def _check_out(out: Path) -> None:
    """Raises TrainError for a path that no file can have, before anything is computed."""
    if out.is_dir():
        raise TrainError(f"--out {out}: this is a folder; give a JSON file, as {out / 'metrics.json'}")
    if out.exists() and not out.is_file():
        raise TrainError(f"--out {out}: this is no ordinary file; give a JSON file")
    if not out.parent.is_dir():
        raise TrainError(f"--out {out}: there is no folder {out.parent}; make it, or give another file")


def _nodes(run: RestoredNodeRun, splits: tuple[str, ...], ranks: Ranks) -> dict[str, _Measured]:
    """Measures nodes; collective."""
    outputs, measured = infer_all(run.network, run.graph) if run.is_exact else None, {}
    for name in splits:
        ids = run.nodes.split(name)
        if outputs is not None:
            found = score_nodes(*outputs[:2], run.graph, ids, run.task, ranks)
        else:
            found = evaluate(run.network, run.graph.evaluation_loader(ids), run.graph, run.task, ranks)
        measured[name] = len(ids), found
    return measured


def _links(run: RestoredLinkRun, splits: tuple[str, ...], ranks: Ranks) -> dict[str, _Measured]:
    """Measures links, from nodes computed once or at the times of the links; collective."""
    if run.config.is_timed:
        timed = {
            name: MeasuredTimedLinks.of(run.dataset, run.links, name, run.network, run.graph, run.task)
            for name in splits
        }
        return {name: (len(one), one.evaluate(ranks)) for name, one in timed.items()}
    with ranks.one_error():
        links = {name: run.links.measured(name) for name in splits}
    rows, measured = embed_all(run.network, run.graph), {}
    for name, some in links.items():
        found = rank_links(run.network, rows, some, run.task, ranks) if len(some) else None
        measured[name] = len(some), found
    return measured
