"""The first lines of a run on the terminal: data set, model, sampling, resources and ranks."""

from __future__ import annotations

from collections.abc import Mapping

from rich.filesize import decimal

from pyg_batchgnn.comm import describe_backend
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.train.config import (
    CacheKind,
    EvaluationKind,
    ModelKind,
    RanksConfig,
    RemoteKind,
    TaskKind,
    TrainConfig,
)
from pyg_batchgnn.train.model import ModelInputs
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.run_folder import RunFolder
from pyg_batchgnn.train.task import Task


def opening_lines(
    config: TrainConfig,
    dataset: Dataset,
    inputs: ModelInputs,
    task: Task,
    sizes: Mapping[str, int],
    folder: RunFolder,
    ranks: Ranks,
) -> list[str]:
    """Returns the lines that a run starts with."""
    model, sampling, threads = config.model, config.sampling, config.run.threads or 1
    heads = f", {model.heads} heads" if model.kind is ModelKind.GAT else ""
    lines = [
        *_data_lines(dataset, inputs, task, sizes),
        f"        {dataset.source}",
        f"model   {model.kind.value}, {model.num_layers} layers, "
        f"hidden {model.hidden}{heads}, {config.run.precision.value}",
        *_learned_line(config, inputs),
        f"sample  fanout {_commas(sampling.fanout)} {sampling.replacement.value} replacement, "
        f"batch {sampling.batch_size}; {_evaluation(config)}",
        *_cache_line(config),
        f"run     {folder.path}, {config.run.epochs} epochs, seed {config.run.seed}, {threads} thread(s)",
    ]
    return lines if ranks.is_alone else [*lines, _ranks_line(config.ranks, ranks)]


def _data_lines(dataset: Dataset, inputs: ModelInputs, task: Task, sizes: Mapping[str, int]) -> list[str]:
    """Returns the lines about the graph, its features, and what is predicted."""
    counts = "/".join(f"{count:,}" for count in sizes.values())
    predicted = f"{task.described}, {counts} {'/'.join(sizes)} {task.unit}"
    what = inputs.node_type if inputs.link is None else "-".join(inputs.link)
    features = [f"{count:,} of {name}" for name, count in inputs.features.items()]
    if not dataset.has_names:
        columns = inputs.features.get(inputs.node_type, 0)
        return [
            f"data    {dataset.name}: {dataset.num_nodes:,} nodes, {dataset.num_edges:,} edges, "
            f"{columns:,} features, {predicted}"
        ]
    schema = dataset.schema
    return [
        f"data    {dataset.name}: {dataset.num_nodes:,} nodes of {_count(schema.num_types, 'type')}, "
        f"{dataset.num_edges:,} edges of {_count(schema.num_relations, 'relation')}",
        f"        features: {', '.join(features) or 'none'}; predicts {what}: {predicted}",
    ]


def _learned_line(config: TrainConfig, inputs: ModelInputs) -> list[str]:
    """Returns the line about learned rows, if there are any."""
    if not inputs.learned:
        return []
    columns = next(iter(inputs.learned.values()))
    of = f" of {', '.join(inputs.learned)}" if inputs.schema.has_names else ""
    return [f"        learned rows of {columns} columns for the nodes{of}, {config.embedding.rule.value}"]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _evaluation(config: TrainConfig) -> str:
    """Returns how nodes or links are evaluated."""
    if config.sampling.evaluation is EvaluationKind.EXACT or config.task.kind is TaskKind.LINKS:
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
