"""The input of the first layer of a typed model, for each of the ways to call it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from pyg_batchgnn.nn.features import features_by_type
from pyg_batchgnn.nn.inputs import Rows
from pyg_batchgnn.nn.sampled import Relation, TypedBatch, is_typed, num_sampled_layers
from pyg_batchgnn.nn.typed_aggregates import aggregates_by_relation


def typed_inputs(
    source: TypedBatch | Mapping[str, Rows],
    edge_index: Mapping[Relation, Tensor] | None,
    x: Mapping[str, Rows] | None,
    relations: Sequence[Relation],
    num_layers: int,
) -> tuple[Mapping[Any, Any], TypedBatch | Mapping[Relation, Tensor]]:
    """Returns the features by type, or aggregates by relation, and the edges.

    Args:
        source, edge_index, x: as in `TypedModel.forward`.
        relations: those of the model.
        num_layers: the number of its layers.

    Raises:
        KeyError: a type has no features.
        TypeError, ValueError: the arguments do not go together.
    """
    if not is_typed(source):
        if not isinstance(source, Mapping) or edge_index is None or x is not None:
            raise TypeError(
                "call model(minibatch), model(minibatch, x=x_dict) or model(x_dict, edge_index_dict); a "
                "loader with export='native' yields minibatches"
            )
        return source, {one: edge_index[one] for one in relations if one in edge_index}
    if edge_index is not None:
        raise TypeError("a minibatch has its own edges; give its features as model(minibatch, x=x_dict)")
    hops = num_sampled_layers(source)
    if hops == num_layers - 1 and (known := aggregates_by_relation(source, x)):
        return known, source
    if hops not in (None, num_layers):
        raise ValueError(
            f"a model of {num_layers} layers needs minibatches of {num_layers} hops, but this one has "
            f"{hops}; give the loader {num_layers} entries in num_neighbors"
        )
    return features_by_type(source) if x is None else x, source
