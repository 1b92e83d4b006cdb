"""Attributes in mapped files: which are held in memory, and which are read by macrobatch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.disk import DiskTable, is_written, read_whole
from pyg_batchgnn.fetch import AccessString, DiskCounters, DiskRows, Fetched, FetchGroup, Unit, distinct_nodes
from pyg_batchgnn.loader.schedule import WorkItem
from pyg_batchgnn.sample import AttributeRows, Minibatch, Placement, SampledMinibatch
from pyg_batchgnn.types import Group

#: The share of the budget that tables may take which are held whole.
_HELD = 0.75
#: The share of the budget that the list of an epoch's accesses may take in memory.
_STRING = 1 / 16

#: Attributes by group and name, as the user gave them.
Wanted = Mapping[Group, Mapping[str, Any]]


class MappedTables:
    """The user's tables in mapped files."""

    def __init__(self, wanted: Wanted, budget: int) -> None:
        found = [
            (table, value, group, name)
            for group, named in wanted.items()
            for name, value in named.items()
            if (table := disk_table(value)) is not None
        ]
        found.sort(key=lambda one: one[0].nbytes)
        # By the identity of the user's object, which is kept so that no other gets its number.
        self._mapped: dict[int, _Mapped] = {}
        self.budget, self.held_bytes = budget, 0
        on_disk: dict[Group, dict[str, DiskTable]] = {}
        for table, value, group, name in found:
            if id(value) not in self._mapped:
                fits = self.held_bytes + table.nbytes <= _HELD * budget
                self.held_bytes += table.nbytes if fits else 0
                held = ops.rows_like(value, read_whole(table)) if fits else None
                self._mapped[id(value)] = _Mapped(value, [], held)
            one = self._mapped[id(value)]
            one.places.append((group, name))
            if one.held is None:
                on_disk.setdefault(group, {})[name] = table
        self._on_disk = {
            place: one for one in self._mapped.values() if one.held is None for place in one.places
        }
        self.rows = DiskRows(on_disk) if on_disk else None

    @classmethod
    def of(cls, wanted: Wanted, budget: int) -> MappedTables | None:
        """Returns the mapped tables among the wanted ones; None if there are none."""
        found = cls(wanted, budget)
        return found if found._mapped else None

    def check(self) -> None:
        """Raises ValueError if this process has written to a table since the loader was made."""
        for one in self._mapped.values():
            if is_written(_as_tensor(one.value)):
                _, name = one.places[0]
                raise ValueError(
                    f"the attribute {name!r} is mapped from a file and was written to since the loader "
                    f"was made; what was written is in memory alone, and the loader reads the file: make a "
                    f"new loader, or save the values to the file first"
                )

    def held(self, value: Any) -> Any:
        """Returns the copy in memory of a table that is held whole; any other value as it is."""
        found = self._mapped.get(id(value))
        return value if found is None or found.held is None else found.held

    def like(self, group: Group, tables: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Gives rows that were read from files, by name, the scales and offsets of int8 codes."""
        return {name: ops.rows_like(self._on_disk[group, name].value, rows) for name, rows in tables.items()}

    def places(self, value: Any) -> Sequence[tuple[Group, str]]:
        """Returns (group, name) of each attribute that is this table, if its file is read."""
        found = self._mapped.get(id(value))
        return () if found is None or found.held is not None else found.places


@dataclass(frozen=True, eq=False)
class _Mapped:
    """A table of the user's in a mapped file."""

    value: Any  # the user's tensor or array
    places: list[tuple[Group, str]]  # the attributes that it is: their groups and names
    held: Tensor | None  # a copy in memory; None if rows are read from the file


def disk_table(value: Any) -> DiskTable | None:
    """Returns the place of a tensor or an array in a mapped file; None if it is not mapped."""
    value = _as_tensor(ops.as_stored(value))
    if type(value) not in (Tensor, torch.nn.Parameter) or value.device.type != "cpu" or value.requires_grad:
        return None
    if value.layout is not torch.strided or value.is_conj() or value.is_neg():
        return None
    return DiskTable.of(value)


def _as_tensor(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing writes to it
        try:
            return torch.from_numpy(value)
        except (TypeError, ValueError):
            return None


def unit_of(group: FetchGroup) -> Unit:
    return group.epoch, group.macrobatch, group.number


def wanted_ids(
    rows: DiskRows, minibatches: Sequence[SampledMinibatch], num_nodes: Sequence[int]
) -> tuple[dict[Group, Tensor], dict[Group, list[Tensor]]]:
    """Returns the distinct nodes and edges of some minibatches whose rows lie in files: by group
    the ids, [n] int64, ascending; and by group, for each minibatch, the places of its own."""
    ids, places = {}, {}
    schema = minibatches[0].schema
    for number, group in enumerate(schema.node_groups):
        if group in rows.tables:
            found = distinct_nodes([one.nodes[number].node for one in minibatches], num_nodes[number])
            ids[group], places[group] = found.node, found.places
    for number, group in enumerate(schema.edge_groups):
        if group in rows.tables:
            edges = [one.edges[number].edge for one in minibatches]
            known = [one for one in edges if one is not None]
            if len(known) == len(edges):
                ids[group], place = torch.unique(torch.cat(known), return_inverse=True)
                places[group] = list(place.split([one.numel() for one in known]))
    return ids, places


class DiskFetcher:
    """Reads rows of tables in files when a macrobatch is prepared. ``source``: a `DataSource` with
    the attributes in memory, which are gathered at the same time; None leaves them out."""

    def __init__(
        self, tables: MappedTables, rows: DiskRows, num_nodes: Sequence[int], source: Any = None
    ) -> None:
        self.rows, self._tables, self._num_nodes, self._source = rows, tables, num_nodes, source

    def fetch(self, group: FetchGroup) -> Fetched:
        ids, places = wanted_ids(self.rows, group.minibatches, self._num_nodes)
        beside: Mapping[Group, Mapping[str, Tensor]] = self._source.beside() if self._source else {}
        in_memory = {
            name: {key: ops.as_stored(table) for key, table in tables.items()}
            for name, tables in beside.items()
        }
        read, counters = self.rows.read(ids, unit_of(group), in_memory)
        tables = {name: self._like(name, rows.tables, beside.get(name, {})) for name, rows in read.items()}
        ready = []
        for at, minibatch in enumerate(group.minibatches):
            attributes = {
                name: AttributeRows(tables[name], rows.place(places[name][at]), Placement.BLOCK)
                for name, rows in read.items()
            }
            others = self._source.others(minibatch) if self._source else {}
            ready.append(Minibatch.of(minibatch, {**others, **attributes}))
        return Fetched(ready, bytes=counters.useful, disk=counters)

    def _like(
        self, group: Group, rows: Mapping[str, Tensor], beside: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Returns rows by name, with the scales and offsets of int8 codes."""
        of_files = {name: one for name, one in rows.items() if name not in beside}
        return {
            **self._tables.like(group, of_files),
            **{name: ops.rows_like(table, rows[name]) for name, table in beside.items()},
        }


@dataclass(eq=False)
class Continuation:
    """Lists the rows of the next epoch, a share at a time, while this one is trained."""

    epoch: int  # this epoch
    turn: int  # the macrobatch before which all must be told, as the sweeps reach the next epoch
    share: int  # the macrobatches of the next epoch to tell before each one of this
    string: AccessString  # what has been told
    # Tells a number of macrobatches more; None tells all that are left.
    tell: Callable[[int | None], None]


class LookAhead:
    """Samples fetch groups ahead to list the rows that they will need. They are sampled a second
    time when their batches are made."""

    def __init__(self, tables: MappedTables, rows: DiskRows, num_nodes: Sequence[int]) -> None:
        self.rows, self._tables, self._num_nodes = rows, tables, num_nodes
        self.budget = max(0, tables.budget - tables.held_bytes)
        self.forecast: Any = None
        self.continuation: Continuation | None = None

    @property
    def string_bytes(self) -> int:
        """The bytes of memory that the list of an epoch's rows may take."""
        return int(self.budget * _STRING)

    def add(self, string: AccessString, group: FetchGroup) -> None:
        """Adds the nodes of a fetch group to the list."""
        ids = {}
        for number, name in enumerate(group.minibatches[0].schema.node_groups):
            if name in self.rows.tables:
                nodes = [one.nodes[number].node for one in group.minibatches]
                ids[name] = ops.list_unique_nodes(nodes, self._num_nodes[number])
        string.append(unit_of(group), ids)

    def check(self) -> None:
        self._tables.check()

    def before(self, item: WorkItem) -> None:
        """Lists a share of the next epoch before a macrobatch of this one is prepared."""
        told = self.continuation
        if told is None or told.epoch != item.epoch or item.number < 0:
            return
        if item.number < told.turn:
            told.tell(told.share)
        else:
            told.tell(None)
            self.continuation = None
            self.rows.extend(told.string)

    def reach(self, groups: int) -> int:
        """Returns how many macrobatches of ``groups`` fetch groups the longest sweep takes."""
        return -(-max(self.rows.periods.values(), default=0) // groups)


class BlockReader:
    """Reads the rows of one PyG batch. ``minibatch``: has blocks with the rows of mapped tables;
    None reads their files."""

    def __init__(self, tables: MappedTables, minibatch: Minibatch | None) -> None:
        self._tables, self._minibatch = tables, minibatch
        self.counters = DiskCounters()

    def held(self, value: Any) -> Any:
        return self._tables.held(value)

    def read(self, value: Any, index: Tensor) -> tuple[Tensor, Tensor] | None:
        """Reads rows [n] of a table from its file. Returns a table in memory that holds them and
        the index of each row in it; None if the table is not read from a file."""
        places = self._tables.places(value)
        if not places:
            return None
        for group, name in places:
            block = None if self._minibatch is None else self._minibatch.attributes.get(group)
            if block is not None and block.row is not None and self._are_own(group, index):
                return block.tables[name], block.row
        group, name = places[0]
        assert self._tables.rows is not None
        ids, at = torch.unique(index, return_inverse=True)
        found, counters = self._tables.rows.read({group: ids})
        self.counters.add(counters)
        return self._tables.like(group, found[group].tables)[name], at

    def _are_own(self, group: Group, index: Tensor) -> bool:
        """Returns whether an index is the minibatch's own nodes or edges. A user's function may ask
        for others."""
        assert self._minibatch is not None
        schema = self._minibatch.schema
        own = (
            self._minibatch.nodes[schema.node_groups.index(group)].node
            if group.is_node
            else self._minibatch.edges[schema.edge_groups.index(group)].edge
        )
        return own is not None and (own is index or torch.equal(own, index))
