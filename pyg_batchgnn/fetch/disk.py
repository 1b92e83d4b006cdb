"""Attributes in files that do not fit memory: read in sweeps, into one table in memory.

See design, section 10.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.disk import DiskReader, DiskTable, ReadCounters
from pyg_batchgnn.fetch.access import AccessString, Unit
from pyg_batchgnn.fetch.sweep import LIST_BYTES, Sweep
from pyg_batchgnn.types import Group

#: Epochs whose accesses are kept: an iterator may be broken off while another begins.
_EPOCHS = 2
#: Rows of a file that stand for all of it where reading is predicted.
_SPAN = 1 << 19

# Units ############################################################################################


@dataclass
class DiskCounters(ReadCounters):
    """Counts of reading rows for some fetch groups."""

    hits: int = 0  # rows that units took from the table in memory


@dataclass(frozen=True, eq=False)
class UnitRows:
    """The rows of one group that a fetch group (unit) needs."""

    # By name, [rows, ...]. Nothing in them that the unit needs is overwritten while one of them, or
    # a view of one, lives.
    tables: dict[str, Tensor]
    # [n] int64, the row in the tables of each of the unit's nodes; None if they are the rows, in
    # order.
    row: Tensor | None

    def place(self, place: Tensor) -> Tensor:
        """Returns the rows in the tables of nodes given by position in the unit."""
        return place if self.row is None else ops.gather_rows(self.row, place)


@dataclass(frozen=True)
class Window:
    """How many fetch groups (units) may be in use while the next one is prepared."""

    macrobatches: int = 0  # the macrobatches that are prepared ahead
    groups: int = 1  # the fetch groups of a macrobatch

    def before(self, group: int) -> int:
        """Returns how many units before unit ``group`` of a macrobatch may be in use."""
        return self.macrobatches * self.groups + group if self.macrobatches else 1


class DiskRows:
    """Tables in files, of which some rows are kept in memory."""

    def __init__(self, tables: Mapping[Group, Mapping[str, DiskTable]]) -> None:
        self.tables = {group: dict(named) for group, named in tables.items()}
        self.periods: dict[Group, int] = {}
        self._readers = {
            group: {name: DiskReader(table) for name, table in named.items()}
            for group, named in self.tables.items()
        }
        self._resident: dict[Group, _ResidentRows] = {}
        self._capacity, self._window, self._units = 0, Window(), 0
        self._period: int | None = None
        self._strings: list[AccessString] = []
        self._lock = threading.Lock()
        self._is_resting = True
        _all.add(self)

    def __reduce__(self) -> tuple[type[DiskRows], tuple[Any, ...]]:
        return DiskRows, (self.tables,)  # a copy has files and memory of its own

    @property
    def row_bytes(self) -> dict[Group, int]:
        """The bytes of a row of all tables together, by group."""
        return {
            group: sum(table.row_bytes for table in named.values()) for group, named in self.tables.items()
        }

    @property
    def num_rows(self) -> dict[Group, int]:
        """The number of rows of the tables, by group of nodes."""
        return {
            group: max(table.rows for table in named.values())
            for group, named in self.tables.items()
            if group.is_node
        }

    @property
    def nbytes(self) -> int:
        """The bytes of the rows in memory."""
        return sum(one.nbytes for one in self._resident.values())

    def set_capacity(self, nbytes: int, window: Window, period: int | None = None) -> None:
        """Sets how many bytes of rows may stay in memory, and frees all rows that are there."""
        with self._lock:
            self._capacity, self._window, self._resident = nbytes, window, {}
            self._period = period

    def begin(self, held: int, key: int, follows: bool = False) -> AccessString:
        """Returns an empty list for the accesses of the next units."""
        if not follows:
            for other in list(_all):
                if other is not self:
                    other.release()
            with self._lock:
                self._is_resting = False
        return AccessString(self.num_rows, held, self._units, key, samples=not follows)

    def goes_on(self, unit: Unit, key: int) -> bool:
        """Returns whether a unit is listed and the next one to be prepared."""
        with self._lock:
            found = self._string_of(unit)
            number = None if found is None else found.number(unit)
            if found is None or number is None or found.key != key or not self._resident:
                return False
            if not all(one.sweep.follows(number) for one in self._resident.values()):
                return False
            self._is_resting, self._strings = False, [found]
            return True

    def extend(self, string: AccessString) -> None:
        """Appends units to the list of known ones."""
        with self._lock:
            first = string.finish()
            for group, resident in self._resident.items():
                resident.sweep.extend(first[group])
            self._strings[-1].be_followed(first)
            self._units = string.end
            self._strings = [*self._strings[1 - _EPOCHS :], string]

    def look_ahead(self, string: AccessString, goes_on: bool) -> None:
        """Takes the complete list of the next units."""
        with self._lock:
            if not self._resident:
                self._make_room(string.accesses)
            in_use = self._window.before(self._window.groups - 1)
            for group, first in string.finish().items():
                sweep = self._resident[group].sweep
                period = self._period or string.longest_period(group, sweep.capacity, in_use, goes_on)
                sweep.begin(first, self._units, period)
                self.periods[group] = period
            self._units = string.end
            self._strings = [*self._strings[1 - _EPOCHS :], string]

    def read(
        self,
        ids: Mapping[Group, Tensor],
        unit: Unit | None = None,
        beside: Mapping[Group, Mapping[str, Tensor]] | None = None,
    ) -> tuple[dict[Group, UnitRows], DiskCounters]:
        """Reads the rows of a unit. ``ids``: by group [n] int64, ascending and distinct.
        ``beside``: by group and name, tables in memory [rows, ...] from which the same rows are
        copied."""
        with self._lock:
            string = None if unit is None else self._string_of(unit)
            counters, found = DiskCounters(), {}
            for group, nodes in ids.items():
                more = (beside or {}).get(group, {})
                resident, rows = self._resident.get(group), None
                if resident is not None and string is not None and unit is not None:
                    rows = self._admitted(group, nodes, string, unit, more, counters)
                found[group] = rows or self._copied(group, nodes, more, counters)
        return found, counters

    def rest(self) -> None:
        """Marks the rows in memory as unused; they stay until another loader needs the memory."""
        self._is_resting = True

    def release(self) -> None:
        """Frees the rows in memory, if they are unused."""
        with self._lock:
            if self._is_resting:
                self._resident = {}

    def _string_of(self, unit: Unit) -> AccessString | None:
        return next((one for one in reversed(self._strings) if one.number(unit) is not None), None)

    def predict(self, group: Group, rows: float) -> tuple[float, float]:
        """Returns (bytes, requests) for reading this many rows of a group, spread over the files;
        measured on a part of each file."""
        found = torch.zeros(2, dtype=torch.float64)
        for reader in self._readers[group].values():
            span = min(reader.table.rows, _SPAN)
            count = min(span, round(rows * span / reader.table.rows))
            drawn = torch.rand(span, generator=torch.Generator().manual_seed(0)).argsort()[:count]
            found += torch.tensor(reader.predict(drawn.sort().values)) * (rows / max(1, count))
        return float(found[0]), float(found[1])

    def bytes_per_second(self) -> float:
        """Measures for a second how fast the largest table can be read."""
        readers = [reader for named in self._readers.values() for reader in named.values()]
        return max(readers, key=lambda one: one.table.nbytes).bytes_per_second()

    def close(self) -> None:
        """Closes the files."""
        for named in self._readers.values():
            for reader in named.values():
                reader.close()

    def _make_room(self, accesses: Mapping[Group, int]) -> None:
        """Divides the capacity among groups by the bytes of their accesses."""
        sizes = self.row_bytes
        wanted = {group: count * sizes[group] for group, count in accesses.items()}
        for group, count in self.num_rows.items():
            share = self._capacity * wanted[group] // max(1, sum(wanted.values()))
            rows = min(count, share // (sizes[group] + LIST_BYTES))
            self._resident[group] = _ResidentRows(self.tables[group], count, rows)

    def _admitted(
        self,
        group: Group,
        nodes: Tensor,
        string: AccessString,
        unit: Unit,
        beside: Mapping[str, Tensor],
        counters: DiskCounters,
    ) -> UnitRows | None:
        """Reads a unit's rows into slots of the rows in memory; None if there are too few slots."""
        number, resident = string.number(unit), self._resident[group]
        assert number is not None
        if not resident.sweep.follows(number):
            return None
        in_use_from = number - self._window.before(unit[2])
        reading = resident.sweep.prepare(number, nodes, string.following(unit, group, nodes), in_use_from)
        # Without a thread that prepares, nobody lets go of a unit while this one waits.
        seconds = PATIENCE if self._window.macrobatches else 0.0
        if reading.evicts and not resident.are_done(in_use_from, seconds, lambda: self._is_resting):
            self._resident[group] = resident.emptied()
            return None
        try:
            self._read(group, reading.rows, reading.slots, resident.columns, counters)
        except BaseException:
            # Slots may hold other rows than was noted. Units in use keep their columns.
            self._resident[group] = resident.emptied()
            raise
        counters.hits += nodes.numel()
        return None if reading.unit is None else resident.lease(number, nodes, reading.unit, beside)

    def _copied(
        self, group: Group, nodes: Tensor, beside: Mapping[str, Tensor], counters: DiskCounters
    ) -> UnitRows:
        """Reads a unit's rows into tables of their own."""
        resident = self._resident.get(group)
        tables = {
            name: ops.empty((nodes.numel(), *table.row_shape), table.dtype)
            for name, table in self.tables[group].items()
        }
        missing = torch.arange(nodes.numel())
        if resident is not None:
            slot = resident.sweep.find(nodes)
            here, missing = (slot >= 0).nonzero().view(-1), (slot < 0).nonzero().view(-1)
            for name, table in tables.items():
                ops.move_rows(resident.columns[name], slot[here], table, here)
        self._read(group, nodes[missing], missing, tables, counters)
        return UnitRows(
            {**tables, **{name: ops.gather_rows(one, nodes) for name, one in beside.items()}}, None
        )

    def _read(
        self, group: Group, rows: Tensor, place: Tensor, tables: Mapping[str, Tensor], counters: DiskCounters
    ) -> None:
        for name, reader in self._readers[group].items():
            counters.add(DiskCounters(**vars(reader.read(rows, tables[name], place))))


#: All readers of rows of this process.
_all: weakref.WeakSet[DiskRows] = weakref.WeakSet()

# Rows in memory ###################################################################################

#: Leases that may live at the same time. They begin at different rows of a table, by which they
#: are told apart.
_LEASES = 64
#: Seconds to wait for the user to let go of batches of a unit that others have followed. The rows
#: of batches that are kept for longer stay as they are, and rows in memory begin anew.
PATIENCE = 60.0


@dataclass(eq=False)
class _Lease:
    """The rows of a unit, in use by its minibatches."""

    number: int  # the unit's
    front: int  # the first row of its tables
    outstanding: Tensor  # [1] int32, 0 when nobody has them any more


class _ResidentRows:
    """The rows of one group in memory: slot s is row s + `_LEASES` of every column. ``rows``: of
    the tables in files. ``capacity``: the number of slots."""

    def __init__(self, tables: Mapping[str, DiskTable], rows: int, capacity: int) -> None:
        self._arguments = tables, rows, capacity
        self.sweep = Sweep(rows, capacity)
        self._all = {name: self._column(table.row_shape, table.dtype) for name, table in tables.items()}
        #: Those of tables in files, from slot 0 on.
        self.columns = {name: column[_LEASES:] for name, column in self._all.items()}
        self._leases: deque[_Lease] = deque()

    def _column(self, row_shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        # The system gives memory page by page, as slots are first used.
        column = torch.empty((_LEASES + self._arguments[2], *row_shape), dtype=dtype)
        ops.advise_huge_pages(column)
        return column

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())

    def emptied(self) -> _ResidentRows:
        """Returns the same number of slots without rows, for the next epoch."""
        return _ResidentRows(*self._arguments)

    def are_done(self, in_use_from: int, seconds: float, is_over: Callable[[], bool]) -> bool:
        """Waits until units before ``in_use_from`` are unused. ``is_over``: returns whether the
        iterator was closed. Returns False if the user keeps batches, so that their rows must
        stay."""
        until = time.monotonic() + seconds
        while any(one.number < in_use_from for one in self._under_way()):
            if is_over() or time.monotonic() >= until:
                return False
            time.sleep(1e-3)
        return True

    def _under_way(self) -> deque[_Lease]:
        self._leases = deque(one for one in self._leases if int(one.outstanding))
        return self._leases

    def lease(
        self, number: int, nodes: Tensor, slot: Tensor, beside: Mapping[str, Tensor]
    ) -> UnitRows | None:
        """Returns a unit's rows and tables' rows in memory; None if too many units are in use."""
        if len(self._under_way()) == _LEASES:
            return None
        for name, table in beside.items():
            column = self._all.get(name)
            if column is None or (column.dtype, column.shape[1:]) != (table.dtype, table.shape[1:]):
                self._all[name] = column = self._column(tuple(table.shape[1:]), table.dtype)
            ops.move_rows(table, nodes, column[_LEASES:], slot)
        taken = {one.front for one in self._leases}
        front = next(row for row in range(_LEASES) if row not in taken)
        lease = _Lease(number, front, torch.zeros(1, dtype=torch.int32))
        names = [*self.columns, *beside]
        tables = {name: ops.lease_rows(self._all[name], front, lease.outstanding) for name in names}
        self._leases.append(lease)
        return UnitRows(tables, slot + (_LEASES - front))
