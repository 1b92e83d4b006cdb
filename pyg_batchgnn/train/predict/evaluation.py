"""Metrics of a run's best weights, as ``batchgnn evaluate`` computes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from pyg_batchgnn.data import SPLITS
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graph import evaluation_loader
from pyg_batchgnn.train.loop import NodeOutputs, evaluate, infer_all, score_nodes
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.run import RestoredRun, RestoreRequest, restore_run
from pyg_batchgnn.train.run_folder import write_json
from pyg_batchgnn.train.task import Evaluation


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
        nodes: the number of nodes of each split.
        scores: the loss and the metrics of each split; None if it has no nodes.
    """

    epoch: int
    nodes: dict[str, int]
    scores: dict[str, dict[str, float] | None]


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
    nodes = {name: run.nodes.split(name) for name in request.splits}
    outputs = infer_all(run.network, run.graph) if run.is_exact else None
    found = {name: _evaluation(run, outputs, ids, ranks) for name, ids in nodes.items()}
    scores = {name: None if one is None else one.to_dict() for name, one in found.items()}
    summary = EvaluateSummary(run.epoch, {name: len(ids) for name, ids in nodes.items()}, scores)
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
    if not out.parent.is_dir():
        raise TrainError(f"--out {out}: there is no folder {out.parent}; make it, or give another file")


def _evaluation(
    run: RestoredRun, outputs: NodeOutputs | None, ids: Tensor, ranks: Ranks
) -> Evaluation | None:
    """Evaluates some nodes. ``outputs``: of all nodes; None takes sampled minibatches."""
    if outputs is not None:
        return score_nodes(outputs, run.graph, ids, run.task, ranks)
    loader = evaluation_loader(run.config, run.graph, ids)
    return evaluate(run.network, loader, run.graph.labels, run.task, ranks)


def _content(run: RestoredRun, summary: EvaluateSummary) -> dict[str, object]:
    return {
        "epoch": summary.epoch,
        "evaluation": run.config.sampling.evaluation.value,
        "fanout": None if run.is_exact else list(run.config.test_fanout),
        "nodes": summary.nodes,
        "scores": summary.scores,
    }
