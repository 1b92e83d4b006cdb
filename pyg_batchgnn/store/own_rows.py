"""The nodes of a list that a rank owns."""

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
    """

    position: Tensor
    row: Tensor

    @classmethod
    def of(cls, part: Part, node_type: int, nodes: Tensor) -> OwnRows:
        """Finds those nodes of a list that the rank owns.

        Args:
            part: the rank's part.
            node_type: the number of the nodes' type.
            nodes: [n] int64 original ids, in any order.
        """
        own, order = part.original_ids(node_type), None
        if not ops.is_ascending(own):  # a saved partition that another number of ranks has loaded
            own, order = own.sort()
        if not own.numel():
            return cls(own, own)
        row = torch.searchsorted(own, nodes)
        position = (own[row.clamp(max=own.numel() - 1)] == nodes).nonzero().view(-1)
        row = row[position]
        return cls(position, row if order is None else order[row])
