"""Attributes that are read where they lie (design, section 4).

Layers read a table through `Minibatch.row` and need no copy of it. In a whole table the node ids
are the rows, and fetching costs nothing.
"""

from __future__ import annotations

from collections import ChainMap
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
        tables: for each group of nodes, and for each group of edges if minibatches have edge ids,
            its attributes by name, one row per node or edge of the graph.
    """

    def __init__(self, tables: Mapping[Group, Mapping[str, Tensor]]) -> None:
        self.tables = {group: dict(named) for group, named in tables.items()}
        self._unreached = {
            group: AttributeRows.in_place(named, _NONE) for group, named in self.tables.items()
        }

    def fetch(self, group: FetchGroup) -> Fetched:
        """Returns the group's minibatches with the tables; see `Fetcher`.

        Types and relations that a minibatch does not reach share their empty rows and cost nothing.
        """
        return Fetched([Minibatch.of(one, self._attributes(one)) for one in group.minibatches])

    def _attributes(self, minibatch: SampledMinibatch) -> Mapping[Group, AttributeRows]:
        schema, found = minibatch.schema, {}
        nodes = minibatch.reached_nodes or dict(enumerate(minibatch.nodes))
        for number, one in nodes.items():
            found[schema.node_groups[number]] = one.node
        for number, edges in minibatch.reached_edges.items():
            if edges.edge is not None:
                found[schema.edge_groups[number]] = edges.edge
        reached = {
            group: AttributeRows.in_place(self.tables[group], ids)
            for group, ids in found.items()
            if group in self.tables
        }
        return ChainMap(reached, self._unreached)


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
