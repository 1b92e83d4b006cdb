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

#: The next use of a row that is not needed again.
NEVER = 2**31 - 1
#: The slot of a row that is not in memory.
NO_SLOT = -1
#: Bytes of a row's next use and slot.
ENTRY_BYTES = 8


@dataclass(frozen=True, eq=False)
class Reading:
    """What is to be read before a unit.

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


@dataclass(frozen=True, eq=False)
class _InUse:
    """A unit whose rows may be in use."""

    number: int
    rows: Tensor  # [n] int64
    following: Tensor  # [n] int32, the next use of each after the unit


class Sweep:
    """The rows of a table in memory.

    Units are numbered in the order in which they are prepared.

    Args:
        rows: the number of rows of the table.
        capacity: the number of rows that memory holds.
    """

    def __init__(self, rows: int, capacity: int) -> None:
        self.capacity = capacity
        self._next = torch.full((rows,), NEVER, dtype=torch.int32)
        self._slot = torch.full((rows,), NO_SLOT, dtype=torch.int32)
        self._start = self._expected = 0
        self._evicts = False  # whether the last reading takes slots of other rows
        self._period, self._width = 1, max(1, rows)  # the units of a sweep, the rows of a range
        self._fresh, self._free = 0, list[Tensor]()  # slots nobody has had; slots that were given back
        self._in_use: deque[_InUse] = deque()
        #: By next use, rows that may leave. Some may have become needed since.
        self._leaving: dict[int, list[Tensor]] = {}

    def __len__(self) -> int:
        """Returns the number of rows in memory."""
        return self._fresh - sum(map(len, self._free))

    def begin(self, first: Tensor, number: int, period: int) -> None:
        """Begins a sequence of units.

        Args:
            first: [rows] int32, the number of the unit that needs each row first, or `NEVER`.
            number: the number of the first unit.
            period: the units that a sweep takes.
        """
        self._next, self._start, self._expected = first, number, number
        self._period, self._width = period, max(1, -(-first.numel() // period))
        self._in_use = deque(_InUse(one.number, one.rows, first[one.rows]) for one in self._in_use)
        here = self._slot >= 0
        for one in self._in_use:
            here[one.rows] = False
        self._leaving = {}
        self._may_leave(here.nonzero().view(-1), number - 1)

    def follows(self, number: int) -> bool:
        """Returns whether a unit is the next one of the sequence."""
        return number == self._expected

    def prepare(self, number: int, rows: Tensor, following: Tensor, in_use_from: int) -> Reading:
        """Finds what is to be read before a unit.

        Args:
            number: the unit's number.
            rows: [n] int64, its rows, ascending.
            following: [n] int32, the next use of each after the unit, or `NEVER`.
            in_use_from: the first unit that may be in use. Its rows and those of later units stay.
        """
        self._retire(in_use_from, number - 1)
        self._expected, self._evicts = number + 1, False
        wanted = [self._wanted(one, number) for one in self._ranges_before(number)]
        missing = torch.cat([torch.empty(0, dtype=torch.int64), *wanted])
        slots = self._take(missing.numel(), number)
        if slots.numel() < missing.numel():  # those that are needed soonest
            soonest = self._next[missing].argsort(stable=True)[: slots.numel()]
            missing = missing[soonest.sort().values]
        self._slot[missing] = slots.to(torch.int32)
        unit = self._slot[rows]
        late = (unit < 0).nonzero().view(-1)
        if late.numel():
            more = self._take(late.numel(), number)
            if more.numel() < late.numel():
                self._free.append(more)
                self._next[rows] = following
                return Reading(missing, slots, None, self._evicts)
            self._slot[rows[late]] = more.to(torch.int32)
            unit = self._slot[rows]
            missing, order = torch.cat([missing, rows[late]]).sort()
            slots = torch.cat([slots, more])[order]
        self._next[rows] = following
        self._in_use.append(_InUse(number, rows, following))
        return Reading(missing, slots, unit.to(torch.int64), self._evicts)

    def find(self, rows: Tensor) -> Tensor:
        """Returns the slots of rows, [n] int64, `NO_SLOT` for those that are not in memory."""
        return self._slot[rows].to(torch.int64)

    # Ranges ######################################################################################

    def _ranges_before(self, number: int) -> range:
        """Returns the ranges that are read before a unit: before the first one all."""
        at = (number - self._start) % self._period
        return range(self._period) if number == self._start else range(at, at + 1)

    def _comes_back(self, at: Tensor | int, number: int) -> Tensor:
        """Returns when ranges are read next, after the reading before unit ``number``."""
        away = (torch.as_tensor(at) - (number - self._start)) % self._period
        return number + torch.where(away == 0, self._period, away)

    def _wanted(self, at: int, number: int) -> Tensor:
        """Returns the rows of a range that are not here and are needed before it is read again."""
        part = slice(at * self._width, (at + 1) * self._width)
        is_wanted = (self._next[part] < int(self._comes_back(at, number))) & (self._slot[part] < 0)
        return is_wanted.nonzero().view(-1) + at * self._width

    # Slots #######################################################################################

    def _retire(self, in_use_from: int, last: int) -> None:
        """Lets go of units that are not in use. ``last``: the latest unit that was prepared."""
        while self._in_use and self._in_use[0].number < in_use_from:
            one = self._in_use.popleft()
            # The others were used by a later unit.
            self._may_leave(one.rows[one.following > last], last)

    def _may_leave(self, rows: Tensor, last: int) -> None:
        """Notes rows that are needed only after their range is read again, if they are here."""
        rows = rows[self._slot[rows] >= 0]
        following = self._next[rows]
        is_over = following == NEVER
        self._note(NEVER, rows[is_over])
        rows, following = rows[~is_over], following[~is_over]
        may = following >= self._comes_back(rows // self._width, last)
        rows, following = rows[may], following[may]
        order = following.argsort(stable=True)
        uses, counts = following[order].unique_consecutive(return_counts=True)
        for use, some in zip(uses.tolist(), rows[order].split(counts.tolist()), strict=True):
            self._note(use, some)

    def _note(self, use: int, rows: Tensor) -> None:
        if rows.numel():
            self._leaving.setdefault(use, []).append(rows.to(torch.int32))

    def _take(self, count: int, number: int) -> Tensor:
        """Returns ``count`` slots, [count] int64; fewer if no more can be had."""
        found = []
        while count and self._free:
            some = self._free.pop()
            if some.numel() > count:
                self._free.append(some[count:])
            found.append(some[:count])
            count -= found[-1].numel()
        fresh = min(count, self.capacity - self._fresh)
        found.append(torch.arange(self._fresh, self._fresh + fresh))
        self._fresh, count = self._fresh + fresh, count - fresh
        while count and self._leaving:
            found.append(self._evict(max(self._leaving), count, number))
            count -= found[-1].numel()
        return torch.cat(found)

    def _evict(self, use: int, count: int, number: int) -> Tensor:
        """Takes the slots of at most ``count`` rows of a next use, those noted last first."""
        some = self._leaving[use]
        rows = some.pop().to(torch.int64)
        if not some:
            del self._leaving[use]
        rows = rows[(self._slot[rows] >= 0) & (self._next[rows] == use)]
        if use != NEVER:
            rows = rows[use >= self._comes_back(rows // self._width, number)]
        if rows.numel() > count:
            self._leaving.setdefault(use, []).append(rows[:-count].to(torch.int32))
            rows = rows[-count:]
        slots = self._slot[rows].to(torch.int64)
        self._slot[rows] = NO_SLOT
        self._evicts = True
        return slots


def first_uses(units: list[Tensor], rows: int, number: int) -> tuple[Tensor, list[Tensor]]:
    """Returns when each row is needed first, [rows] int32, and for each unit when its rows are
    needed next, [n] int32.

    Args:
        units: for each unit its rows, [n] int64.
        number: the number of the first unit.
    """
    use, following = torch.full((rows,), NEVER, dtype=torch.int32), []
    for at in range(len(units) - 1, -1, -1):
        following.append(ops.gather_rows(use, units[at]))
        use[units[at]] = number + at
    return use, following[::-1]


def simulate(units: list[Tensor], rows: int, capacity: int, period: int, in_use: int) -> list[int] | None:
    """Returns how many rows are read before each unit; None if memory does not hold them.

    Args:
        units: for each unit its rows, [n] int64 below ``rows``, ascending and distinct.
        capacity: the number of rows that memory holds.
        period: the units that a sweep takes.
        in_use: the units before one that are in use while it is prepared.
    """
    sweep, read = Sweep(rows, capacity), []
    first, following = first_uses(units, rows, 0)
    sweep.begin(first, 0, period)
    for number, (needed, later) in enumerate(zip(units, following, strict=True)):
        reading = sweep.prepare(number, needed, later, number - in_use)
        if reading.unit is None:
            return None
        read.append(reading.rows.numel())
    return read
