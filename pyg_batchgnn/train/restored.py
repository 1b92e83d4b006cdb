"""The best model of a run with the run's graph, for prediction, and its metrics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pyg_batchgnn.data import SPLITS
from pyg_batchgnn.train.checkpoint import Checkpoint
from pyg_batchgnn.train.config.choices import EvaluationKind, TaskKind
from pyg_batchgnn.train.config.train_config import OF_CACHE, TrainConfig, assign
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graphs import graph_of
from pyg_batchgnn.train.job import RunModel
from pyg_batchgnn.train.link_tasks import LinkTask, PredictedLinks
from pyg_batchgnn.train.network import LinkNetwork, RowNetwork, build_network
from pyg_batchgnn.train.node_tasks import PredictedNodes, predicted_of, task_of
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.run_folder import RunFolder, write_json
from pyg_batchgnn.train.start import apply_product, configure_malloc, open_on_all_ranks
from pyg_batchgnn.train.tasks import Evaluation, NodeTask, for_json


@dataclass(frozen=True)
class RestoreRequest:
    """The run to restore, and what shall differ; None keeps what the run had. It names the model of
    `predict_nodes`, `predict_links`, `embed_nodes` and `evaluate_run`."""

    run: Path  # the run folder. Only the first rank need see it, unless the model has learned rows
    dataset: str | None = None  # name or folder of the data set, if not the run's
    threads: int | None = None  # threads per rank
    evaluation: EvaluationKind | None = None  # from sampled or from all neighbours
    ranks: tuple[str, ...] = ()  # changes of "ranks." fields, as `assign` takes them
    memory_budget: int | None = None  # bytes per rank
    freeze: str | None = None  # the time after which nothing is sampled; "none": no such time

    def join(self) -> Ranks:
        """Joins the other ranks, with the "ranks." fields of the request."""
        return Ranks.join(assign(TrainConfig(), list(self.ranks)).ranks)

    def config(self, written: TrainConfig) -> TrainConfig:
        """Returns ``written`` with the changes. Raises `TrainError` for one that does not fit."""
        if self.evaluation is EvaluationKind.EXACT and written.is_timed:
            raise TrainError(
                f"{self.run}: the run computes nodes from what is not later than themselves, and --exact "
                f"would read all neighbours, later ones too; leave it out"
            )
        is_exact_task = written.task.kind is TaskKind.LINKS and not written.is_timed
        if self.evaluation is EvaluationKind.SAMPLED and is_exact_task:
            raise TrainError(
                f"{self.run}: a run that predicts links computes every node from all its neighbours; leave "
                f"--sampled out"
            )
        evaluation = self.evaluation or written.sampling.evaluation
        changes = {
            "run.dataset": self.dataset,
            "run.threads": self.threads,
            "sampling.evaluation": evaluation.value,
            "sampling.memory_budget": self.memory_budget,
            "sampling.freeze": self.freeze,
            "ranks.remote": "exact",
        }
        if not written.evaluates_with_cache or evaluation is EvaluationKind.EXACT:
            changes |= {"sampling.cache": "off", **dict.fromkeys(OF_CACHE, "none")}
        given = [f"{name}={value}" for name, value in changes.items() if value is not None]
        return assign(written, [*given, *self.ranks])


@dataclass(frozen=True, kw_only=True)
class RestoredRun(RunModel):
    """A run with the weights of its best epoch. ``config`` has the changes of the request."""

    checkpoint: Checkpoint

    @property
    def epoch(self) -> int:
        return self.checkpoint.progress.best_epoch

    @property
    def is_exact(self) -> bool:
        if self.task.unit == "links":
            return not self.config.is_timed
        return self.config.sampling.evaluation is EvaluationKind.EXACT


@dataclass(frozen=True, kw_only=True)
class RestoredNodeRun(RestoredRun):
    predicted: PredictedNodes
    task: NodeTask
    network: RowNetwork


@dataclass(frozen=True, kw_only=True)
class RestoredLinkRun(RestoredRun):
    predicted: PredictedLinks
    task: LinkTask
    network: LinkNetwork


def restore_run(
    request: RestoreRequest, ranks: Ranks, *, for_all_nodes: bool = False
) -> RestoredNodeRun | RestoredLinkRun:
    folder, path = RunFolder(request.run), RunFolder(request.run).checkpoint

    def check() -> None:
        if not Checkpoint.load(RunFolder.open(request.run).checkpoint).best:
            raise TrainError(
                f"{request.run}: no epoch is finished, so there is no model yet; train at least one epoch"
            )

    ranks.from_first(check)  # which alone need have the folder
    data = ranks.bytes_from_first(path.read_bytes() if ranks.is_first else b"")
    checkpoint = Checkpoint.load(path, data)
    if for_all_nodes and not checkpoint.config.is_timed:
        request = replace(request, evaluation=EvaluationKind.EXACT)
    with ranks.one_error():
        config = request.config(checkpoint.config)
    configure_malloc(config.run.malloc)
    torch.set_num_threads(config.run.threads or 1)
    apply_product(config)
    dataset, fingerprint = open_on_all_ranks(config, ranks)
    with ranks.one_error():
        checkpoint.check_dataset(path, fingerprint, request.dataset or "")
        task = task_of(dataset, config.task, config.model.hidden)
    graph = graph_of(dataset, config, ranks)
    network = build_network(config, graph.inputs, task.columns, graph.embedding)
    with ranks.one_error():
        checkpoint.restore_model(path, network.model, checkpoint.best)
    if graph.embedding is not None:
        graph.embedding.load(folder.rows / checkpoint.best_rows)
    kind: Any = RestoredLinkRun if isinstance(network, LinkNetwork) else RestoredNodeRun
    run: RestoredNodeRun | RestoredLinkRun = kind(
        config=config,
        dataset=dataset,
        predicted=predicted_of(dataset, config.task),
        task=task,
        graph=graph,
        network=network,
        checkpoint=checkpoint,
    )
    return run


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
