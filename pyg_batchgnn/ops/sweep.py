"""Operators of rows in files: sweeps, rows copied to places, and rows handed out for a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_range, check_vector
from pyg_batchgnn.ops.library import kernels, thread_count
from pyg_batchgnn.ops.memory import advise_huge_pages

#: The next use of a row that is not needed again.
NEVER = 2**31 - 1
#: The slot of a row that is not in memory.
NO_SLOT = -1


@dataclass(frozen=True, eq=False)
class SweepReading:
    """The rows to be read before a unit.

    Attributes:
        rows: [m] int64, rows of the file, ascending.
        slots: [m] int64, where they go.
        unit: [n] int64, the slot of each of the unit's rows; None if there are too few.
        evicts: True if some of the slots were those of other rows.
    """

    rows: Tensor
    slots: Tensor
    unit: Tensor | None
    evicts: bool


def next_uses(rows: int) -> Tensor:
    """Returns [rows] int32, `NEVER` for each row."""
    return _looked_up(rows).fill_(NEVER)


def _looked_up(rows: int) -> Tensor:
    # Entries are looked up one by one. The memory is not kept for reuse.
    out = torch.empty(rows, dtype=torch.int32)
    advise_huge_pages(out)
    return out


def note_use(next_use: Tensor, rows: Tensor, number: int) -> Tensor:
    """Sets the next use of some rows to a unit, and returns what it was, [n] int32.

    Args:
        next_use: as of `next_uses`.
        rows: [n] int32 or int64, distinct rows that the unit needs.
        number: the number of the unit.
    """
    check_vector("next_use", next_use, (torch.int32,))
    check_vector("rows", rows, (torch.int32, torch.int64))
    check_range("rows", rows, next_use.numel(), "rows of the file")
    return kernels.note_use_(next_use, rows, number)


class RowStates:
    """The slot and the next use of each row of a file, and the rows that may make room.

    Args:
        rows: the number of rows, below 2**31.
        capacity: the number of slots.
    """

    def __init__(self, rows: int, capacity: int) -> None:
        if not (0 <= rows < NEVER and 0 <= capacity < NEVER):
            raise ValueError(f"{rows} rows with {capacity} slots: both must be from 0 to {NEVER - 1}")
        self._next = next_uses(rows)
        self.slot = _looked_up(rows).fill_(NO_SLOT)
        self._state = kernels.sweep_new(capacity)

    def __len__(self) -> int:
        """Returns the number of rows in memory."""
        return kernels.sweep_size(self._state)

    def note_first_use(self, rows: Tensor, number: int) -> None:
        """Notes that a unit needs rows, [n] int64, before `begin`. Units are noted in order."""
        check_vector("rows", rows, (torch.int64,))
        check_range("rows", rows, self.slot.numel(), "rows of the file")
        kernels.note_first_use_(self._next, rows, number)

    def admit(self, first: int, last: int, until: int) -> tuple[Tensor, Tensor]:
        """Finds what is to be read of the rows from ``first`` to ``last``, before `begin`.

        Returns:
            The rows that are noted to be needed before unit ``until``, as far as there is room,
            [n] int64, ascending; and where they go, [n] int64.
        """
        return kernels.sweep_admit_(self._state, self._next, self.slot, first, last, until)

    def begin(self, first: Tensor, number: int, period: int, in_use: Sequence[Tensor]) -> None:
        """Begins a sequence of units.

        Args:
            first: [rows] int32, the number of the unit that needs each row first, or `NEVER`. It is
                written to from here on.
            number: the number of the first unit.
            period: the units that a sweep takes.
            in_use: for each unit in use its rows, [n] int64.
        """
        check_vector("first", first, (torch.int32,))
        if first.numel() != self.slot.numel():
            raise ValueError(f"first has {first.numel()} entries for {self.slot.numel()} rows")
        self._next = first
        kernels.sweep_begin_(self._state, first, self.slot, number, period, list(in_use))

    def extend(self, first: Tensor, last: int, in_use: Sequence[Tensor]) -> None:
        """Appends a sequence of units to those that are known.

        Args:
            first: [rows] int32, the number of the unit of the sequence that needs each row first,
                or `NEVER`.
            last: the latest unit that was prepared.
            in_use: for each unit in use its rows, [n] int64.
        """
        check_vector("first", first, (torch.int32,))
        if first.numel() != self.slot.numel():
            raise ValueError(f"first has {first.numel()} entries for {self.slot.numel()} rows")
        kernels.sweep_extend_(self._state, self._next, self.slot, first, last, list(in_use))

    def retire(self, rows: Tensor, following: Tensor, last: int) -> None:
        """Lets go of the rows of a unit that is not in use any more.

        Args:
            rows, following: as `prepare` got them.
            last: the latest unit that was prepared; rows that it or one before it uses after this
                unit stay.
        """
        kernels.sweep_retire_(self._state, rows, following, last)

    def prepare(self, rows: Tensor, following: Tensor, number: int) -> SweepReading:
        """Finds what is to be read before a unit, and notes its uses.

        Args:
            rows: [n] int64, its rows, ascending.
            following: [n] int32, the next use of each after the unit, or `NEVER`.
        """
        check_vector("rows", rows, (torch.int64,))
        check_vector("following", following, (torch.int32,))
        if rows.numel() != following.numel():
            raise ValueError(f"{rows.numel()} rows came with {following.numel()} next uses")
        state = self._state, self._next, self.slot
        read, slots, unit, fits, evicts = kernels.sweep_prepare_(*state, rows, following, number)
        return SweepReading(read, slots, unit if fits else None, evicts)


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
