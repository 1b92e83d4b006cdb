"""The nodes of the batches that loaders hand out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from pyg_batchgnn.data import Schema
from pyg_batchgnn.sample import SampledMinibatch


def nodes_by_type(batch: Any, schema: Schema) -> list[Tensor]:
    """Returns the node ids of a batch as it holds them, [N_t] int64 by number of the type.

    Raises:
        TypeError: it is neither a minibatch nor a batch of PyG's loaders.
    """
    if isinstance(batch, SampledMinibatch):
        return [one.node for one in batch.nodes]
    try:
        if isinstance(batch, HeteroData):
            none = torch.empty(0, dtype=torch.int64)
            return [batch[name].get("n_id", none) for name in schema.node_types]
        return [batch.n_id]
    except AttributeError:
        raise TypeError(
            f"batch must be one that a loader of this package handed out, got {type(batch).__name__} without "
            "n_id"
        ) from None
