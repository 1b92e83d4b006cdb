"""Attribute tables where a device reads them: in its own memory, a cache there, or on the host."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.device.lane import CpuLane, FeaturePlacement
from pyg_batchgnn.device.pinned import LockedRange, PinnedPool, described_limit, lock_pages
from pyg_batchgnn.disk import is_mapped
from pyg_batchgnn.fetch import as_table
from pyg_batchgnn.ops import QuantizedTensor
from pyg_batchgnn.types import Group

# Counting #########################################################################################


@dataclass
class BusTally:
    """Counts of what batches on a device read there and over the bus."""

    rows_from_device: int = 0  # of tables that lie on the device
    bytes_from_device: int = 0
    rows_from_device_cache: int = 0
    bytes_from_device_cache: int = 0
    rows_over_bus: int = 0  # from the host
    bytes_over_bus: int = 0
    topology_over_bus: int = 0  # bytes of ids and edges, and of batches that the CPU put together

    def add(self, other: BusTally) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def counts(self) -> dict[str, int]:
        """Returns the counts by the names of `LoaderCounters`."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


# Tables ###########################################################################################


class PlacedTable:
    """An attribute, placed for reads by a device."""

    def __init__(self, table: Tensor, device: torch.device) -> None:
        self.stored = ops.as_stored(table)
        # Codes of no rows on the device. Scales are checked here, once: that waits for the device.
        self._like = table[:0].to(device) if isinstance(table, QuantizedTensor) else None
        rows = max(1, self.stored.size(0))
        self.row_bytes = self.stored.nbytes // rows

    def rows(self, index: Tensor, host: Tensor, tally: BusTally) -> Tensor:
        """Returns rows on the device as they are stored (int8 codes stay codes; see `like`).
        ``index``, ``host``: the same row numbers, on the device and on the host."""
        raise NotImplementedError

    def like(self, rows: Tensor) -> Tensor:
        """Gives stored rows the table's scales and offsets, if it is quantised."""
        return ops.rows_like(self._like, rows)


class DeviceTable(PlacedTable):
    """A table in the device's memory."""

    def __init__(self, table: Tensor, device: torch.device) -> None:
        super().__init__(table, device)
        if self.stored.device != device or device.type == "cpu":
            self.stored = self.stored.detach().to(device, copy=True)

    @property
    def table(self) -> Tensor:
        return self.like(self.stored)

    def rows(self, index: Tensor, host: Tensor, tally: BusTally) -> Tensor:  # noqa: ARG002
        tally.rows_from_device += index.numel()
        tally.bytes_from_device += index.numel() * self.row_bytes
        return self.stored.index_select(0, index)


class HostTable(PlacedTable):
    """A table in host memory. The device may cache some of its rows."""

    def __init__(self, table: Tensor, places: HostRows) -> None:
        super().__init__(table, places.lane.device)
        self._places = places
        self.slots: CacheSlots | None = None
        self._cached: Tensor | None = None
        self._locked: LockedRange | None = None
        if places.lane.reads_host and self.stored.nbytes and places.may_lock(self.stored):
            locked = lock_pages(places.lane, self.stored.detach())
            self._locked = None if isinstance(locked, str) else locked
            if isinstance(locked, str) and self.stored.nbytes > 1 << 20:  # smaller ones may share a page
                warnings.warn(
                    f"a table of {self.stored.nbytes / 2**30:.2f} GiB cannot be registered ({locked}; the "
                    f"limit of locked memory, ulimit -l, is {described_limit()}): the CPU gathers its rows, "
                    f"which is slower; raise the limit",
                    stacklevel=2,
                )

    @property
    def locked_bytes(self) -> int:
        return 0 if self._locked is None else self._locked.nbytes

    @property
    def cache_bytes(self) -> int:
        return 0 if self._cached is None else self._cached.nbytes

    def fill(self, slots: CacheSlots) -> None:
        """Copies the cached rows to the device."""
        self.slots, self._cached = slots, self._copied(slots.node)

    def rows(self, index: Tensor, host: Tensor, tally: BusTally) -> Tensor:
        place = None if self.slots is None else ops.gather_rows(self.slots.host, host)
        hits = 0 if place is None else int((place >= 0).sum())
        tally.rows_from_device_cache += hits
        tally.bytes_from_device_cache += hits * self.row_bytes
        tally.rows_over_bus += host.numel() - hits
        tally.bytes_over_bus += (host.numel() - hits) * self.row_bytes
        if self._locked is not None:  # the device reads the rows itself
            from pyg_batchgnn.device.triton_rows import read_rows

            slots = None if self.slots is None else self.slots.there
            return read_rows(self.stored.detach(), index, self._cached, slots)
        if place is None or self._cached is None or not hits:
            return self._copied(host)
        missing = (place < 0).nonzero().view(-1)
        out = self._cached.index_select(0, self._places.sent(place.clamp(min=0)))
        if missing.numel():
            out.index_copy_(0, self._places.sent(missing), self._copied(host[missing]))
        return out

    def _copied(self, index: Tensor) -> Tensor:
        """Gathers rows into pinned memory and copies them to the device, piece by piece."""
        places, stored = self._places, self.stored.detach()
        shape = (index.numel(), *stored.shape[1:])
        out = torch.empty(shape, dtype=stored.dtype, device=places.lane.device)
        step = max(1, places.piece // max(1, self.row_bytes))
        for begin in range(0, index.numel() if self.row_bytes else 0, step):
            rows = index[begin : begin + step]
            with places.pinned(rows.numel() * self.row_bytes) as there:
                ops.put_rows(there.view(stored.dtype).view(-1, *shape[1:]), stored, rows)
                out[begin : begin + step].copy_(
                    there.view(stored.dtype).view(-1, *shape[1:]), non_blocking=True
                )
        return out


class CacheSlots:
    """The nodes of a type whose rows a device caches, ``node`` [c] int64, ascending. ``host``: [N]
    int32, each node's row in the cache, or -1. ``there``: the same on the device."""

    def __init__(self, node: Tensor, num_nodes: int, device: torch.device) -> None:
        self.node, self.host = node, torch.full((num_nodes,), -1, dtype=torch.int32)
        self.host[node] = torch.arange(node.numel(), dtype=torch.int32)
        self.there = self.host.to(device)


@dataclass(frozen=True, eq=False)
class HostRows:
    """Copies rows from the host to a device, through pinned memory."""

    lane: CpuLane
    pool: PinnedPool
    # The bytes of tables that may be registered; None for no bound but the system's.
    most_locked: int | None = None

    def may_lock(self, table: Tensor) -> bool:
        fits = self.most_locked is None or table.nbytes <= self.most_locked - self.pool.pinned_bytes
        return fits and not is_mapped(table)

    @property
    def piece(self) -> int:
        """The bytes copied at a time, so that gathering and copying overlap."""
        return max(1, min(_PIECE, self.pool.bound // 4))

    @contextlib.contextmanager
    def pinned(self, nbytes: int) -> Iterator[Tensor]:
        """Lends [nbytes] uint8 pinned, until the copies queued in the block are over."""
        block = self.pool.take(nbytes)
        try:
            yield block.bytes[:nbytes]
        finally:
            self.pool.give(block, self.lane.mark())

    def sent(self, tensor: Tensor) -> Tensor:
        """Copies a tensor to the device, piece by piece; int8 codes stay codes."""
        if isinstance(tensor, QuantizedTensor):
            return ops.rows_like(tensor[:0].to(self.lane.device), self.sent(tensor.codes))
        out = torch.empty(tensor.shape, dtype=tensor.dtype, device=self.lane.device)
        source, there = (one.reshape(-1).view(torch.uint8) for one in (tensor.detach().contiguous(), out))
        for begin in range(0, source.numel(), self.piece):
            bytes_ = source[begin : begin + self.piece]
            with self.pinned(bytes_.numel()) as block:
                block.copy_(bytes_)
                there[begin : begin + self.piece].copy_(block, non_blocking=True)
        return out


#: Bytes that are copied at once, at most.
_PIECE = 32 << 20

# Placing ##########################################################################################


#: Rows of at most this many bytes lie on the device: over the bus they cost as much as wider ones.
NARROW = 16


@dataclass(frozen=True)
class PlacingRules:
    """How tables are placed."""

    placement: FeaturePlacement = FeaturePlacement.AUTO  # the user's choice
    cache: int = 0  # bytes of rows of the host's tables that the device may hold
    # Bytes of tables of narrow rows that lie on the device though the choice is the host.
    narrow: int = 0
    block: int = 0  # bytes of the distinct rows of a fetch group that the device may hold


class PlacedTables:
    """The user's tables, placed for a device. ``by_name``: placed tables by group and name."""

    def __init__(
        self,
        wanted: Mapping[Group, Mapping[str, Any]],
        num_rows: Mapping[Group, int],
        held: Callable[[Any], Any],
        rules: PlacingRules,
        rows: HostRows,
    ) -> None:
        device, found = rows.lane.device, {}
        for group, named in wanted.items():
            for name, value in named.items():
                table = _table_of(held(value), device)
                if table is not None and table.size(0) >= num_rows[group]:
                    found[group, name] = value, table
        there = _on_device([one for _, one in found.values()], rules, rows.lane)
        self.by_name: dict[Group, dict[str, PlacedTable]] = {group: {} for group in wanted}
        self._by_value = dict[int, tuple[Group, str, Any]]()
        self._versions = list[tuple[Tensor, int]]()
        for (group, name), (value, table) in found.items():
            on_device = id(table) in there
            self.by_name[group][name] = DeviceTable(table, device) if on_device else HostTable(table, rows)
            self._by_value[id(value)] = group, name, value
            stored = ops.as_stored(table)
            if not stored.is_inference():
                self._versions.append((stored, stored._version))

    @property
    def is_current(self) -> bool:
        """False if torch has written to a table since it was placed."""
        return all(tensor._version == version for tensor, version in self._versions)

    def find(self, value: Any) -> tuple[Group, PlacedTable] | None:
        """Returns the group and placed table of the user's object, or None."""
        entry = self._by_value.get(id(value))
        return None if entry is None else (entry[0], self.by_name[entry[0]][entry[1]])

    def name_of(self, value: Any) -> str:
        """Returns the name of an attribute that `find` knows."""
        return self._by_value[id(value)][1]

    def host_tables(self, group: Group) -> dict[str, HostTable]:
        return {name: one for name, one in self.by_name[group].items() if isinstance(one, HostTable)}

    def every_host_table(self) -> list[HostTable]:
        return [one for group in self.by_name for one in self.host_tables(group).values()]

    def row_bytes(self, group: Group) -> int:
        return sum(one.row_bytes for one in self.by_name[group].values())

    def fill_cache(
        self,
        groups: Sequence[Group],
        num_nodes: Sequence[int],
        chosen: Mapping[int, Tensor],
        device: torch.device,
    ) -> None:
        """Copies the chosen rows to the device's cache."""
        for number, node in chosen.items():
            slots = CacheSlots(node, num_nodes[number], device)
            for table in self.host_tables(groups[number]).values():
                table.fill(slots)

    @property
    def device_bytes(self) -> int:
        """The bytes of tables on the device."""
        tables = [one for named in self.by_name.values() for one in named.values()]
        return sum(one.stored.nbytes for one in tables if isinstance(one, DeviceTable))

    @property
    def cache_bytes(self) -> int:
        """The bytes of cached rows on the device, with the nodes' places in the cache."""
        slots = {id(one.slots): one.slots for one in self.every_host_table()}
        places = sum(one.there.nbytes for one in slots.values() if one is not None)
        return places + sum(one.cache_bytes for one in self.every_host_table())


def _table_of(value: Any, device: torch.device) -> Tensor | None:
    """Returns an attribute as a dense table with rows of plain bytes, or None."""
    if isinstance(value, QuantizedTensor):
        dense = as_table(value.codes, 0)
        return value if isinstance(dense, Tensor) else None
    on_device = isinstance(value, Tensor) and value.device == device and device.type != "cpu"
    if on_device and type(value) is Tensor and value.layout is torch.strided and value.dim():
        return None if value.requires_grad else value
    table = as_table(value, 0)
    if isinstance(table, str) or table.requires_grad or table.is_quantized:
        return None
    return table.detach() if isinstance(value, (np.ndarray, torch.nn.Parameter)) else table


def is_table(value: Any) -> bool:
    """Returns whether an attribute can be placed; if not, the CPU selects its rows."""
    device = value.device if isinstance(value, Tensor) else torch.device("cpu")
    return _table_of(value, device) is not None


def _on_device(tables: Sequence[Tensor], rules: PlacingRules, lane: CpuLane) -> set[int]:
    """Returns the ids of the tables that fit the device, the narrowest first."""
    if rules.placement is FeaturePlacement.DEVICE:
        every, free = sum(ops.as_stored(one).nbytes for one in tables), lane.free_bytes()
        if every > free:
            raise ValueError(
                f"feature_placement='device', but the attributes take {every / 2**30:.2f} GiB and "
                f"{lane.device} has {free / 2**30:.2f} GiB free; use feature_placement='host' with a "
                f"device_cache"
            )
        return {id(one) for one in tables}
    is_host = rules.placement is FeaturePlacement.HOST
    left, chosen = (rules.narrow if is_host else lane.free_bytes() // 2), set()
    for table in sorted(tables, key=_row_bytes):
        stored = ops.as_stored(table)
        if stored.nbytes > left or (is_host and _row_bytes(table) > NARROW):
            break
        left -= stored.nbytes
        chosen.add(id(table))
    return chosen


def _row_bytes(table: Tensor) -> int:
    stored = ops.as_stored(table)
    return stored.nbytes // max(1, stored.size(0))
