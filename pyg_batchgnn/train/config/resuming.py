"""The fields that may change when a run is resumed, and those that may differ between ranks."""

from __future__ import annotations

from typing import Any

from pyg_batchgnn.train.config.choices import MatrixProduct, ScheduleKind
from pyg_batchgnn.train.config.json_values import config_from_dict, flat_fields
from pyg_batchgnn.train.config.train_config import TrainConfig
from pyg_batchgnn.train.errors import TrainError

#: The length of the run and its resources. They do not change the results of any epoch.
_RESUMABLE = frozenset(
    {
        "run.epochs",
        "run.patience",
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
#: The fields that may differ between hosts: the path of the data set and the number of cores.
_PER_HOST = frozenset({"run.dataset", "run.threads"})
#: The fields that are decided when a run starts if they are None, "auto" or "probe".
_DECIDED = ("run.dataset", "run.threads", "run.matrix_product")


def refuse_changes(before: TrainConfig, after: TrainConfig, reason: str) -> None:
    """Refuses changes that would give another run.

    Raises:
        TrainError: there is one. The message starts with `reason` and names the field.
    """
    old, new = flat_fields(before), flat_fields(after)
    resumable = _resumable(before)
    for name, value in new.items():
        if value != old[name] and name not in resumable:
            raise TrainError(f"{reason} {name} ({old[name]!r} is now {value!r}); start a new run for that")


def agreed_fields(config: TrainConfig) -> dict[str, Any]:
    """Returns the fields that must be the same on every rank."""
    return {name: value for name, value in flat_fields(config).items() if name not in _PER_HOST}


def with_decided_fields(wanted: TrainConfig, written: TrainConfig) -> TrainConfig:
    """Returns `wanted`, with the fields that it leaves open taken from `written`.

    Args:
        wanted: as the user gave it.
        written: of the run that is resumed; its open fields were decided when it started.
    """
    asked, found = flat_fields(wanted), flat_fields(written)
    decided: dict[str, dict[str, Any]] = {}
    for name in _DECIDED:
        section, _, key = name.partition(".")
        if asked[name] in (None, "auto", "probe"):
            decided.setdefault(section, {})[key] = found[name]
    return config_from_dict(decided, wanted)


def is_thread_independent(config: TrainConfig) -> bool:
    """Returns whether the results are the same, bit for bit, with any number of threads.

    They are with the native matrix product, and are not with torch's.
    """
    return config.run.matrix_product is MatrixProduct.NATIVE


def _resumable(config: TrainConfig) -> frozenset[str]:
    """Returns the fields that may change.

    The partition decides which rank trains on a node, unless the schedule is global. So it must
    stay.
    """
    any_owner = config.ranks.schedule is ScheduleKind.GLOBAL
    return (
        _RESUMABLE
        | (frozenset({"run.threads"}) if is_thread_independent(config) else frozenset())
        | (frozenset({"ranks.partition"}) if any_owner else frozenset())
    )
