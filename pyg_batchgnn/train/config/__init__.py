"""The configuration of a run: its fields, their checks, presets, and how it is written as JSON."""

from pyg_batchgnn.train.config.fields import (
    POLICIES,
    CacheKind,
    LastBatch,
    LayerSource,
    Malloc,
    MatrixProduct,
    ModelConfig,
    ModelKind,
    Precision,
    RanksConfig,
    RunConfig,
    SamplingConfig,
    Schedule,
    TrainConfig,
)
from pyg_batchgnn.train.config.json_values import assign, to_dict
from pyg_batchgnn.train.config.presets import DEFAULT_PRESET, PRESETS, preset
from pyg_batchgnn.train.config.resuming import agreed, any_threads, refuse_changes, with_decided

__all__ = [
    "DEFAULT_PRESET",
    "POLICIES",
    "PRESETS",
    "CacheKind",
    "LastBatch",
    "LayerSource",
    "Malloc",
    "MatrixProduct",
    "ModelConfig",
    "ModelKind",
    "Precision",
    "RanksConfig",
    "RunConfig",
    "SamplingConfig",
    "Schedule",
    "TrainConfig",
    "agreed",
    "any_threads",
    "assign",
    "preset",
    "refuse_changes",
    "to_dict",
    "with_decided",
]
