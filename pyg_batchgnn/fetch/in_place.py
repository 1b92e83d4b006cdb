"""Attributes that are read where they lie (design, section 4).

Layers read a table through `Minibatch.row` and need no copy of it. In a whole table the node ids
are the rows, and fetching costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data import Group
from pyg_batchgnn.fetch.fetcher import Fetched, FetchGroup
from pyg_batchgnn.sample import AttributeRows, Minibatch, SampledMinibatch


class InPlaceFetcher:
    """Points minibatches into whole tables.

    Args:
        tables: for each group of nodes its attributes by name, one row per node of the graph.
    """

    def __init__(self, tables: Mapping[Group, Mapping[str, Tensor]]) -> None:
        self.tables = {group: dict(named) for group, named in tables.items()}

    def fetch(self, group: FetchGroup) -> Fetched:
        """Returns the group's minibatches with the tables; see `Fetcher`.

        Types that a minibatch does not reach share their empty rows, so that they cost next to
        nothing.
        """
        if not group.minibatches:
            return Fetched([])
        groups = enumerate(group.minibatches[0].schema.node_groups)
        held = [(number, name, self.tables[name]) for number, name in groups if name in self.tables]
        unreached = {name: AttributeRows.in_place(tables, _NONE) for _, name, tables in held}

        def with_tables(minibatch: SampledMinibatch) -> Minibatch:
            attributes = dict(unreached)
            for number, name, tables in held:
                node = minibatch.nodes[number].node
                if node.numel() or len(held) == 1:  # of the only type, ``row`` is ``node``
                    attributes[name] = AttributeRows.in_place(tables, node)
            return Minibatch.of(minibatch, attributes)

        return Fetched(list(map(with_tables, group.minibatches)))


_NONE = torch.empty(0, dtype=torch.int64)


def as_table(value: Any, num_nodes: int) -> Tensor | str:
    """Returns ``value`` as a table that can be read in place, or the reason why it cannot be.

    Returns:
        ``value`` itself if it is a tensor; a view of it if it is a NumPy array.
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
