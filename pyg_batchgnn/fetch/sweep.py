"""The rows of a table in a file that are in memory, and the times at which others are read.

The file is read in sweeps. It is cut into as many ranges as a sweep takes units. Before each unit
one range is read: those of its rows that are needed before the sweep comes back to it. So a row
waits half a sweep for its use on average, and the units of a sweep share one pass over the file.
Rows in memory that are needed only after the sweep comes back may make room. Of these the ones
that are needed last leave first (Belady, 1966).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import NEVER, SweepReading

#: Bytes of a row's next use and slot.
ENTRY_BYTES = 8
#: Bytes of a row in memory in the lists of those that may leave, which grow by doubling.
LIST_BYTES = 8


@dataclass(frozen=True, eq=False)
class _InUse:
    """A unit whose rows may be in use."""

    number: int
    rows: Tensor  # [n] int64
    following: Tensor  # [n] int32, the next use of each after the unit


class Sweep:
    """Which rows of a table in a file are in memory. Units (fetch groups) are numbered in the order
    in which they are prepared. ``rows``: of the table. ``capacity``: the rows that fit memory."""

    def __init__(self, rows: int, capacity: int) -> None:
        self.capacity = capacity
        self._states = ops.RowStates(rows, capacity)
        self._expected = 0
        self._in_use: deque[_InUse] = deque()

    def begin(self, first: Tensor, number: int, period: int) -> None:
        """Begins a sequence of units (see `ops.RowStates.begin`). Rows in memory stay."""
        # The units before are followed by these, but where one of them used a row again.
        last, self._expected = self._expected - 1, number
        self._in_use = deque(
            _InUse(
                one.number,
                one.rows,
                torch.where(one.following <= last, one.following, ops.gather_rows(first, one.rows)),
            )
            for one in self._in_use
        )
        self._states.begin(first, number, period, [one.rows for one in self._in_use])

    def extend(self, first: Tensor) -> None:
        """Appends a sequence of units, so that sweeps continue. ``first``: [rows] int32, the number
        of the first of its units that needs each row, or `NEVER`."""
        self._in_use = deque(
            _InUse(one.number, one.rows, followed(one.following, one.rows, first)) for one in self._in_use
        )
        self._states.extend(first, self._expected - 1, [one.rows for one in self._in_use])

    def follows(self, number: int) -> bool:
        return number == self._expected

    def prepare(self, number: int, rows: Tensor, following: Tensor, in_use_from: int) -> SweepReading:
        """Returns the rows to read before a unit (see `ops.RowStates.prepare`). ``in_use_from``:
        the first unit that may be in use; rows of it and later units stay."""
        self._expected = number + 1
        while self._in_use and self._in_use[0].number < in_use_from:
            one = self._in_use.popleft()
            self._states.retire(one.rows, one.following, number - 1)
        reading = self._states.prepare(rows, following, number)
        if reading.unit is not None:
            self._in_use.append(_InUse(number, rows, following))
        return reading

    def find(self, rows: Tensor) -> Tensor:
        """Returns [n] int64, the slots of rows, `NO_SLOT` for rows that are not in memory."""
        return ops.gather_rows(self._states.slot, rows).to(torch.int64)


def followed(following: Tensor, rows: Tensor, first: Tensor) -> Tensor:
    """Returns [n] int32, the next uses of rows when another sequence of units follows.
    ``following``: [n] int32, their next uses without it. ``first``: [rows] int32, each row's first
    use in it."""
    return torch.where(following == NEVER, ops.gather_rows(first, rows), following)


def first_uses(units: list[Tensor], rows: int, number: int) -> tuple[Tensor, list[Tensor]]:
    """Returns when each row is needed first, [rows] int32, and for each unit when its rows are
    needed next, [n] int32. ``units``: the rows of each, [n] int64. ``number``: of the first
    unit."""
    use, following = ops.next_uses(rows), []
    for at in range(len(units) - 1, -1, -1):
        following.append(ops.note_use(use, units[at], number + at))
    return use, following[::-1]


def simulate(units: list[Tensor], rows: int, capacity: int, period: int, in_use: int) -> list[int] | None:
    """Returns how many rows are read before each unit; None if they do not fit memory. ``units``:
    the rows of each, [n] int64 below ``rows``, ascending and distinct."""
    sweep, read = Sweep(rows, capacity), []
    first, following = first_uses(units, rows, 0)
    sweep.begin(first, 0, period)
    for number, (needed, later) in enumerate(zip(units, following, strict=True)):
        reading = sweep.prepare(number, needed, later, number - in_use)
        if reading.unit is None:
            return None
        read.append(reading.rows.numel())
    return read
