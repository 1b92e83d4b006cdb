"""The rows of a rank's own nodes, found by original id."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.partition import Part


@dataclass(frozen=True, eq=False)
class OwnRows:
    """The nodes of a list that a rank owns.

    Attributes:
        position: [k] int64, their positions in the list, ascending.
        row: [k] int64, their rows among the rank's nodes of their type.
        missing: [n - k] int64, the positions of the nodes that other ranks own, ascending.
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
    """A rank's nodes of one type in ascending order.

    Attributes:
        node: [n] int64 original ids, ascending.
        order: [n] int64, their rows in the part, or None if the part has them in this order. It
            does unless a saved partition was loaded by another number of ranks.
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
        """Finds those nodes of a list, [n] int64 original ids in any order, that the rank owns."""
        if not self.node.numel():
            return OwnRows(self.node, self.node, torch.arange(nodes.numel()))
        row = torch.searchsorted(self.node, nodes).clamp(max=self.node.numel() - 1)
        is_own = self.node[row] == nodes
        position, missing = is_own.nonzero().view(-1), (~is_own).nonzero().view(-1)
        row = row[position]
        return OwnRows(position, row if self.order is None else self.order[row], missing)
