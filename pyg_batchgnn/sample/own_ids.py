"""The internal ids of a rank's own nodes, found by original id."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.partition import Part


class OwnIds:
    """Finds the internal ids of a rank's own nodes, without an exchange.

    Args:
        part: the rank's.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        self._sorted = [_sorted(part.original_ids(number)) for number in range(part.schema.num_types)]

    def internal(self, node_type: int, original: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the internal ids of nodes, and which of the nodes other ranks own.

        Args:
            node_type: the number of the type.
            original: [n] int64 original ids.

        Returns:
            [n] int64 internal ids, -1 for nodes of other ranks, and [k] int64, their places.
        """
        ascending, order = self._sorted[node_type]
        if not ascending.numel():
            return torch.full_like(original, -1), torch.arange(original.numel())
        row = torch.searchsorted(ascending, original).clamp(max=ascending.numel() - 1)
        is_own = ascending[row] == original
        row = row if order is None else order[row]
        internal = torch.where(is_own, row + self._part.nodes_of(node_type).start, -1)
        return internal, (~is_own).nonzero().view(-1)


def _sorted(node: Tensor) -> tuple[Tensor, Tensor | None]:
    """Returns nodes in ascending order, and this order if they were in another one.

    They were if a saved partition was loaded by another number of ranks.
    """
    if ops.is_ascending(node):
        return node, None
    ascending, order = node.sort()
    return ascending, order
