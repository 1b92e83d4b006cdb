"""The first lines of a run on the terminal: data set, model, sampling, resources and ranks."""

from __future__ import annotations

from rich.filesize import decimal

from pyg_batchgnn.comm import describe_backend
from pyg_batchgnn.data import SPLITS, Dataset
from pyg_batchgnn.train.config import (
    CacheKind,
    EvaluationKind,
    ModelKind,
    RanksConfig,
    RemoteKind,
    TrainConfig,
)
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.run_folder import RunFolder
from pyg_batchgnn.train.task import NodeTask


def opening_lines(
    config: TrainConfig, dataset: Dataset, task: NodeTask, folder: RunFolder, ranks: Ranks
) -> list[str]:
    """Returns the lines that a run starts with."""
    model, sampling, threads = config.model, config.sampling, config.run.threads or 1
    heads = f", {model.heads} heads" if model.kind is ModelKind.GAT else ""
    sizes = "/".join(f"{len(dataset.split(name)):,}" for name in SPLITS)
    lines = [
        f"data    {dataset.name}: {dataset.num_nodes:,} nodes, {dataset.num_edges:,} edges, "
        f"{dataset.num_features:,} features, {task.described}, "
        f"{sizes} train/val/test nodes",
        f"        {dataset.source}",
        f"model   {model.kind.value}, {model.num_layers} {model.layers.value} layers, "
        f"hidden {model.hidden}{heads}, {config.run.precision.value}",
        f"sample  fanout {_commas(sampling.fanout)} {sampling.replacement.value} replacement, "
        f"batch {sampling.batch_size}; {_evaluation(config)}",
        *_cache_line(config),
        f"run     {folder.path}, {config.run.epochs} epochs, seed {config.run.seed}, {threads} thread(s)",
    ]
    return lines if ranks.is_alone else [*lines, _ranks_line(config.ranks, ranks)]


def _evaluation(config: TrainConfig) -> str:
    """Returns how nodes are evaluated."""
    if config.sampling.evaluation is EvaluationKind.EXACT:
        return "evaluation from all neighbours"
    return f"evaluation fanout {_commas(config.test_fanout)}"


def _cache_line(config: TrainConfig) -> list[str]:
    if config.sampling.cache is CacheKind.OFF:
        return []
    evaluation = "with them" if config.evaluates_with_cache else "without"
    hop = config.sampling.fanout[-1]
    return [f"        aggregates of all neighbours replace the last hop's {hop}; evaluation {evaluation}"]


def _ranks_line(config: RanksConfig, ranks: Ranks) -> str:
    hosts = len(set(ranks.training.hosts))
    topology = ", topology on every rank" if config.hybrid else ""
    backend = describe_backend(config.backend)
    remote = f"; {config.remote.value} rows of other ranks" if config.remote is not RemoteKind.EXACT else ""
    cache = "" if config.feature_cache is None else f", {decimal(config.feature_cache)} of remote rows kept"
    return (
        f"ranks   {ranks.size} on {hosts} host{'s' if hosts > 1 else ''}, {backend}; partition "
        f"{config.partition}{topology}{cache}; {config.schedule.value} schedule{remote}"
    )


def _commas(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))
