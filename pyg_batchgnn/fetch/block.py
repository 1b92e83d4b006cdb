"""Attributes that are copied into one block for each fetch group.

The block holds the distinct nodes of the group in ascending order, so that a table on disk is read
once from front to back. Minibatches point into it through `Minibatch.row` and copy nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data import NODES
from pyg_batchgnn.fetch.fetcher import Fetched, FetchGroup
from pyg_batchgnn.sample import AttributeRows, Minibatch, Placement

#: Returns attributes by name, one row per node, for a vector of node ids.
ReadRows: TypeAlias = Callable[[Tensor], Mapping[str, Tensor]]


class BlockFetcher:
    """Copies the rows of each group's distinct nodes into a block.

    Args:
        read: is called once per group, with the distinct nodes, [U] int64 ascending.
        num_nodes: the number of nodes of the graph.
    """

    def __init__(self, read: ReadRows, num_nodes: int) -> None:
        self._read, self._num_nodes = read, num_nodes

    def fetch(self, group: FetchGroup) -> Fetched:
        """Returns the group's minibatches with one block for all of them; see `Fetcher`."""
        nodes = [minibatch.node for minibatch in group.minibatches]
        unique, rows = ops.unique_nodes(nodes, self._num_nodes)
        block = dict(self._read(unique))
        ready = [
            Minibatch.of(minibatch, {NODES: AttributeRows(block, row, Placement.BLOCK)})
            for minibatch, row in zip(group.minibatches, rows, strict=True)
        ]
        return Fetched(ready, sum(table.nbytes for table in block.values() if isinstance(table, Tensor)))
