"""Metrics of a run's best weights, as ``batchgnn evaluate`` computes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyg_batchgnn.data import SPLITS
from pyg_batchgnn.train.config.choices import EvaluationKind
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.restored import RestoreRequest, restore_run
from pyg_batchgnn.train.run_folder import write_json
from pyg_batchgnn.train.tasks import Evaluation, for_json


@dataclass(frozen=True)
class EvaluateRequest:
    """A request for the metrics of a run's best weights."""

    restore: RestoreRequest  # the run, and how it is restored
    splits: tuple[str, ...] = ("val", "test")  # some of "train", "val" and "test"
    out: Path | None = None  # a JSON file to write, or None


@dataclass(frozen=True)
class EvaluateSummary:
    """The metrics of a run's best weights."""

    epoch: int  # the epoch of the weights, counted from 1
    unit: str  # "nodes", "edges" or "links"
    sizes: dict[str, int]  # their number by split
    scores: dict[str, dict[str, float] | None]  # loss and metrics by split; None for an empty split
    problems: dict[str, str]  # by split: which outputs are not finite, so that metrics are NaN


def evaluate_run(request: EvaluateRequest, ranks: Ranks) -> EvaluateSummary:
    """Computes the metrics of a run's best weights on some splits, and writes them to
    ``request.out`` if given; collective. Raises errors like `predict_nodes`.

    >>> restore = RestoreRequest(Path("runs/first"))
    >>> with restore.join() as ranks:
    ...     sorted(evaluate_run(EvaluateRequest(restore, ("test",)), ranks).scores["test"])
    ['accuracy', 'loss', 'macro_f1']
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
    with ranks.one_error():
        measured = {name: run.measured(name) for name in request.splits}
    computed, found, unit = None, dict[str, Evaluation | None](), run.task.unit
    for name, one in measured.items():
        computed = computed or (one.compute() if len(one) else None)
        found[name] = one.evaluate(ranks, computed=computed)
    summary = EvaluateSummary(
        run.epoch,
        unit,
        sizes={name: len(one) for name, one in measured.items()},
        scores={name: None if one is None else one.to_dict() for name, one in found.items()},
        problems={name: one.problem(unit) for name, one in found.items() if one and not one.is_finite},
    )
    if out is not None:
        content = {
            "epoch": summary.epoch,
            "evaluation": (EvaluationKind.EXACT if run.is_exact else EvaluationKind.SAMPLED).value,
            "fanout": None if run.is_exact else list(run.config.test_fanout),
            unit: summary.sizes,
            "scores": {split: for_json(scores) for split, scores in summary.scores.items()},
        }
        ranks.from_first(lambda: write_json(out, content))
    return summary


def _check_out(out: Path) -> None:
    """Raises `TrainError` for a path that cannot become a file, before anything is computed."""
    if out.is_dir():
        raise TrainError(f"--out {out}: this is a folder; give a JSON file, as {out / 'metrics.json'}")
    if out.exists() and not out.is_file():
        raise TrainError(f"--out {out}: this is no ordinary file; give a JSON file")
    if not out.parent.is_dir():
        raise TrainError(f"--out {out}: there is no folder {out.parent}; make it, or give another file")
