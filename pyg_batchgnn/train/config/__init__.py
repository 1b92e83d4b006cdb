"""The configuration of a run: its fields, their checks, presets, and how it is written as JSON."""

from pyg_batchgnn.train.config.fields import (
    POLICIES,
    CacheKind,
    LastMinibatch,
    LayerSource,
    Malloc,
    MatrixProduct,
    ModelConfig,
    ModelKind,
    Precision,
    RanksConfig,
    RunConfig,
    SamplingConfig,
    ScheduleKind,
    TrainConfig,
)
from pyg_batchgnn.train.config.json_values import (
    assign,
    config_from_dict,
    config_to_dict,
    flat_fields,
    read_config,
)
from pyg_batchgnn.train.config.presets import DEFAULT_PRESET, PRESETS, preset
from pyg_batchgnn.train.config.resuming import agreed, any_threads, refuse_changes, with_decided

__all__ = [
    "DEFAULT_PRESET",
    "POLICIES",
    "PRESETS",
    "CacheKind",
    "LastMinibatch",
    "LayerSource",
    "Malloc",
    "MatrixProduct",
    "ModelConfig",
    "ModelKind",
    "Precision",
    "RanksConfig",
    "RunConfig",
    "SamplingConfig",
    "ScheduleKind",
    "TrainConfig",
    "agreed",
    "any_threads",
    "assign",
    "config_from_dict",
    "config_to_dict",
    "flat_fields",
    "preset",
    "read_config",
    "refuse_changes",
    "with_decided",
]
