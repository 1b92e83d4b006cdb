"""Operators of rows of files that are in memory, where all later uses are known."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_vector
from pyg_batchgnn.ops.library import kernels, thread_count

#: The next use of a row that is not needed again.
NEVER = 2**31 - 1
#: The slot of a node whose row is not in memory.
NO_SLOT = -1


@dataclass(frozen=True, eq=False)
class Residents:
    """The rows that are in memory. They have the slots 0 to r - 1.

    Attributes:
        node: [r] int64, ascending.
        next: [r] int32, the number of the next unit that needs each row, or `NEVER`.
        used: [r] int32, the number of the last unit that needed it.
        slot: [r] int32, the row of the table in memory where each lies.
    """

    node: Tensor
    next: Tensor
    used: Tensor
    slot: Tensor

    @classmethod
    def none(cls) -> Residents:
        """Returns no rows."""
        return cls(torch.empty(0, dtype=torch.int64), *torch.empty(3, 0, dtype=torch.int32).unbind())

    def __len__(self) -> int:
        return self.node.numel()

    def admit(
        self, node: Tensor, following: Tensor, number: int, in_use_from: int, capacity: int
    ) -> Admission:
        """Admits the rows of a unit to a table.

        Rows that units from ``in_use_from`` on have needed stay. Of the others, those whose next
        use is last make room (Belady, 1966); of equal ones those with the larger node.

        Args:
            node: [n] int64, the unit's nodes, ascending.
            following: [n] int32, the next use of each after the unit, or `NEVER`.
            number: the unit's number; units are numbered in order.
            capacity: the number of rows of the table.
        """
        check_vector("node", node, (torch.int64,))
        check_vector("following", following, (torch.int32,))
        if node.numel() != following.numel():
            raise ValueError(f"{node.numel()} nodes came with {following.numel()} next uses")
        if not 0 <= capacity < NEVER:
            raise ValueError(f"a table has from 0 to {NEVER - 1} rows, not {capacity}")
        held = [self.node, self.next, self.used, self.slot]
        fits, *after, slot, missing = kernels.admit_rows(held, node, following, number, in_use_from, capacity)
        return Admission(Residents(*after), fits, slot, missing)


@dataclass(frozen=True, eq=False)
class Admission:
    """The outcome of admitting a unit's rows.

    Attributes:
        residents: the rows in memory afterwards.
        fits: False if there were too few slots. Then nothing moved, but for the next uses of rows
            that are here.
        slot: [n] int32, the slot of each of the unit's rows; `NO_SLOT` for those that have none.
        missing: [m] int64, the positions in the unit of the rows that were not in memory.
    """

    residents: Residents
    fits: bool
    slot: Tensor
    missing: Tensor


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


def lease_rows(table: Tensor, first: int, outstanding: Tensor) -> Tensor:
    """Returns ``table[first:]`` as a tensor that counts how long it lives.

    Args:
        table: [n, ...], contiguous; it lives as long as the lease.
        first: below n. Leases that live at the same time have different ones.
        outstanding: [1] int32, which is one more while the result or any view of it lives.
    """
    if not table.is_contiguous() or not 0 <= first < len(table):
        raise ValueError(f"rows from {first} on cannot be leased of a table of shape {list(table.shape)}")
    check_vector("outstanding", outstanding, (torch.int32,))
    return kernels.lease_rows(table, first, outstanding)
