"""A fetch group: several minibatches whose attributes are fetched together, each distinct node's once.

BatchGNN, appendix D.2.1. The block lists the distinct nodes in ascending order, so that a table on disk is
read once from front to back; minibatches point into it through `Minibatch.row` and copy nothing. Tables in
memory need no block at all: see `in_place`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data import NODES
from pyg_batchgnn.sample import AttributeRows, Minibatch, Placement, SampledMinibatch

#: Attributes by name, a row a node, of a vector of node ids.
Fetch = Callable[[Tensor], dict[str, Tensor]]


def fetch_group(minibatches: Sequence[SampledMinibatch], fetch: Fetch, num_nodes: int) -> list[Minibatch]:
    """Returns the minibatches with their nodes' attributes, which are fetched together.

    Args:
        minibatches: F minibatches of one macrobatch.
        fetch: called once, with the distinct nodes, [U] int64 ascending.
        num_nodes: nodes of the graph.
    """
    unique, rows = ops.unique_nodes([minibatch.node for minibatch in minibatches], num_nodes)
    block = fetch(unique)
    return [
        Minibatch.of(minibatch, {NODES: AttributeRows(block, row, Placement.BLOCK)})
        for minibatch, row in zip(minibatches, rows, strict=True)
    ]
