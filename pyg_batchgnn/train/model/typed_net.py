"""A model of several node types with its inputs: projections of features, and learned rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import Any

import torch
from torch import Tensor, nn

from pyg_batchgnn.nn import (
    HeteroDictLinear,
    ModelOutput,
    NativeModel,
    OwnedNodes,
    Rows,
    TypedModel,
    features_by_type,
    to_hetero,
)
from pyg_batchgnn.train.errors import as_train_error
from pyg_batchgnn.train.model.inputs import ModelInputs


class TypedNet(nn.Module):
    """A model with a convolution per relation, on inputs of one width.

    The features of each type, with its learned rows behind them, are projected to the model's
    columns. Learned rows of a type without features are read as they are, or projected likewise if
    they have another number of columns.

    Parameters that the predicted nodes do not depend on are frozen: those of relations that cannot
    reach them in the layers that are left.

    Args:
        inputs: what the model reads.
        model: the model to make a typed one of; its input has the hidden columns.

    Raises:
        TrainError: the model cannot be used with these types and relations.

    Attributes:
        project: the projections.
        layers: the typed model.
    """

    def __init__(self, inputs: ModelInputs, model: NativeModel) -> None:
        super().__init__()
        schema, hidden = inputs.schema, model.in_channels
        self.project = HeteroDictLinear(inputs.projected(hidden), hidden)
        with as_train_error(ValueError):
            self.layers: TypedModel = to_hetero(model, (schema.node_types, schema.relations))
        self._freeze_unread(inputs.output_types)

    def outputs(self, batch: Any, learned: Mapping[str, Tensor]) -> dict[str, ModelOutput]:
        """Returns the outputs of the seed nodes of a minibatch, by node type.

        Args:
            batch: the minibatch.
            learned: [N_t, F_t] by node type, the learned rows of its nodes.
        """
        return self.layers.outputs(batch, x=self.inputs(features_by_type(batch), learned))

    def infer(self, nodes: OwnedNodes, node_types: Collection[str]) -> dict[str, ModelOutput]:
        """Returns the outputs of the nodes of some types that a process owns; collective.

        Args:
            nodes: all nodes, whose features have the learned rows behind them.
            node_types: the types that are wanted.
        """
        return self.layers.infer(nodes, node_types, self._projected)

    def infer_hidden(
        self, nodes: OwnedNodes, node_types: Collection[str], hidden_types: Collection[str]
    ) -> dict[str, Tensor]:
        """Returns the input of the last layer, by type, of the nodes that a process owns;
        collective.

        Args:
            nodes: all nodes, whose features have the learned rows behind them.
            node_types: the types that the last layer would compute.
            hidden_types: the types that are wanted, of those that it reads.
        """
        return self.layers.infer_hidden(nodes, node_types, self._projected, hidden_types=hidden_types)

    def read_by_last_layer(self, node_type: str) -> set[str]:
        """Returns the node types whose rows the last layer reads for the nodes of a type."""
        return {source for source, _, target in self.layers.relations if target == node_type} | {node_type}

    def _projected(self, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the input of the first layer."""
        return {**rows, **self.project(rows)}

    def inputs(self, features: Mapping[str, Rows], learned: Mapping[str, Tensor]) -> dict[str, Rows]:
        """Returns the input of the first layer, [N_t, hidden] by node type.

        Args:
            features: [N_t, F_t] by node type; types without are absent.
            learned: the learned rows of the same nodes, likewise.
        """
        rows = {name: _joined(x, learned.get(name)) for name, x in features.items()}
        rows |= {name: x for name, x in learned.items() if name not in features}
        return {**rows, **self.project(rows)}

    def _freeze_unread(self, types: Set[str]) -> None:
        """Freezes the parameters that the rows of some types do not depend on."""
        read = set(types)
        for index in reversed(range(self.layers.num_layers)):
            for relation in self.layers.relations:
                self.layers.conv(index, relation).requires_grad_(relation[2] in read)
            for name in self.layers.node_types:
                if (norm := self.layers.norm(index, name)) is not None:
                    norm.requires_grad_(name in read)
            read |= {source for source, _, target in self.layers.relations if target in read}
        for name, part in self.project.lins.items():
            part.requires_grad_(name in read)


def _joined(x: Rows, learned: Tensor | None) -> Rows:
    """Returns features with learned rows behind them."""
    if learned is None:
        return x
    values = x if isinstance(x, Tensor) else x.gather()
    return torch.cat([values, learned.to(values.dtype)], dim=1)
