"""The models that a configuration can ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyg_batchgnn.nn import models as native
from pyg_batchgnn.train.config import LayerSource, ModelConfig, ModelKind, TrainConfig
from pyg_batchgnn.train.model import pyg_layers as pyg
from pyg_batchgnn.train.model.network import GraphNetwork, NativeNetwork, PygNetwork
from pyg_batchgnn.train.model.pyg_temporary_files import pyg_files_removed

_PYG: Mapping[ModelKind, Callable[..., pyg.PygModel]] = {
    ModelKind.SAGE: pyg.PygSAGE,
    ModelKind.GCN: pyg.PygGCN,
    ModelKind.GIN: pyg.PygGIN,
    ModelKind.GAT: pyg.PygGAT,
}
_NATIVE: Mapping[ModelKind, Callable[..., native.NativeModel]] = {
    ModelKind.SAGE: native.SAGE,
    ModelKind.GCN: native.GCN,
    ModelKind.GIN: native.GIN,
    ModelKind.GAT: native.GAT,
}


def build_network(config: TrainConfig, features: int, classes: int) -> GraphNetwork:
    """Returns a network with new weights from torch's default generator.

    The weights are the same for native and for PyG's layers.

    Args:
        config: of the run.
        features: columns of the features.
        classes: the number of classes.
    """
    model = config.model
    shape = (features, model.hidden, model.num_layers, classes)
    with pyg_files_removed():
        if model.layers is LayerSource.PYG:
            return PygNetwork(_PYG[model.kind](*shape, **_options(model)))
        return NativeNetwork(_NATIVE[model.kind](*shape, **_options(model)), config.run.precision)


def _options(model: ModelConfig) -> dict[str, Any]:
    """Returns the options that a model of this kind has beside its shape."""
    if model.kind is ModelKind.GIN:
        # As BatchGNN sets it up (appendix E).
        return {"norm": "batch_norm", "inner_channels": model.hidden}
    if model.kind is ModelKind.GAT:
        return {"dropout": model.dropout, "heads": model.heads, "attention_dropout": 0.0}
    return {"dropout": model.dropout}
