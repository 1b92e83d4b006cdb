"""The configuration of a run: its fields, their checks, presets, and its form as JSON."""

from pyg_batchgnn.train.config.choices import (
    POLICIES,
    CacheKind,
    EvaluationKind,
    LastMinibatch,
    LayerSource,
    Malloc,
    MatrixProduct,
    Metric,
    ModelKind,
    Precision,
    RemoteKind,
    ScheduleKind,
    TaskKind,
    ValueLoss,
)
from pyg_batchgnn.train.config.json_values import (
    assign,
    config_from_dict,
    config_to_dict,
    flat_fields,
    read_config,
)
from pyg_batchgnn.train.config.presets import DEFAULT_PRESET, PRESETS, preset
from pyg_batchgnn.train.config.resuming import (
    agreed_fields,
    is_thread_independent,
    refuse_changes,
    with_decided_fields,
)
from pyg_batchgnn.train.config.sections import (
    ModelConfig,
    OptimiserConfig,
    RanksConfig,
    RunConfig,
    SamplingConfig,
    TaskConfig,
)
from pyg_batchgnn.train.config.train_config import TrainConfig

__all__ = [
    "DEFAULT_PRESET",
    "POLICIES",
    "PRESETS",
    "CacheKind",
    "EvaluationKind",
    "LastMinibatch",
    "LayerSource",
    "Malloc",
    "MatrixProduct",
    "Metric",
    "ModelConfig",
    "ModelKind",
    "OptimiserConfig",
    "Precision",
    "RanksConfig",
    "RemoteKind",
    "RunConfig",
    "SamplingConfig",
    "ScheduleKind",
    "TaskConfig",
    "TaskKind",
    "TrainConfig",
    "ValueLoss",
    "agreed_fields",
    "assign",
    "config_from_dict",
    "config_to_dict",
    "flat_fields",
    "is_thread_independent",
    "preset",
    "read_config",
    "refuse_changes",
    "with_decided_fields",
]
