"""Attributes in files that do not fit memory: read by macrobatch, kept by Belady's rule.

See design, section 10.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.disk import DiskReader, DiskTable, ReadCounters, ReadPlan
from pyg_batchgnn.fetch.access import AccessString, Unit
from pyg_batchgnn.types import Group

#: Bytes of a cached row's node, next use and slot.
ENTRY_BYTES = 16
#: Epochs whose accesses are kept: an iterator may be broken off while another begins.
_EPOCHS = 2
#: Rows of a file that stand for all of it where reading is predicted.
_SPAN = 1 << 19


@dataclass
class DiskCounters(ReadCounters):
    """Counts over some units.

    Attributes:
        hits: rows that a cache had.
    """

    hits: int = 0


class DiskRows:
    """The rows of tables in files, and those of them that are kept in memory.

    Rows are read when the unit that needs them is prepared, each once. After a unit whose place in
    the epoch is known, those rows of the cache and of the unit stay that are needed soonest.

    Args:
        tables: by group and name, the tables. Rows of nodes are cached, rows of edges are not.
    """

    def __init__(self, tables: Mapping[Group, Mapping[str, DiskTable]]) -> None:
        self.tables = {group: dict(named) for group, named in tables.items()}
        self._readers = {
            group: {name: DiskReader(table) for name, table in named.items()}
            for group, named in self.tables.items()
        }
        self._caches: dict[Group, _RowCache] = {}
        self._capacity = 0
        self._strings: list[AccessString] = []
        self._lock = threading.Lock()

    @property
    def row_bytes(self) -> dict[Group, int]:
        """The bytes of a row of all tables, by group."""
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
        """The bytes that the caches take."""
        return sum(cache.nbytes for cache in self._caches.values())

    def set_capacity(self, nbytes: int) -> None:
        """Sets the bytes that the caches may take. What they hold is let go of."""
        with self._lock:
            self._capacity, self._caches = nbytes, {}

    def look_ahead(self, string: AccessString) -> None:
        """Takes the accesses of the units that come next."""
        with self._lock:
            if not self._caches:
                self._make_caches(string)
            cached = {group: cache.nodes.node for group, cache in self._caches.items()}
            for group, first in string.finish(cached).items():
                self._caches[group].begin_epoch(first)
            self._strings = [*self._strings[1 - _EPOCHS :], string]

    def read(
        self, ids: Mapping[Group, Tensor], unit: Unit | None = None
    ) -> tuple[dict[Group, dict[str, Tensor]], DiskCounters]:
        """Reads the rows of a unit.

        Args:
            ids: by group, [n] int64, ascending and distinct.
            unit: the place of the unit in its epoch; None if it is none of an epoch's units, whose
                rows do not stay.

        Returns:
            By group and name, [n, ...], and what it took.

        Raises:
            OSError: reading failed; it names the file and the byte.
        """
        with self._lock:
            string = next((one for one in reversed(self._strings) if one.knows(unit)), None)
            counters, blocks = DiskCounters(), {}
            for group, rows in ids.items():
                cache = self._caches.get(group)
                blocks[group] = self._block(group, rows, cache, counters)
                if cache is not None and string is not None and unit is not None:
                    cache.keep(rows, string.following(unit, group), blocks[group])
        return blocks, counters

    def predict(self, group: Group, rows: float) -> ReadPlan:
        """Returns what reading some rows of a group's tables takes, if they lie all over the files.

        A part of the file stands for all of it.
        """
        found = ReadPlan(0, 0, 0, 0.0)
        for reader in self._readers[group].values():
            span = min(reader.table.rows, _SPAN)
            count = min(span, round(rows * span / reader.table.rows))
            drawn = torch.rand(span, generator=torch.Generator().manual_seed(0)).argsort()[:count]
            plan = reader.plan(drawn.sort().values)
            scale = rows / max(1, count)
            found = ReadPlan(
                plan.gap,
                found.bytes + int(plan.bytes * scale),
                found.operations + int(plan.operations * scale),
                found.seconds + plan.seconds * scale,
            )
        return found

    def close(self) -> None:
        """Closes the files."""
        for named in self._readers.values():
            for reader in named.values():
                reader.close()

    def _make_caches(self, string: AccessString) -> None:
        """Shares the capacity out by the bytes that the groups' accesses take."""
        sizes = self.row_bytes
        wanted = {group: count * sizes[group] for group, count in string.accesses.items()}
        for group, count in self.num_rows.items():
            share = self._capacity * wanted[group] // max(1, sum(wanted.values()))
            rows = min(count, share // (sizes[group] + ENTRY_BYTES))
            self._caches[group] = _RowCache(rows, self.tables[group])

    def _block(
        self, group: Group, rows: Tensor, cache: _RowCache | None, counters: DiskCounters
    ) -> dict[str, Tensor]:
        slot = None if cache is None or not len(cache.nodes.node) else cache.nodes.find(rows)
        missing = None if slot is None else (slot < 0).nonzero().view(-1)
        asked = rows if missing is None else rows[missing]
        block = {}
        for name, reader in self._readers[group].items():
            table = reader.table
            block[name] = ops.empty((rows.numel(), *table.row_shape), table.dtype)
            counters.add(DiskCounters(**vars(reader.read(asked, block[name], missing))))
        if slot is not None and cache is not None:
            here = (slot >= 0).nonzero().view(-1)
            cache.fill(block, slot[here].long(), here)
            counters.hits += here.numel()
        return block


@dataclass(eq=False)
class _RowCache:
    """The rows of one group that stay in memory."""

    capacity: int  # the number of rows
    tables: Mapping[str, DiskTable]
    nodes: ops.CachedNodes = field(default_factory=ops.CachedNodes.none)  # which rows are here

    def __post_init__(self) -> None:
        # The system gives memory page by page, as slots are first used.
        self._rows = {
            name: torch.empty((self.capacity, *table.row_shape), dtype=table.dtype)
            for name, table in self.tables.items()
        }

    @property
    def nbytes(self) -> int:
        return sum(rows.nbytes for rows in self._rows.values()) + self.capacity * ENTRY_BYTES

    def begin_epoch(self, first: Tensor) -> None:
        """Takes the first use of each row that is here, [c] int32."""
        self.nodes = ops.CachedNodes(self.nodes.node, first, self.nodes.slot)

    def fill(self, block: Mapping[str, Tensor], slot: Tensor, place: Tensor) -> None:
        """Copies rows that are here, [k] int64, to places of a block, [k] int64."""
        for name, rows in self._rows.items():
            ops.move_rows(rows, slot, block[name], place)

    def keep(self, node: Tensor, following: Tensor, block: Mapping[str, Tensor]) -> None:
        """Keeps the rows that are needed soonest, of the cache and of a unit's block."""
        if not self.capacity:
            return
        self.nodes, taken, slot = self.nodes.keep(node, following, self.capacity)
        for name, rows in self._rows.items():
            ops.move_rows(block[name], taken, rows, slot.long())
