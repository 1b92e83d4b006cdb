"""What must stay as it is when a run is resumed, and what must be equal on all ranks."""

from __future__ import annotations

from typing import Any

from pyg_batchgnn.train.config.fields import LayerSource, MatrixProduct, ScheduleKind, TrainConfig
from pyg_batchgnn.train.config.json_values import config_from_dict, flat_fields
from pyg_batchgnn.train.errors import TrainError

#: Length and resources, which leave the results of each epoch alone.
_RESUMABLE = frozenset(
    {
        "run.epochs",
        "run.dataset",
        "run.malloc",
        "run.checkpoint_seconds",
        "sampling.macrobatch_size",
        "sampling.fetch_size",
        "sampling.memory_budget",
        "sampling.prefetch",
        "sampling.cache_folder",
        "ranks.hybrid",
        "ranks.feature_cache",
        "ranks.backend",
        "ranks.timeout",
    }
)
#: What may differ between hosts: where the data set lies and how many cores there are.
_OF_A_HOST = frozenset({"run.dataset", "run.threads"})
#: Decided when a run starts, where it is None or "auto" until then.
_DECIDED = ("run.dataset", "run.threads", "run.matrix_product")


def refuse_changes(before: TrainConfig, after: TrainConfig, reason: str) -> None:
    """Refuse a change that would give another run.

    Raises:
        TrainError: it begins with `reason` and names the field.
    """
    old, new = flat_fields(before), flat_fields(after)
    resumable = _resumable(before)
    for name, value in new.items():
        if value != old[name] and name not in resumable:
            raise TrainError(f"{reason} {name} ({old[name]!r} is now {value!r}); start a new run for that")


def agreed(config: TrainConfig) -> dict[str, Any]:
    """The fields that every rank must have been given alike."""
    return {name: value for name, value in flat_fields(config).items() if name not in _OF_A_HOST}


def with_decided(wanted: TrainConfig, written: TrainConfig) -> TrainConfig:
    """`wanted`, what it leaves open as it was decided when the run that has `written` was started."""
    asked, found = flat_fields(wanted), flat_fields(written)
    decided: dict[str, dict[str, Any]] = {}
    for name in _DECIDED:
        section, _, key = name.partition(".")
        if asked[name] in (None, "auto"):
            decided.setdefault(section, {})[key] = found[name]
    return config_from_dict(decided, wanted)


def any_threads(config: TrainConfig) -> bool:
    """Whether the number of threads changes no bit of a result: it does with PyTorch's products."""
    own_products = config.run.matrix_product is MatrixProduct.NATIVE
    return config.model.layers is LayerSource.NATIVE and own_products


def _resumable(config: TrainConfig) -> frozenset[str]:
    """Fields that may change. Who owns a node decides who trains it, but with the global schedule."""
    any_owner = config.ranks.schedule is ScheduleKind.GLOBAL
    return (
        _RESUMABLE
        | (frozenset({"run.threads"}) if any_threads(config) else frozenset())
        | (frozenset({"ranks.partition"}) if any_owner else frozenset())
    )
