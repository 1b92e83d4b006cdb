"""A model together with the form of minibatch that it takes: what the trainer, evaluation and prediction use.

There are two, for PyG's layers and for native ones. All that differs between them is here.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from pyg_batchgnn.nn import models as native
from pyg_batchgnn.train.config import LayerSource, ModelConfig, ModelKind, Precision, TrainConfig
from pyg_batchgnn.train.model import pyg_layers as pyg
from pyg_batchgnn.train.model.temporary_modules import removed_templates


class NetworkOutput(Protocol):
    """What a model gives for the seeds of a minibatch."""

    @property
    def logits(self) -> Tensor:
        """[S, classes] float32."""

    @property
    def hidden(self) -> Tensor:
        """[S, hidden] input of the last layer."""


class GraphNetwork(ABC):
    """A model and how to apply it to a minibatch of its loader.

    Attributes:
        model: parameters, buffers and training mode.
        export: what the loader is to make for it.
    """

    export: ClassVar[Literal["pyg", "native"]]

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    @abstractmethod
    def outputs(self, batch: Any) -> NetworkOutput:
        """Forward pass."""

    @abstractmethod
    def seeds(self, batch: Any) -> Tensor:
        """[S] int64 ids of the seed nodes, whose rows the outputs are."""

    @abstractmethod
    def sampled(self, batch: Any) -> tuple[int, int]:
        """Nodes and edges of the minibatch."""

    @abstractmethod
    def fetched(self, batch: Any, name: str) -> Tensor:
        """[S, ...] rows of the seeds in an attribute that came with the minibatch."""

    def begin_step(self, seed: int, epoch: int, step: int, rank: int) -> None:  # noqa: B027  (native: nothing)
        """What must happen before a training step so that its dropout depends on these alone."""


class PygNetwork(GraphNetwork):
    """PyG's convolutions on prefixes of a PyG batch."""

    export = "pyg"
    model: pyg.PygModel

    def outputs(self, batch: Any) -> NetworkOutput:
        return self.model.outputs(batch.x, batch.edge_index, batch.num_sampled_nodes, batch.num_sampled_edges)

    def seeds(self, batch: Any) -> Tensor:
        seeds: Tensor = batch.n_id[: batch.batch_size]
        return seeds

    def sampled(self, batch: Any) -> tuple[int, int]:
        return int(sum(batch.num_sampled_nodes)), int(sum(batch.num_sampled_edges))

    def fetched(self, batch: Any, name: str) -> Tensor:
        rows: Tensor = batch[name][: batch.batch_size]
        return rows

    def begin_step(self, seed: int, epoch: int, step: int, rank: int) -> None:
        """Seeds torch's default generator, from which these layers draw."""
        digest = hashlib.blake2b(f"{seed}/{epoch}/{step}/{rank}".encode(), digest_size=8).digest()
        torch.manual_seed(int.from_bytes(digest, "little"))


class NativeNetwork(GraphNetwork):
    """Native layers on a `Minibatch`, whose seed, epoch and seed nodes key dropout.

    Args:
        model: reads the features of a minibatch by itself.
        precision: of activations and products; weights and logits are float32.
    """

    export = "native"
    model: native.NativeModel

    def __init__(self, model: native.NativeModel, precision: Precision) -> None:
        super().__init__(model)
        self.precision = precision

    def outputs(self, batch: Any) -> NetworkOutput:
        half = self.precision is Precision.BFLOAT16
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            return self.model.outputs(batch)

    def seeds(self, batch: Any) -> Tensor:
        seeds: Tensor = batch.node[: batch.batch_size]
        return seeds

    def sampled(self, batch: Any) -> tuple[int, int]:
        return batch.num_nodes, batch.num_edges

    def fetched(self, batch: Any, name: str) -> Tensor:
        rows: Tensor = batch.block[name][batch.row[: batch.batch_size].long()]
        return rows


def build_network(config: TrainConfig, features: int, classes: int) -> GraphNetwork:
    """A network with fresh weights from torch's default generator; the same ones with either layers."""
    with removed_templates():
        if config.model.layers is LayerSource.PYG:
            return PygNetwork(_pyg_model(config.model, features, classes))
        return NativeNetwork(_native_model(config.model, features, classes), config.run.precision)


def _pyg_model(config: ModelConfig, features: int, classes: int) -> pyg.PygModel:
    shape = (features, config.hidden, classes, config.num_layers)
    if config.kind is ModelKind.SAGE:
        return pyg.PygSAGE(*shape, dropout=config.dropout)
    if config.kind is ModelKind.GCN:
        return pyg.PygGCN(*shape, dropout=config.dropout)
    if config.kind is ModelKind.GIN:
        return pyg.PygGIN(*shape)
    return pyg.PygGAT(*shape, dropout=config.dropout, heads=config.heads)


def _native_model(config: ModelConfig, features: int, classes: int) -> native.NativeModel:
    """GIN's last layer gives plain logits, as with PyG's layers (see `pyg.PygGIN`)."""
    shape = (features, config.hidden, classes, config.num_layers)
    if config.kind is ModelKind.SAGE:
        return native.SAGE(*shape, dropout=config.dropout)
    if config.kind is ModelKind.GCN:
        return native.GCN(*shape, dropout=config.dropout)
    if config.kind is ModelKind.GIN:
        return native.GIN(*shape, norm_last=False)
    return native.GAT(*shape, dropout=config.dropout, heads=config.heads)
