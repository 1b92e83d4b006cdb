"""The models that a configuration can ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyg_batchgnn.embed import Embedding
from pyg_batchgnn.nn import models as native
from pyg_batchgnn.train.config import ModelConfig, ModelKind, TrainConfig
from pyg_batchgnn.train.model.inputs import ModelInputs
from pyg_batchgnn.train.model.link_network import LinkNetwork, build_decoder
from pyg_batchgnn.train.model.network import GraphNetwork, NativeNetwork, TypedNetwork
from pyg_batchgnn.train.model.pyg_temporary_files import pyg_files_removed
from pyg_batchgnn.train.model.typed_net import TypedNet

_NATIVE: Mapping[ModelKind, Callable[..., native.NativeModel]] = {
    ModelKind.SAGE: native.SAGE,
    ModelKind.GCN: native.GCN,
    ModelKind.GIN: native.GIN,
    ModelKind.GAT: native.GAT,
}


def build_network(
    config: TrainConfig, inputs: ModelInputs, columns: int, embedding: Embedding | None = None
) -> GraphNetwork:
    """Returns a network with new weights from torch's default generator.

    Args:
        config: of the run.
        inputs: what the model reads of the nodes of each type.
        columns: of the output.
        embedding: the learned rows, if the model reads some.

    Raises:
        TrainError: the model cannot be used with these types and relations.
    """
    model, precision = config.model, config.run.precision
    shape = (inputs.first_columns(model.hidden), model.hidden, model.num_layers, columns)
    options = _options(model) if inputs.is_homogeneous else _typed_options(model)
    with pyg_files_removed():
        native_model = _NATIVE[model.kind](*shape, **options)
        if inputs.is_homogeneous:
            network = NativeNetwork(native_model, precision, inputs.node_type)
        else:
            network = TypedNetwork(TypedNet(inputs, native_model), precision, inputs.node_type, embedding)
        if inputs.link is None:
            return network
        return LinkNetwork(network, build_decoder(config.task.decoder, columns), inputs.link)


def _options(model: ModelConfig) -> dict[str, Any]:
    """Returns the options that a model of this kind has beside its shape."""
    if model.kind is ModelKind.GIN:
        # As BatchGNN sets it up (appendix E).
        return {"norm": "batch_norm", "inner_channels": model.hidden}
    if model.kind is ModelKind.GAT:
        return {"dropout": model.dropout, "heads": model.heads, "attention_dropout": 0.0}
    return {"dropout": model.dropout}


def _typed_options(model: ModelConfig) -> dict[str, Any]:
    """Returns the options of a model that gets a convolution per relation.

    Attention between two types has no loops, so a node reads its own row by a product.
    """
    attention = {"add_self_loops": False, "residual": True} if model.kind is ModelKind.GAT else {}
    return {**_options(model), **attention}
