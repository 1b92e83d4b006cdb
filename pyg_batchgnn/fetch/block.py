"""Attributes that are copied into blocks for each fetch group.

There is one block for each node type. It holds the distinct nodes of the group in ascending order,
so that a table on disk is read once from front to back. Minibatches point into it through
`AttributeRows.row` and copy nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from torch import Tensor

from pyg_batchgnn.data import Group
from pyg_batchgnn.fetch.distinct import DistinctNodes, distinct_nodes
from pyg_batchgnn.fetch.fetcher import Fetched, FetchGroup
from pyg_batchgnn.sample import AttributeRows, Minibatch, Placement

#: Returns attributes by group and name, one row per node, for vectors of node ids by group.
ReadRows: TypeAlias = Callable[[Mapping[Group, Tensor]], Mapping[Group, Mapping[str, Tensor]]]


class BlockFetcher:
    """Copies the rows of each group's distinct nodes into blocks.

    Args:
        read: is called once per fetch group, with the distinct nodes of every type, [U_t] int64
            ascending.
        num_nodes: the number of nodes of each type.
    """

    def __init__(self, read: ReadRows, num_nodes: Sequence[int]) -> None:
        self._read, self._num_nodes = read, num_nodes

    def fetch(self, group: FetchGroup) -> Fetched:
        """Returns the group's minibatches with blocks for all of them; see `Fetcher`."""
        minibatches = group.minibatches
        groups = minibatches[0].schema.node_groups if minibatches else ()
        found = [self._distinct(number, group) for number in range(len(groups))]
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

    def _distinct(self, number: int, group: FetchGroup) -> DistinctNodes:
        """Returns the distinct nodes of one type."""
        nodes = [minibatch.nodes[number].node for minibatch in group.minibatches]
        return distinct_nodes(nodes, self._num_nodes[number])
