"""The objects of a run, built from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from pyg_batchgnn.data import SPLITS, Dataset
from pyg_batchgnn.embed import SGD, Adagrad, EmbeddingOptimizer, SparseAdam, UpdateRule
from pyg_batchgnn.train.config.choices import EmbeddingRule, EvaluationKind
from pyg_batchgnn.train.config.train_config import TrainConfig, json_or_text
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.evaluate import Measured, MeasuredLinks, MeasuredNodes, MeasuredTimedLinks
from pyg_batchgnn.train.graphs import graph_of
from pyg_batchgnn.train.link_tasks import LinkTask, PredictedLinks
from pyg_batchgnn.train.network import GraphNetwork, LinkNetwork, RowNetwork, build_network
from pyg_batchgnn.train.node_tasks import PredictedNodes, predicted_of, task_of
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.replica import BatchNormStatistics, Replica
from pyg_batchgnn.train.run_graph import AnyLoader, RunGraph
from pyg_batchgnn.train.tasks import NodeTask, Task
from pyg_batchgnn.train.times import link_times

_SAMPLED = EvaluationKind.SAMPLED
_RULES: Mapping[EmbeddingRule, Callable[[float], UpdateRule]] = {
    EmbeddingRule.ADAM: SparseAdam,
    EmbeddingRule.ADAGRAD: Adagrad,
    EmbeddingRule.SGD: SGD,
}


def _row_rate(config: TrainConfig) -> float:
    own = config.embedding.learning_rate
    return config.optimiser.learning_rate if own is None else own


#: Classes that take functions, other schedules, sparse gradients or several passes per step.
_REFUSED = ("LBFGS", "SparseAdam", "LambdaLR", "MultiplicativeLR", "SequentialLR", "ChainedScheduler")
#: Elements of which one thread takes the norm, so that its bits are always the same.
_PIECE = 1 << 14


def make_optimiser(config: TrainConfig, weights: Sequence[nn.Parameter], mode: str) -> tuple[Optimizer, Any]:
    chosen = config.optimiser
    decay = {"weight_decay": chosen.weight_decay} if chosen.weight_decay else {}
    # Fused, it reads and writes each number once: a fifth of the time on cora's 0.7 million.
    fused = {"fused": True} if chosen.kind.lower() in ("adam", "adamw", "sgd", "adagrad") else {}
    given: dict[str, Any] = {"lr": chosen.learning_rate, **decay, **fused}
    optimiser = _made("--optimizer", chosen.kind, Optimizer, weights, given, chosen.options)
    if chosen.schedule is None:
        return optimiser, None
    given = {"mode": mode} if chosen.schedule.lower() == "reducelronplateau" else {}
    if given and chosen.schedule_every == "step":
        raise TrainError("--lr-schedule-every step: ReduceLROnPlateau looks at validations; take epoch")
    of = (LRScheduler, optimiser, given, chosen.schedule_options)
    return optimiser, _made("--lr-schedule", chosen.schedule, *of)


def check_optimiser(config: TrainConfig) -> None:
    """Raises `TrainError` if the optimiser or its schedule cannot be made or cannot step."""
    weight = nn.Parameter(torch.zeros(2, 2))
    optimiser, schedule = make_optimiser(config, [weight], "max")
    weight.sum().backward()
    try:
        optimiser.step()
        if schedule is not None:
            schedule.step(*([0.0] if isinstance(schedule, ReduceLROnPlateau) else []))
    except Exception as error:  # of whatever kind torch has
        fact = f"--optimizer-options or --lr-schedule-options do not go with a step ({error})"
        raise TrainError(f"{fact}; correct them") from error


def _made(
    flag: str, name: str, base: Any, of: Any, given: dict[str, Any], texts: Sequence[str] | None
) -> Any:
    """Makes an optimiser or schedule of torch by its class name. ``of``: the parameters or the
    optimiser. ``given``: keyword arguments. ``texts``: more of them, as NAME=VALUE or NAME=A:B."""
    module: Any = torch.optim if base is Optimizer else lr_scheduler
    kinds = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, base)]
    names = {one.__name__: one for one in kinds if one is not base and one.__name__ not in _REFUSED}
    kind: Any = {one.lower(): names[one] for one in names}.get(name.lower())
    if kind is None:
        known = ", ".join(sorted(one for one in names if not one.startswith("_")))
        raise TrainError(f"{flag} is {name}, which is none that a run can use; choose among {known}")
    for text in texts or ():
        key, equals, value = (part.strip() for part in text.partition("="))
        values = [json_or_text(one) for one in value.split(":")]
        given[key] = values[0] if len(values) == 1 else tuple(values)
        if not equals:
            raise TrainError(f"{flag}-options: {text!r} is not of the form NAME=VALUE")
    try:
        return kind(of, **given)
    except Exception as error:  # of whatever kind torch has
        raise TrainError(f"{flag} {name}: {error}; correct {flag}-options") from error


@dataclass(frozen=True, kw_only=True)
class RunModel:
    """The model of a run, with its graph and its task."""

    config: TrainConfig
    dataset: Dataset
    predicted: PredictedNodes | PredictedLinks
    task: Task  # what the network learns to predict
    graph: RunGraph  # the whole graph, or this rank's part
    network: GraphNetwork  # the model, and how it is applied to minibatches

    def measured(self, split: str) -> Measured:
        network, graph, task, predicted = self.network, self.graph, self.task, self.predicted
        if isinstance(predicted, PredictedNodes):
            assert isinstance(task, NodeTask) and isinstance(network, RowNetwork), "of nodes or edges"
            nodes, is_sampled = predicted.split(split), self.config.sampling.evaluation is _SAMPLED
            loader = graph.evaluation_loader(nodes) if is_sampled else None
            return MeasuredNodes(network, graph, task, nodes, loader)
        assert isinstance(task, LinkTask) and isinstance(network, LinkNetwork), "of links"
        if not self.config.is_timed:
            return MeasuredLinks(network, graph, task, predicted.measured(split))
        return MeasuredTimedLinks.of(self.dataset, predicted, split, network, graph, task)


@dataclass(frozen=True, kw_only=True)
class TrainingJob(RunModel):
    replica: Replica  # the network as all ranks train it
    running: BatchNormStatistics  # the running statistics of BatchNorm layers
    optimiser: Optimizer  # of the network's parameters
    schedule: Any  # the learning-rate schedule; None keeps the rate
    rows: EmbeddingOptimizer | None  # updates the learned rows; None in a run without them
    train_loader: AnyLoader  # shuffled minibatches of the training split
    val: Measured  # the validation split
    test: Measured  # the test split
    sizes: dict[str, int]  # the number of nodes, edges or links of each split
    notes: list[str]  # lines to print before training starts

    def labels(self, batch: Any) -> Tensor:
        if isinstance(self.network, LinkNetwork):
            return self.network.labels(batch)
        return self.graph.labels(self.network, batch)

    def clip(self) -> None:
        most, weights = self.config.optimiser.clip_norm, list(self.network.model.parameters())
        if most is not None:
            grads = [one.grad.reshape(-1) for one in weights if one.grad is not None]
            pieces = [piece for one in grads for piece in one.split(_PIECE)]
            nn.utils.clip_grads_with_norm_(weights, most, nn.utils.get_total_norm(pieces))

    def move_rate(self, after: str, metric: float | None = None) -> None:
        """Steps the learning-rate schedule, if it steps after each ``after``: "step" or "epoch".
        ``metric``: the validation metric, without which ReduceLROnPlateau does not step."""
        follows = isinstance(self.schedule, ReduceLROnPlateau)
        is_due = after == self.config.optimiser.schedule_every and not (follows and metric is None)
        if self.schedule is None or not is_due:
            return
        try:
            self.schedule.step(*([metric] if follows else []))
        except ValueError as error:
            raise TrainError(f"{error}; give more with --lr-schedule-options") from error
        self.change_rate(self.config.optimiser.learning_rate)

    def change_rate(self, before: float) -> None:
        """Replaces the learning rate ``before`` by the configured one. The schedule, and with it
        the rate of learned rows, change in proportion."""
        now = self.config.optimiser.learning_rate
        for group in self.optimiser.param_groups if now != before else ():
            for name in {"lr", "initial_lr", "max_lr", "min_lr"} & set(group):
                group[name] = group[name] * now / before if before else now
            if self.schedule is not None:
                self.schedule.base_lrs = [group.get("initial_lr", now)]
        if self.rows is not None and self.schedule is not None and now:
            self.rows.set(lr=_row_rate(self.config) * self.optimiser.param_groups[0]["lr"] / now)


def build_job(config: TrainConfig, dataset: Dataset, ranks: Ranks) -> TrainingJob:
    task = task_of(dataset, config.task, config.model.hidden)
    predicted = predicted_of(dataset, config.task)
    sizes = {name: len(predicted.split(name)) for name in SPLITS}
    if not sizes["train"]:
        links = "give its data links, or hold edges out with hold_out=0.1 behind its name"
        remedy = links if task.unit == "links" else "give its data a training split"
        raise TrainError(f"{dataset.name} has no training {task.unit}; {remedy}")
    if config.run.patience is not None and not sizes["val"]:
        wanted = f"run.patience is {config.run.patience}"
        raise TrainError(f"{wanted}, but {dataset.name} has no validation {task.unit}")
    graph = graph_of(dataset, config, ranks)
    torch.manual_seed(config.run.seed)
    network = build_network(config, graph.inputs, task.columns, graph.embedding)
    parameters = [one for one in network.model.parameters() if one.requires_grad]
    model = RunModel(
        config=config, dataset=dataset, predicted=predicted, task=task, graph=graph, network=network
    )
    loader, notes = _training_loader(model, ranks)
    rows = None
    if graph.embedding is not None:
        rows = EmbeddingOptimizer(graph.embedding, _RULES[config.embedding.rule](_row_rate(config)))
    optimiser, schedule = make_optimiser(config, parameters, "min" if task.metric.is_error else "max")
    return TrainingJob(
        **vars(model),
        replica=Replica(network, ranks),
        running=BatchNormStatistics(network.model, ranks),
        optimiser=optimiser,
        schedule=schedule,
        rows=rows,
        train_loader=loader,
        val=model.measured("val"),
        test=model.measured("test"),
        sizes=sizes,
        notes=[*graph.notes, *notes],
    )


def _training_loader(model: RunModel, ranks: Ranks) -> tuple[AnyLoader, list[str]]:
    predicted, times, name = model.predicted, None, model.config.sampling.time_attr
    if isinstance(predicted, PredictedNodes):
        return model.graph.training_loader(predicted.split("train"), ranks.size)
    if name is not None:
        with ranks.one_error():
            times = link_times(model.dataset, predicted, "train", name)
    return model.graph.link_training_loader(predicted, ranks.size, times)
