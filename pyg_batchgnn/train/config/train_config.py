"""The whole configuration: its checks, its JSON form, presets, and the rules of resuming."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pyg_batchgnn.train.config.choices import (
    CacheKind,
    Decoder,
    EvaluationKind,
    MatrixProduct,
    ModelKind,
    RemoteKind,
    ReplacementKind,
    ScheduleKind,
    TaskKind,
    TaskLoss,
    shown,
)
from pyg_batchgnn.train.config.table import (
    FIELDS,
    EmbeddingConfig,
    ModelConfig,
    OptimiserConfig,
    RanksConfig,
    Resuming,
    RunConfig,
    SamplingConfig,
    TaskConfig,
)
from pyg_batchgnn.train.errors import TrainError

#: Fields for runs that predict links, with a cache, with times, and with a schedule.
_OF_LINKS = ("task.reverse_edge_type", "task.decoder", "task.negatives", "task.ranked_among")
OF_CACHE = ("sampling.evaluate_with_cache", "sampling.cache_folder")
_OF_TIMES = ("sampling.temporal_strategy", "sampling.freeze")
_OF_SCHEDULE = ("optimiser.schedule_options", "optimiser.schedule_every")


@dataclass(frozen=True)
class TrainConfig:
    """The configuration of a run, in sections, with defaults; `assign` changes fields. Raises
    `TrainError` if a value is out of bounds, or two values contradict each other."""

    model: ModelConfig = field(default_factory=ModelConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    run: RunConfig = field(default_factory=RunConfig)
    ranks: RanksConfig = field(default_factory=RanksConfig)

    def __post_init__(self) -> None:
        for path in FIELDS:
            _check_bounds(path, self.value(path))
        _check_fanout("sampling.fanout", self.sampling.fanout, self.model.num_layers)
        _check_fanout("sampling.test_fanout", self.test_fanout, self.model.num_layers)
        _check_numbers(self)
        for path, because in _conflicts(self):
            raise TrainError(f"{path} is {shown(self.value(path))}, which is not possible: {because}")
        if self.sampling.cache is CacheKind.OFF:
            refuse_given(self, OF_CACHE, "but there is no cache; add --cache aggregation")
        if self.task.kind is not TaskKind.LINKS:
            of_edge = () if self.task.kind.is_of_edges else ("task.edge_type",)
            refuse_given(self, (*of_edge, *_OF_LINKS), "but no links are predicted; add --task link")
        if not self.is_timed:
            refuse_given(self, _OF_TIMES, "but times are not looked at; add --time-attr")
        if self.optimiser.schedule is None:
            refuse_given(self, _OF_SCHEDULE, "but there is no schedule; add --lr-schedule")

    def value(self, path: str) -> Any:
        """Returns the value of a field. ``path``: section and name, as in "model.hidden"."""
        section, _, name = path.partition(".")
        return getattr(getattr(self, section), name)

    @property
    def test_fanout(self) -> tuple[int, ...]:
        """The evaluation fanout: 20 per hop; for GIN the training fanout (BatchGNN, appendix E)."""
        if self.sampling.test_fanout is not None:
            return self.sampling.test_fanout
        return self.sampling.fanout if self.model.kind is ModelKind.GIN else (20,) * self.model.num_layers

    @property
    def is_timed(self) -> bool:
        """True if neighbours are sampled by time."""
        return self.sampling.time_attr is not None

    @property
    def evaluates_with_cache(self) -> bool:
        """True if evaluation reads the cached aggregates, too."""
        sampling = self.sampling
        if sampling.cache is CacheKind.OFF or sampling.evaluate_with_cache is None:
            return sampling.cache is CacheKind.AGGREGATION and self.model.kind is ModelKind.GIN
        return sampling.evaluate_with_cache

    @property
    def test_batch_size(self) -> int:
        """Nodes per minibatch of evaluation."""
        return self.sampling.test_batch_size or self.sampling.batch_size


def refuse_given(config: TrainConfig, paths: Iterable[str], because: str) -> None:
    for path in paths:
        if (value := config.value(path)) != FIELDS[path].default:
            raise TrainError(f"{path} is {shown(value)}, {because}")


def _check_bounds(path: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    option = FIELDS[path].option
    wanted = f"at most {option.most}" if value > option.most else f"at least {option.least}"
    wanted += f" and below {option.below}" if option.below < math.inf else ""
    if not (option.least <= value <= option.most and value < option.below):
        raise TrainError(f"{path} must be {wanted}, got {value}")


def _check_fanout(field: str, fanout: tuple[int, ...], num_layers: int) -> None:
    shown = ",".join(map(str, fanout))
    if len(fanout) != num_layers:
        raise TrainError(
            f"{field} is {shown} ({len(fanout)} numbers), but the model has {num_layers} layers; "
            "give one number per layer, or change model.num_layers"
        )
    if any(k < -1 for k in fanout):
        raise TrainError(f"{field} is {shown}; numbers must be 0 or more, or -1 for all neighbours")


def _check_numbers(config: TrainConfig) -> None:
    model, task = config.model, config.task
    if model.kind is ModelKind.GAT and model.hidden % model.heads:
        raise TrainError(
            f"model.hidden is {model.hidden}, which {model.heads} heads cannot share; "
            "choose a multiple of model.heads"
        )
    if task.class_weights is not None and task.kind in (TaskKind.VALUES, TaskKind.EDGE_VALUES):
        raise TrainError(f"task.class_weights is given, but task.kind is {task.kind.value}: no classes")
    for weight in task.class_weights if isinstance(task.class_weights, tuple) else ():
        if not 0.0 < weight < math.inf:
            raise TrainError(f"task.class_weights must be positive numbers, got {weight}")
    among = task.metric.value.partition("@")[2] if task.metric is not None else ""
    if among and task.kind is TaskKind.LINKS and int(among) > task.ranked_among:
        fact = f"task.metric is {shown(task.metric)}, but task.ranked_among is {task.ranked_among}"
        raise TrainError(f"{fact}, so every link reaches it; give {among} or more")


def edges_unread(config: TrainConfig) -> str | None:
    """Returns the reason why a run cannot read features of edges; None if it can."""
    if config.model.kind is not ModelKind.GAT:
        return f"{config.model.kind.value} reads the features of nodes alone; choose --model gat"
    if config.ranks.remote is not RemoteKind.EXACT:
        return "historical embeddings do not fetch them; leave --remote out"
    return None


def _conflicts(config: TrainConfig) -> Iterator[tuple[str, str]]:
    """Yields (field, reason) for each field that contradicts another one."""
    model, task, ranks = config.model, config.task, config.ranks
    if model.edge_features == "read" and (because := edges_unread(config)) is not None:
        yield "model.edge_features", because
    is_cached, is_remote = config.sampling.cache is not CacheKind.OFF, ranks.remote is not RemoteKind.EXACT
    if is_cached:
        if model.kind is ModelKind.GAT:
            because = "GAT weighs neighbours by learned values, so nothing can be aggregated before training"
            yield "sampling.cache", because
        if model.num_layers == 1:
            yield "sampling.cache", "it replaces the last hop, and a model of one layer has no other hop"
    if is_remote:
        if model.kind is ModelKind.GCN:
            because = "GCN divides by degrees in the minibatch, so a row of one minibatch is none of another"
            yield "ranks.remote", f"{because}; choose --model sage, gin or gat"
        if ranks.schedule is not ScheduleKind.LOCAL:
            yield "ranks.remote", "a rank samples from the nodes that it owns; choose --schedule local"
        if ranks.hybrid:
            because = "it samples within each rank's part, so no rank needs all edges; leave --hybrid out"
            yield "ranks.remote", because
        if ranks.feature_cache is not None:
            because = "features of halo nodes come from its own cache; leave --feature-cache out"
            yield "ranks.remote", because
        if is_cached:
            yield "ranks.remote", "aggregates have no rows of halo nodes; leave --cache out"
    if config.sampling.labor is not None:
        if config.sampling.replacement is ReplacementKind.WITH:
            because = "a neighbour is picked once or not at all; choose --replacement without"
            yield "sampling.labor", because
        if config.is_timed:
            because = "each seed then has a subgraph of its own, which shares no neighbours; leave it out"
            yield "sampling.labor", because
        if is_remote:
            yield "sampling.labor", "historical embeddings sample within a rank's part; leave --remote out"
    if task.kind is TaskKind.LINKS and task.class_weights is not None:
        yield "task.kind", "task.class_weights is given; links have no classes"
    takes = task.loss in (None, TaskLoss.SOFTMAX) and task.decoder is Decoder.DOT and not config.is_timed
    if task.negatives == "in-batch" and not takes:
        yield "task.negatives", "it goes with --loss softmax, --decoder dot and without --time-attr"
    if task.kind.is_of_edges and config.sampling.evaluation is EvaluationKind.EXACT:
        yield "task.kind", "edges are computed from sampled neighbours; take --evaluation sampled"
    if task.kind is TaskKind.LINKS or task.kind.is_of_edges:
        if task.node_type is not None:
            yield "task.kind", f"task.node_type is {task.node_type}; name a relation with --edge-type"
        if is_cached:
            yield "task.kind", "aggregates hold the edges that a minibatch must not see; leave --cache out"
        if is_remote:
            yield "task.kind", "historical embeddings are for nodes; leave --remote out"
    if config.is_timed:
        if config.sampling.evaluation is EvaluationKind.EXACT:
            because = "exact evaluation reads all neighbours, later ones too; take --evaluation sampled"
            yield "sampling.time_attr", because
        if is_cached:
            because = "aggregates are over all neighbours, later ones too; leave --cache out"
            yield "sampling.time_attr", because
        if is_remote:
            yield "sampling.time_attr", "historical embeddings are of no time; leave --remote out"


T = TypeVar("T")

#: Ready configurations: experiments of the BatchGNN paper (appendix E, tables 2 and 3). The first
#: one is the default.
PRESETS: Mapping[str, TrainConfig] = MappingProxyType(
    {
        "batchgnn": TrainConfig(),
        "p3": TrainConfig(
            model=ModelConfig(num_layers=2, hidden=32),
            sampling=SamplingConfig(fanout=(25, 10), batch_size=1000),
        ),
        "distdglv2": TrainConfig(sampling=SamplingConfig(batch_size=1000)),
    }
)
DEFAULT_PRESET = "batchgnn"

#: Removed fields: the value that nearly every run had, and what other runs are told.
_REMOVED = {
    "model.layers": (
        "native",
        "PyG's layers are no longer trained by this command; train anew with native layers, or use "
        "pyg_batchgnn.accelerate for a model of PyG's in a script of your own",
    )
}


def config_to_dict(config: TrainConfig) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = {}
    for path in FIELDS:
        section, _, name = path.partition(".")
        result.setdefault(section, {})[name] = _plain(config.value(path))
    return result


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value


#: The meaning of files that were written before some fields existed.
_OF_FILES = TrainConfig(model=ModelConfig(edge_features="none"))


def config_from_dict(values: Mapping[str, Any], base: TrainConfig = _OF_FILES) -> TrainConfig:
    """Returns ``base`` with values of nested dicts. Raises `TrainError` that names the field."""
    return _merge(base, values, "")


def preset(name: str) -> TrainConfig:
    """Returns a ready configuration: "batchgnn", "p3" or "distdglv2". Raises `TrainError` for
    another name.

    >>> preset("p3").sampling.fanout
    (25, 10)
    """
    if name not in PRESETS:
        raise TrainError(f"unknown preset {name!r}; the presets are {', '.join(PRESETS)}")
    return PRESETS[name]


def read_config(path: Path) -> TrainConfig:
    """Returns the configuration in a ``config.json``. Raises `TrainError` or `DatasetError` if the
    file is missing, is not JSON, or does not hold a configuration."""
    from pyg_batchgnn.data.files import read_json  # loads torch, which --help does without

    if not path.is_file():
        raise TrainError(f"{path}: no such file; give the config.json of a run folder")
    values = read_json(path)
    try:
        return config_from_dict(values)
    except TrainError as error:
        raise TrainError(f"{path}: {error}") from None


def assign(config: TrainConfig, assignments: list[str]) -> TrainConfig:
    """Returns `config` with some fields set by texts.

    >>> assign(TrainConfig(), ["model.hidden=64", "sampling.fanout=10,10,5"]).model.hidden
    64

    ``assignments``: texts "section.field=value"; "none" is None. Raises `TrainError` if a text has
    no "=", names no field, or its value does not fit.
    """
    nested: dict[str, dict[str, Any]] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        section, dot, key = name.strip().partition(".")
        if not equals or not dot:
            raise TrainError(f"{text!r} is not of the form section.field=value, as in model.hidden=64")
        nested.setdefault(section, {})[key] = json_or_text(value.strip())
    return config_from_dict(nested, config)


def json_or_text(value: str) -> Any:
    for text in (value, f"[{value}]") if value else ():
        with contextlib.suppress(json.JSONDecodeError):
            return json.loads(text)
    return None if value.lower() == "none" else value


def _merge(base: T, values: Any, where: str) -> T:
    if not isinstance(values, Mapping):
        raise TrainError(f"{where.rstrip('.')} must be an object of fields, got {values!r}")
    hints = typing.get_type_hints(type(base))
    for name, (default, sentence) in _REMOVED.items():
        key = name.removeprefix(where)
        if name.startswith(where) and values.get(key, default) != default:
            raise TrainError(f"{name} is {values[key]}: {sentence}")
    values = {key: value for key, value in values.items() if f"{where}{key}" not in _REMOVED}
    unknown = [f"{where}{key}" for key in values if key not in hints]
    if unknown:
        known = ", ".join(f"{where}{name}" for name in hints)
        raise TrainError(f"unknown configuration key {', '.join(map(repr, unknown))}; known: {known}")
    changes: dict[str, Any] = {}
    for key, value in values.items():
        current = getattr(base, key)
        if dataclasses.is_dataclass(current):
            changes[key] = _merge(current, value, f"{where}{key}.")
        else:
            changes[key] = _convert(value, hints[key], f"{where}{key}")
    return dataclasses.replace(base, **changes)  # type: ignore[type-var]


def _convert(value: Any, hint: Any, where: str) -> Any:
    is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    options = typing.get_args(hint) if is_union else (hint,)
    for option in options:
        if option is type(None) and value is None:
            return None
        if isinstance(option, type) and issubclass(option, Enum):
            if value in [member.value for member in option]:
                return option(value)
        elif typing.get_origin(option) is typing.Literal:
            said = "none" if value is None else value
            if said in typing.get_args(option):
                return said
        elif typing.get_origin(option) is tuple:
            item = typing.get_args(option)[0]
            items = list(value) if isinstance(value, (list, tuple)) else [value]
            if item is str and isinstance(value, str):  # names with commas
                items = [name.strip() for name in value.split(",")]
            fit = [isinstance(one, str) and one if item is str else _is_number(one, item) for one in items]
            if items and all(fit):
                return tuple(map(item, items))
        elif option in (bool, str) and type(value) is option:
            return value
        elif option in (int, float) and _is_number(value, option):
            return option(value)
    raise TrainError(f"{where} must be {' or '.join(map(_name, options))}, got {value!r}")


def _is_number(value: Any, kind: type) -> bool:
    is_int = isinstance(value, int) and not isinstance(value, bool)
    return is_int or (kind is float and isinstance(value, float))


def _name(option: Any) -> str:
    if option is type(None):
        return "none"
    if isinstance(option, type) and issubclass(option, Enum):
        return "one of " + ", ".join(str(member.value) for member in option)
    if typing.get_origin(option) is tuple:
        items = {int: "whole numbers", str: "names"}.get(typing.get_args(option)[0], "numbers")
        return f"{items} separated by commas"
    if typing.get_origin(option) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(option)))
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    return names.get(option, str(option))


def refuse_changes(before: TrainConfig, after: TrainConfig, reason: str) -> None:
    allowed = {
        Resuming.STAYS: False,
        Resuming.MAY_CHANGE: True,
        Resuming.WITH_NATIVE_PRODUCT: is_thread_independent(before),
        Resuming.WITH_GLOBAL_SCHEDULE: before.ranks.schedule is ScheduleKind.GLOBAL,
    }
    for path, row in FIELDS.items():
        old, new = _plain(before.value(path)), _plain(after.value(path))
        if old != new and not allowed[row.option.resuming]:
            raise TrainError(f"{reason} {path} ({old!r} is now {new!r}); start a new run for that")


def agreed_fields(config: TrainConfig) -> dict[str, Any]:
    return {path: _plain(config.value(path)) for path, row in FIELDS.items() if not row.option.is_per_host}


def with_decided_fields(wanted: TrainConfig, written: TrainConfig) -> TrainConfig:
    """Returns `wanted` with the fields that it leaves open taken from `written`, the configuration
    of the run to resume, where they were decided."""
    decided: dict[str, dict[str, Any]] = {}
    for path, row in FIELDS.items():
        if row.option.is_decided and _plain(wanted.value(path)) in (None, "auto", "probe"):
            section, _, name = path.partition(".")
            decided.setdefault(section, {})[name] = _plain(written.value(path))
    return config_from_dict(decided, wanted)


def is_thread_independent(config: TrainConfig) -> bool:
    is_native = config.run.matrix_product is MatrixProduct.NATIVE
    return is_native and config.optimiser.kind.lower() != "adafactor"
