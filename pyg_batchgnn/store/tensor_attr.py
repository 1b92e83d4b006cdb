"""PyG's names of attributes and indices, as the store understands them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import TensorAttr

from pyg_batchgnn import ops
from pyg_batchgnn.data import EDGES, HOMOGENEOUS, NODES, Group, RowKind, Schema
from pyg_batchgnn.store.row_lookup import RowLookup

#: PyG's name of the edges of a homogeneous graph.
EDGE_TYPE = EDGES.name


def group_of(attr: TensorAttr, schema: Schema = HOMOGENEOUS) -> Group:
    """Returns the group of an attribute as PyG names it. In a homogeneous graph a relation means
    edges, and anything else nodes."""
    if not schema.has_names:
        return EDGES if isinstance(attr.group_name, tuple) else NODES
    kind = RowKind.EDGE if isinstance(attr.group_name, tuple) else RowKind.NODE
    return Group(kind, attr.group_name)


def group_name(group: Group, schema: Schema = HOMOGENEOUS) -> Any:
    """Returns PyG's name of a group; the inverse of `group_of`."""
    return None if group.is_node and not schema.has_names else group.name


def same_rows(one: TensorAttr, other: TensorAttr) -> bool:
    """Returns whether two attributes are of the same group and have the same index object."""
    return one.index is other.index and one.group_name == other.group_name


def ids_of(attr: TensorAttr, lookup: RowLookup) -> Tensor:
    """Returns the index of an attribute as ids, [n] int64, that exist in its group.

    Raises:
        IndexError, TypeError, ValueError: the index is missing, of another type or out of range.
    """
    index = attr.index
    if index is None:
        raise ValueError(
            f"no rank holds all of {attr.attr_name!r}: give index=ids; this rank's own rows are in "
            f"store.own.attributes"
        )
    if isinstance(index, slice):
        index = torch.arange(*index.indices(lookup.num_rows))
    ids = torch.from_numpy(index) if isinstance(index, np.ndarray) else torch.as_tensor(index)
    if ids.dtype is torch.bool:
        ids = ids.nonzero().view(-1)
    if ids.numel() and ids.dtype not in ops.INTEGERS:
        raise TypeError(f"index must be integer ids, got {ids.dtype}; use .long()")
    ids = ids.to(torch.int64).contiguous().view(-1)
    ops.check_range("index", ids, lookup.num_rows, lookup.noun)
    return ids
