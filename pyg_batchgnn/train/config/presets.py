"""Ready configurations: the experiments of the BatchGNN paper (appendix E and tables 2 and 3)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyg_batchgnn.sample import Replacement
from pyg_batchgnn.train.config.fields import LastMinibatch, ModelConfig, SamplingConfig, TrainConfig
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
    """The configuration called `name`.

    Raises:
        TrainError: there is none of that name.
    """
    if name not in PRESETS:
        raise TrainError(f"unknown preset {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]
