"""Operators of a cache of rows whose next uses are known."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_vector
from pyg_batchgnn.ops.library import kernels, thread_count

#: The next use of a row that is not needed again.
NEVER = 2**31 - 1
#: The slot of a node that a cache lacks.
NO_SLOT = -1


@dataclass(frozen=True, eq=False)
class CachedNodes:
    """The rows that a cache holds.

    Attributes:
        node: [c] int64, ascending.
        next: [c] int32, the number of the next unit that needs each row, or `NEVER`.
        slot: [c] int32, the row of the cache's table where each lies.
    """

    node: Tensor
    next: Tensor
    slot: Tensor

    @classmethod
    def none(cls) -> CachedNodes:
        """Returns an empty cache."""
        return cls(torch.empty(0, dtype=torch.int64), *torch.empty(2, 0, dtype=torch.int32).unbind())

    def find(self, node: Tensor) -> Tensor:
        """Returns the slot of each node, [n] int32, `NO_SLOT` for those that are not here.

        ``node``: [n] int64, ascending.
        """
        check_vector("node", node, (torch.int64,))
        return kernels.belady_find(self.node, self.next, self.slot, node)

    def keep(self, node: Tensor, following: Tensor, capacity: int) -> tuple[CachedNodes, Tensor, Tensor]:
        """Keeps the rows of the cache and of a unit whose next use comes first (Belady, 1966).

        Ties are broken by node. Rows that are never needed again stay where there is room, those
        of the cache before those of the unit. A row that stays keeps its slot.

        Args:
            node: [n] int64, the unit's nodes, ascending.
            following: [n] int32, the next use of each after the unit, or `NEVER`.
            capacity: at most this many rows stay; slots are below it.

        Returns:
            What the cache holds then, and the rows that it lacked: their positions in the unit,
            [k] int64, and their slots, [k] int32.
        """
        check_vector("node", node, (torch.int64,))
        check_vector("following", following, (torch.int32,))
        if node.numel() != following.numel():
            raise ValueError(f"{node.numel()} nodes came with {following.numel()} next uses")
        if not 0 <= capacity < NEVER:
            raise ValueError(f"a cache has from 0 to {NEVER - 1} rows, not {capacity}")
        *kept, taken, slot = kernels.belady_keep(self.node, self.next, self.slot, node, following, capacity)
        return CachedNodes(*kept), taken, slot


def move_rows(source: Tensor, row: Tensor, out: Tensor, place: Tensor) -> None:
    """Sets ``out[place[i]] = source[row[i]]``.

    Args:
        source, out: [n, ...] and [m, ...] of one type and row shape, contiguous.
        row, place: [k] int64 in [0, n) and in [0, m). No place comes twice.
    """
    if source.dtype != out.dtype or source.shape[1:] != out.shape[1:]:
        raise ValueError(
            f"rows of {source.dtype} {list(source.shape[1:])} cannot be put into {out.dtype} "
            f"{list(out.shape[1:])}"
        )
    if not (source.is_contiguous() and out.is_contiguous()):
        raise ValueError("rows are moved between contiguous tables")
    check_vector("row", row, (torch.int64,))
    check_vector("place", place, (torch.int64,))
    kernels.move_rows(source, row, out, place, thread_count())
