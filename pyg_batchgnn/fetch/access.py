"""The rows that an epoch is going to need: which, and when each is needed next.

Minibatches are pure functions of their seeds, so an epoch's accesses are known before it starts.
"""

from __future__ import annotations

import itertools
import math
import os
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.fetch.sweep import followed, simulate
from pyg_batchgnn.types import Group

#: Rows that stand for all of a table, about.
_SOME = 1 << 16
#: The share of the capacity that they may fill.
_MARGIN = 0.96
#: A period is found to one part in this number.
_PRECISION = 32

#: The place of a fetch group: epoch, macrobatch, number of the group in the macrobatch.
Unit: TypeAlias = tuple[int, int, int]


class AccessString:
    """The rows that each unit of an epoch needs, in order. A unit is the minibatches that are
    fetched together, a fetch group."""

    def __init__(
        self, num_rows: Mapping[Group, int], held: int, first: int = 0, key: int = 0, samples: bool = True
    ) -> None:
        self._num_rows, self._first, self.key = dict(num_rows), first, key
        self._next_first: dict[Group, Tensor] = {}  # first uses in the units that follow
        self._spill = _Spill(held)
        self._units: list[dict[Group, int]] = []
        self._number: dict[Unit, int] = {}
        #: By group, the number of rows that units need, summed over the units.
        self.accesses = dict.fromkeys(num_rows, 0)
        #: By group, for each unit those of its rows that stand for all.
        self._some = {group: list[Tensor]() for group in num_rows}
        self._samples = samples

    def append(self, unit: Unit, ids: Mapping[Group, Tensor]) -> None:
        """Adds the rows that the next unit needs: by group [n] int64, ascending and distinct."""
        places = {}
        for group, rows in ids.items():
            places[group] = self._spill.append(rows.to(ops.id_dtype(self._num_rows[group]), copy=True))
            self.accesses[group] += rows.numel()
            if self._samples:
                self._some[group].append(rows[rows % self._step(group) == 0])
        self._number[unit] = len(self._units)
        self._units.append(places)

    @property
    def end(self) -> int:
        """The number that the next unit to be appended gets."""
        return self._first + len(self._units)

    def finish(self) -> dict[Group, Tensor]:
        """Finds when each row is needed next. Returns by group [rows] int32, the number of the
        first unit that needs each row, or `NEVER`."""
        first = {}
        for group, count in self._num_rows.items():
            use = ops.next_uses(count)
            for number in range(len(self._units) - 1, -1, -1):
                place = self._units[number].get(group)
                if place is None:
                    continue
                rows = self._spill.read(place)
                self._spill.replace(place, ops.note_use(use, rows, self._first + number))
            first[group] = use
        return first

    def longest_period(self, group: Group, capacity: int, in_use: int, goes_on: bool = False) -> int:
        """Returns the longest period of a sweep, in units, for which the rows fit ``capacity``; 1
        if they fit for none. A sweep reads a file once, a range at a time."""
        step, units = self._step(group), max(1, len(self._units))
        rows = -(-self._num_rows[group] // step)
        some = [one // step for one in self._some[group]] * (2 if goes_on else 1)
        room = int(_MARGIN * capacity / step) if capacity < self._num_rows[group] else rows
        low, high = 1, units + 1  # the longest is from low to high - 1
        while high - low > max(1, low // _PRECISION):
            period = (low + high) // 2
            if simulate(some, rows, room, period, in_use) is None:
                high = period
            else:
                low = period
        return low

    def _step(self, group: Group) -> int:
        """Returns the step between the rows that are sampled; a prime, as ids may be regular."""
        numbers = itertools.count(max(1, self._num_rows[group] // _SOME))
        return next(n for n in numbers if all(n % d for d in range(2, math.isqrt(n) + 1)))

    def number(self, unit: Unit) -> int | None:
        """Returns the number of a unit; None if it was not listed."""
        found = self._number.get(unit)
        return None if found is None else self._first + found

    def be_followed(self, first: Mapping[Group, Tensor]) -> None:
        """Takes, by group, the first uses of rows in the list that follows this one."""
        self._next_first = dict(first)

    def following(self, unit: Unit, group: Group, rows: Tensor) -> Tensor:
        """Returns for each row of a unit the number of the next unit that needs it, [n] int32, or
        `NEVER`. ``rows``: [n] int64, the unit's rows."""
        found = self._spill.read(self._units[self._number[unit]][group]).to(torch.int32)
        first = self._next_first.get(group)
        return found if first is None else followed(found, rows, first)


# Vectors in memory and on disk ####################################################################


@dataclass
class _Spill:
    """Integer vectors, in memory up to a bound, then in an unnamed file."""

    left: int  # bytes that may still be kept in memory
    _held: list[Tensor | tuple[int, int, torch.dtype]] = field(default_factory=list)
    _file: _ScratchFile | None = None

    def append(self, vector: Tensor) -> int:
        """Keeps a vector, which the caller must not use any more. Returns its number."""
        if vector.nbytes <= self.left:
            self.left -= vector.nbytes
            self._held.append(vector)
        else:
            self._file = self._file or _ScratchFile()
            self._held.append((self._file.append(vector), vector.numel(), vector.dtype))
        return len(self._held) - 1

    def read(self, number: int) -> Tensor:
        held = self._held[number]
        if isinstance(held, Tensor):
            return held
        assert self._file is not None
        return self._file.read(*held)

    def replace(self, number: int, vector: Tensor) -> None:
        """Replaces a vector by one of the same length."""
        held = self._held[number]
        if isinstance(held, Tensor):
            self._held[number] = vector.to(held.dtype)
            return
        assert self._file is not None
        self._file.write(held[0], vector.to(held[2]))


class _ScratchFile:
    """An unnamed file of vectors, read and written past the page cache."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="pyg_batchgnn-")  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._end = 0

    def append(self, vector: Tensor) -> int:
        at, self._end = self._end, self._end + vector.nbytes
        self.write(at, vector)
        return at

    def write(self, at: int, vector: Tensor) -> None:
        """Writes a vector at byte ``at``. Raises OSError, with the folder, if the disk is full."""
        number, rest = self._file.fileno(), _bytes_of(vector)
        begin, size = at, len(rest)
        try:
            while len(rest):
                done = os.pwrite(number, rest, at)
                at, rest = at + done, rest[done:]
        except OSError as error:
            raise OSError(
                error.errno,
                f"the list of the rows that an epoch needs takes {size} bytes more in "
                f"{tempfile.gettempdir()} ({error.strerror}); set TMPDIR to a folder with more room, or give "
                f"a larger memory_budget",
            ) from error
        os.fdatasync(number)
        os.posix_fadvise(number, begin, size, os.POSIX_FADV_DONTNEED)

    def read(self, at: int, count: int, dtype: torch.dtype) -> Tensor:
        out = torch.empty(count, dtype=dtype)
        rest = _bytes_of(out)
        begin, size = at, len(rest)
        while len(rest):
            done = os.preadv(self._file.fileno(), [rest], at)
            at, rest = at + done, rest[done:]
        os.posix_fadvise(self._file.fileno(), begin, size, os.POSIX_FADV_DONTNEED)
        return out


def _bytes_of(vector: Tensor) -> memoryview:
    return memoryview(vector.contiguous().numpy().data).cast("B")
