"""The rows of nodes that are at hand, found by original id."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.partition import Part


@dataclass(frozen=True, eq=False)
class OwnRows:
    """The nodes of a list that are among some nodes of their type, such as those that a rank owns.

    Attributes:
        position: [k] int64, their positions in the list, ascending.
        row: [k] int64, their rows among the nodes of their type.
        missing: [n - k] int64, the positions of the nodes that are not among them, ascending.
    """

    position: Tensor
    row: Tensor
    missing: Tensor


class OwnRowFinder:
    """Finds a rank's own nodes by original id, without an exchange.

    The nodes of a type are sorted at most once.

    Args:
        part: the rank's part.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        self._sorted: dict[int, SortedNodes] = {}

    def find(self, node_type: int, nodes: Tensor) -> OwnRows:
        """Finds those nodes of a list that the rank owns.

        Args:
            node_type: the number of the nodes' type.
            nodes: [n] int64 original ids, in any order.
        """
        if node_type not in self._sorted:
            self._sorted[node_type] = SortedNodes.of(self._part.original_ids(node_type))
        return self._sorted[node_type].find(nodes)


@dataclass(frozen=True, eq=False)
class SortedNodes:
    """Nodes of one type in ascending order.

    Attributes:
        node: [n] int64 original ids, ascending.
        order: [n] int64, their rows before they were sorted, or None if they were ascending
            already. A rank's nodes are, unless a saved partition was loaded by another number of
            ranks.
    """

    node: Tensor
    order: Tensor | None

    @classmethod
    def of(cls, node: Tensor) -> SortedNodes:
        """Sorts nodes, [n] int64 original ids."""
        if ops.is_ascending(node):
            return cls(node, None)
        ascending, order = node.sort()
        return cls(ascending, order)

    def find(self, nodes: Tensor) -> OwnRows:
        """Finds the nodes of a list, [m] int64 original ids in any order, that are among these."""
        if not self.node.numel():
            return OwnRows(self.node, self.node, torch.arange(nodes.numel()))
        row = torch.searchsorted(self.node, nodes).clamp(max=self.node.numel() - 1)
        is_own = self.node[row] == nodes
        position, missing = is_own.nonzero().view(-1), (~is_own).nonzero().view(-1)
        row = row[position]
        return OwnRows(position, row if self.order is None else self.order[row], missing)
