"""The features of a minibatch's nodes, read in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from pyg_batchgnn.nn.inputs import Rows
from pyg_batchgnn.nn.rows import RowView
from pyg_batchgnn.nn.sampled import SampledBatch, TypedBatch


def features_of(minibatch: SampledBatch) -> RowView:
    """Returns the features ``x`` of a minibatch of one node type, read in place.

    Raises:
        ValueError: the minibatch carries no features.
    """
    row: Tensor | None = getattr(minibatch, "row", None)
    block: Mapping[str, Tensor] = getattr(minibatch, "block", {})
    if row is not None and "x" in block:
        return RowView(block["x"], row)
    raise ValueError(
        "the minibatch carries no features 'x'; give them to the loader's data, or to the model: "
        "model(minibatch, x=features_of_its_nodes)"
    )


def features_by_type(minibatch: TypedBatch) -> dict[str, Rows]:
    """Returns the features ``x`` of a minibatch by node type, read in place.

    Types without features are left out.
    """
    found: dict[str, Rows] = {}
    for name, group in zip(minibatch.schema.node_types, minibatch.schema.node_groups, strict=True):
        rows: Any = getattr(minibatch, "attributes", {}).get(group)
        if rows is not None and "x" in rows.tables:
            table = rows.tables["x"]
            found[name] = table if rows.row is None else RowView(table, rows.row)
    return found
