"""Learned rows as features, for what reads the features of all nodes."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.embed.table import EmbeddingTable
from pyg_batchgnn.partition import share_arrays
from pyg_batchgnn.store import DistFeatureStore


def as_features(table: EmbeddingTable, data: Any, name: str) -> Any:
    """Returns a graph of which an attribute has the rows of a table as its last columns.

    Collective if the graph is a pair of stores.

    Args:
        table: the rows of this rank.
        data: a ``Data``, a ``HeteroData``, or (DistFeatureStore, DistGraphStore); not changed.
        name: of the attribute. Columns that it has already come first.

    Raises:
        TypeError: another kind of graph.
    """
    if isinstance(data, (tuple, list)) and isinstance(data[0], DistFeatureStore):
        features: DistFeatureStore = data[0]
        columns = _columns(table, features.own.attributes[table.group], name)
        rows = features.comm.run_job(lambda: _shared(features, columns))
        return features.with_table(table.group, name, rows), *data[1:]
    if not isinstance(data, (Data, HeteroData)):
        raise TypeError(
            f"data must be a Data, a HeteroData or (DistFeatureStore, DistGraphStore), got a "
            f"{type(data).__name__}"
        )
    other = copy.copy(data)
    store = other[str(table.group.name)] if isinstance(other, HeteroData) else other
    store[name] = _columns(table, store, name)
    return other


def _columns(table: EmbeddingTable, attributes: Any, name: str) -> Tensor:
    """Returns what an attribute has, if anything, and the rows beside it, as a copy."""
    held = [attributes[name]] if name in attributes else []
    return torch.cat([*held, table.weight.to(held[0].dtype if held else table.weight.dtype)], dim=1)


def _shared(features: DistFeatureStore, columns: Tensor) -> Mapping[int, Tensor]:
    """Returns the columns of all ranks that a rank can read; collective."""
    comm = features.comm
    if not comm.max(len(features.readable) > 1):
        return {comm.rank: columns}
    return {rank: arrays["rows"] for rank, arrays in share_arrays(comm, {"rows": columns}).items()}
