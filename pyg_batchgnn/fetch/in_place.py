"""Attributes read where they lie: minibatches whose block is the user's own tensors (design, section 4).

Layers that read a table through `Minibatch.row` need no copy of it. Where a whole table is at hand, the node
ids are the rows, and fetching costs nothing at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.sample import Minibatch, SampledMinibatch


def point_into(minibatches: Sequence[SampledMinibatch], tables: Mapping[str, Tensor]) -> list[Minibatch]:
    """Returns the minibatches with their nodes' attributes read from whole tables.

    Args:
        minibatches: sampled minibatches.
        tables: attributes by name, with one row per node of the graph.
    """
    block = dict(tables)
    return [Minibatch.in_place(minibatch, block) for minibatch in minibatches]


def as_table(value: Any, num_nodes: int) -> Tensor | str:
    """``value`` as a table that can be read in place, or why it cannot be.

    Returns:
        ``value`` itself where it is a tensor; a view of it where it is a NumPy array.
    """
    if isinstance(value, np.ndarray):
        try:
            value = torch.from_numpy(value) if value.flags.writeable else value
        except (TypeError, ValueError) as error:
            return f"PyTorch cannot share the array ({error})"
    if type(value) not in (Tensor, torch.nn.Parameter):
        return f"it is a {type(value).__name__}"
    if value.layout is not torch.strided or value.device.type != "cpu":
        return f"it is not a dense tensor in the computer's own memory ({value.layout}, {value.device})"
    if value.dim() == 0 or not value.is_contiguous() or value.is_conj() or value.is_neg():
        return "its rows do not lie one behind the other; use .contiguous()"
    if value.size(0) < num_nodes:
        return f"it has {value.size(0)} rows for {num_nodes} nodes"
    return value
