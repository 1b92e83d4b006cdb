"""A model and the way it is applied to a minibatch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from pyg_batchgnn.embed import Embedding
from pyg_batchgnn.nn import OwnedNodes
from pyg_batchgnn.nn.models import NativeModel
from pyg_batchgnn.train.config import Precision
from pyg_batchgnn.train.model.typed_net import TypedNet


class NetworkOutput(Protocol):
    """The output of a model for the seed nodes of a minibatch."""

    @property
    def logits(self) -> Tensor:
        """[S, classes] float32."""

    @property
    def hidden(self) -> Tensor:
        """[S, hidden], the input of the last layer."""


class GraphNetwork(ABC):
    """A graph neural network and the way it is applied to a minibatch of its loader.

    Attributes:
        model: holds parameters, buffers and the training mode.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    @abstractmethod
    def outputs(self, batch: Any) -> NetworkOutput:
        """Runs the forward pass."""

    @abstractmethod
    def infer(self, nodes: OwnedNodes) -> NetworkOutput:
        """Returns the output of all nodes that this rank owns, from all their neighbours;
        collective.
        """

    @property
    @abstractmethod
    def embedded_types(self) -> list[str]:
        """The node types that the model has embeddings of."""

    @abstractmethod
    def infer_embeddings(self, nodes: OwnedNodes, node_types: Collection[str]) -> dict[str, Tensor]:
        """Returns the embeddings, [n, columns] by type, of all nodes of some types that this rank
        owns; collective.

        They are the input of the last layer. Those of a network that scores pairs are its output,
        which the decoder reads.
        """

    @abstractmethod
    def seeds(self, batch: Any) -> Tensor:
        """Returns [S] int64, the ids of the seed nodes. Row i of the output belongs to seed node
        i."""

    @abstractmethod
    def sampled(self, batch: Any) -> tuple[int, int]:
        """Returns the numbers of nodes and edges of the minibatch."""

    @abstractmethod
    def fetched(self, batch: Any, name: str) -> Tensor:
        """Returns [S, ...], the seed nodes' rows of an attribute that came with the minibatch."""

    def leave_out(self, batch: Any) -> None:  # noqa: B027
        """Takes part in what is collective in `outputs`, for a minibatch without seed nodes."""


class NativeNetwork(GraphNetwork):
    """The native layers on a `Minibatch`. Its seed, epoch and key determine dropout.

    Args:
        model: reads the features of a minibatch itself.
        precision: of activations and products. Weights and logits are float32.
        node_type: the type of the seed nodes.
    """

    model: NativeModel

    def __init__(self, model: nn.Module, precision: Precision, node_type: str) -> None:
        super().__init__(model)
        self.precision = precision
        self.node_type = node_type

    def outputs(self, batch: Any) -> NetworkOutput:
        with self._autocast():
            return self.model.outputs(batch)

    def rows(self, batch: Any) -> dict[str, Tensor]:
        """Returns the output for the seed nodes of a minibatch, by node type."""
        return {self.node_type: self.outputs(batch).logits}

    def infer(self, nodes: OwnedNodes) -> NetworkOutput:
        with self._autocast():
            return self.model.infer(nodes)

    def infer_rows(self, nodes: OwnedNodes, node_types: Collection[str]) -> dict[str, Tensor]:
        """Returns the output of the nodes of some types that this rank owns; collective."""
        return {name: self.infer(nodes).logits for name in node_types}

    @property
    def embedded_types(self) -> list[str]:
        return [self.node_type]

    def infer_embeddings(self, nodes: OwnedNodes, node_types: Collection[str]) -> dict[str, Tensor]:
        return {name: self.infer(nodes).hidden for name in node_types}

    def _autocast(self) -> torch.autocast:
        half = self.precision is Precision.BFLOAT16
        return torch.autocast("cpu", torch.bfloat16, enabled=half)

    def seeds(self, batch: Any) -> Tensor:
        nodes = batch.nodes_of(self.node_type)
        seeds: Tensor = nodes.node[: nodes.nodes_per_hop[0]]
        return seeds

    def sampled(self, batch: Any) -> tuple[int, int]:
        return batch.num_nodes, batch.num_edges

    def fetched(self, batch: Any, name: str) -> Tensor:
        rows: Tensor = batch.attributes_of(self.node_type).gather(name, len(self.seeds(batch)))
        return rows


class TypedNetwork(NativeNetwork):
    """The native layers on a `Minibatch` of named node types, or with learned rows.

    Args:
        model: reads features and learned rows.
        precision: of activations and products. Weights and logits are float32.
        node_type: the type of the seed nodes.
        embedding: the learned rows; None without.
    """

    model: TypedNet  # type: ignore[assignment]

    def __init__(
        self, model: TypedNet, precision: Precision, node_type: str, embedding: Embedding | None
    ) -> None:
        super().__init__(model, precision, node_type)
        self._embedding = embedding

    def outputs(self, batch: Any) -> NetworkOutput:
        learned = self._learned(batch)
        with self._autocast():
            return self.model.outputs(batch, learned)[self.node_type]

    def rows(self, batch: Any) -> dict[str, Tensor]:
        learned = self._learned(batch)
        with self._autocast():
            return {name: one.logits for name, one in self.model.outputs(batch, learned).items()}

    def leave_out(self, batch: Any) -> None:
        """Takes part in the exchange of learned rows, of which an empty minibatch reads none."""
        self._learned(batch)

    def infer(self, nodes: OwnedNodes) -> NetworkOutput:
        with self._autocast():
            return self.model.infer(nodes, [self.node_type])[self.node_type]

    def infer_rows(self, nodes: OwnedNodes, node_types: Collection[str]) -> dict[str, Tensor]:
        with self._autocast():
            return {name: one.logits for name, one in self.model.infer(nodes, node_types).items()}

    @property
    def embedded_types(self) -> list[str]:
        return sorted(self.model.read_by_last_layer(self.node_type))

    def infer_embeddings(self, nodes: OwnedNodes, node_types: Collection[str]) -> dict[str, Tensor]:
        with self._autocast():
            return self.model.infer_hidden(nodes, [self.node_type], node_types)

    def _learned(self, batch: Any) -> dict[str, Tensor]:
        """Returns the learned rows of a minibatch's nodes; collective."""
        return {} if self._embedding is None else self._embedding(batch)
