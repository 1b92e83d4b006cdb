"""Fetch groups, and what every fetcher offers.

A fetch group is several minibatches of a macrobatch whose attributes are fetched together, each
distinct node's once (BatchGNN, appendix D.2.1).
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.sample import AttributeRows, Minibatch, Placement, SampledMinibatch
from pyg_batchgnn.types import Group

if TYPE_CHECKING:
    from pyg_batchgnn.fetch.disk import DiskCounters

# Fetcher ##########################################################################################


@dataclass(frozen=True, eq=False)
class FetchGroup:
    """Minibatches whose attributes are fetched together."""

    minibatches: Sequence[SampledMinibatch]  # sampled minibatches of one macrobatch
    epoch: int = 0  # the epoch that they belong to
    macrobatch: int = 0  # the macrobatch's number in the epoch
    number: int = 0  # the group's number in the macrobatch


@dataclass(frozen=True, eq=False)
class Fetched:
    """The minibatches of a fetch group with their attributes, and counts of the work."""

    minibatches: list[Minibatch]  # the minibatches; their ``node`` holds original ids
    bytes: int = 0  # the bytes that were copied, of the block and of edge attributes
    rows: int = 0  # the number of nodes whose rows came from other hosts
    hits: int = 0  # the number of nodes of other hosts whose rows a cache had
    misses: int = 0  # the number of nodes of other hosts whose rows a cache had not; 0 without a cache
    hit_bytes: int = 0  # the bytes that did not cross the wire because a cache had the rows
    disk: DiskCounters | None = None  # what reading from files took; None where nothing was read


class Fetcher(Protocol):
    """Fetches the attributes of sampled minibatches."""

    def fetch(self, group: FetchGroup) -> Fetched:
        """Fetches the attributes of a group's minibatches together; collective over ranks."""


# Distinct nodes ###################################################################################


@dataclass(frozen=True, eq=False)
class DistinctNodes:
    """The nodes of one type in a fetch group, each once."""

    node: Tensor  # [U] int64, the distinct nodes, ascending
    places: list[Tensor]  # for each minibatch, [N] int64, the place of each of its nodes in ``node``


def distinct_nodes(nodes: Sequence[Tensor], num_nodes: int) -> DistinctNodes:
    """Finds the distinct nodes of one type in minibatches. ``nodes``: the ids of each, [N] int64
    below ``num_nodes``."""
    # A search takes time that grows with num_nodes.
    if not any(node.numel() for node in nodes):
        return DistinctNodes(torch.empty(0, dtype=torch.int64), list(nodes))
    return DistinctNodes(*ops.unique_nodes(nodes, num_nodes))


# In place #########################################################################################

# Attributes that are read where they lie (design, section 4).
#
# Layers read a table through `Minibatch.row` and need no copy of it. In a whole table the node ids
# are the rows, and fetching costs nothing.


class InPlaceFetcher:
    """Gives minibatches the whole tables, to be read in place."""

    def __init__(self, tables: Mapping[Group, Mapping[str, Tensor]]) -> None:
        self.tables = {group: dict(named) for group, named in tables.items()}
        self._unreached = {
            group: AttributeRows.in_place(named, _NONE) for group, named in self.tables.items()
        }

    def fetch(self, group: FetchGroup) -> Fetched:
        """Types and relations without nodes or edges share one empty entry."""
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
    """Returns an attribute as a table to be read in place, or the reason why it cannot be."""
    if isinstance(value, np.ndarray):
        try:
            value = torch.from_numpy(value) if value.flags.writeable else value
        except (TypeError, ValueError) as error:
            return f"PyTorch cannot share the array ({error})"
    if type(value) not in (Tensor, torch.nn.Parameter, ops.QuantizedTensor):
        return f"it is a {type(value).__name__}"
    if value.layout is not torch.strided or value.device.type != "cpu":
        return f"it is not a dense tensor in the computer's own memory ({value.layout}, {value.device})"
    if value.dim() == 0 or not value.is_contiguous() or value.is_conj() or value.is_neg():
        return "its rows do not lie one behind the other; use .contiguous()"
    if value.size(0) < num_nodes:
        return f"it has {value.size(0)} rows for {num_nodes} nodes"
    return value


# Blocks ###########################################################################################

# Attributes that are copied into blocks for each fetch group.
#
# There is one block for each node type. It holds the distinct nodes of the group in ascending
# order, so that a table on disk is read once from front to back. Minibatches point into it through
# `AttributeRows.row` and copy nothing.


#: Returns attributes by group and name, one row per node, for vectors of node ids by group.
ReadRows: TypeAlias = Callable[[Mapping[Group, Tensor]], Mapping[Group, Mapping[str, Tensor]]]


class BlockFetcher:
    """Copies the rows of each group's distinct nodes into a block. ``read``: called once per fetch
    group with the distinct nodes of every type, [U_t] int64 ascending."""

    def __init__(self, read: ReadRows, num_nodes: Sequence[int]) -> None:
        self._read, self._num_nodes = read, num_nodes

    def fetch(self, group: FetchGroup) -> Fetched:
        minibatches = group.minibatches
        groups = minibatches[0].schema.node_groups if minibatches else ()
        found = [
            distinct_nodes(
                [minibatch.nodes[number].node for minibatch in minibatches], self._num_nodes[number]
            )
            for number in range(len(groups))
        ]
        blocks = self._read({name: one.node for name, one in zip(groups, found, strict=True)})
        ready = []
        for place, minibatch in enumerate(minibatches):
            attributes = {
                name: AttributeRows(blocks[name], one.places[place], Placement.BLOCK)
                for name, one in zip(groups, found, strict=True)
                if name in blocks
            }
            ready.append(Minibatch.of(minibatch, attributes))
        tables = [table for block in blocks.values() for table in block.values()]
        return Fetched(ready, sum(table.nbytes for table in tables if isinstance(table, Tensor)))
