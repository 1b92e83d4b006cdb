"""A value for each node that a process owns and for each of its halo nodes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import OwnedEdges

#: Edges that are looked through together.
_EDGES = 1 << 22


@dataclass(frozen=True, eq=False)
class SourceValues:
    """Values by id, in the numbering of `OwnedEdges`.

    Attributes:
        first_node: the id of the first owned node.
        own: [n] the values of the owned nodes.
        halo: [h] int64 ids of the halo nodes, ascending.
        values: [h] their values.
    """

    first_node: int
    own: Tensor
    halo: Tensor
    values: Tensor

    def of(self, ids: Tensor | None) -> Tensor:
        """Returns the values of [s] ids; of the owned nodes in order where None."""
        if ids is None:
            return self.own
        row = ids - self.first_node
        if not len(self.halo):
            return ops.gather_rows(self.own, row)
        is_own = (row >= 0) & (row < len(self.own))
        found = self.own.new_empty(len(ids))
        found[is_own] = self.own[row[is_own]]
        found[~is_own] = self.values[torch.searchsorted(self.halo, ids[~is_own])]
        return found


def halo_nodes(own: OwnedEdges) -> Tensor:
    """Returns the ids of the sources that a process does not own, [h] int64, ascending."""
    found = [torch.empty(0, dtype=torch.int64)]
    for sources in own.in_edges.indices.split(_EDGES):
        row = sources.to(torch.int64) - own.first_node
        others = row[(row < 0) | (row >= own.node.numel())] + own.first_node
        found = [ops.unique_nodes([*found, others], own.num_nodes)[0]]
    return found[0]
