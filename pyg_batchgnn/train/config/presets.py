"""The ready configurations: experiments of the BatchGNN paper (appendix E, tables 2 and 3)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyg_batchgnn.sample import Replacement
from pyg_batchgnn.train.config.choices import LastMinibatch
from pyg_batchgnn.train.config.sections import ModelConfig, SamplingConfig
from pyg_batchgnn.train.config.train_config import TrainConfig
from pyg_batchgnn.train.errors import TrainError

PRESETS: Mapping[str, TrainConfig] = MappingProxyType(
    {
        "batchgnn": TrainConfig(
            model=ModelConfig(num_layers=3, hidden=256, dropout=0.5),
            sampling=SamplingConfig(
                fanout=(15, 10, 5),
                replacement=Replacement.WITH,
                batch_size=1024,
                last_batch=LastMinibatch.DROP,
            ),
        ),
        "p3": TrainConfig(
            model=ModelConfig(num_layers=2, hidden=32, dropout=0.5),
            sampling=SamplingConfig(
                fanout=(25, 10),
                replacement=Replacement.WITH,
                batch_size=1000,
                last_batch=LastMinibatch.DROP,
            ),
        ),
        "distdglv2": TrainConfig(
            model=ModelConfig(num_layers=3, hidden=256, dropout=0.5),
            sampling=SamplingConfig(
                fanout=(15, 10, 5),
                replacement=Replacement.WITH,
                batch_size=1000,
                last_batch=LastMinibatch.DROP,
            ),
        ),
    }
)
DEFAULT_PRESET = "batchgnn"


def preset(name: str) -> TrainConfig:
    """Returns the preset of that name.

    Raises:
        TrainError: there is no such preset.
    """
    if name not in PRESETS:
        raise TrainError(f"unknown preset {name!r}; the presets are {', '.join(PRESETS)}")
    return PRESETS[name]
