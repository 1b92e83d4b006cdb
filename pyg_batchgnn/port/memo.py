"""Rows of nodes that a model without gradients encodes once for many batches."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import nn
from pyg_batchgnn.port.program import Program
from pyg_batchgnn.port.structure import CopiedNodes, Copies, Structure, TypeName, same_bits


@dataclass
class Memory:
    left: int  # the bytes of rows that may still lie in memory
    scratch: str | Path | None = None  # the folder of files of other rows
    encoded: Counter[TypeName] = field(default_factory=Counter)  # the rows that were computed, by type

    def grown(self, table: Tensor, rows: int) -> Tensor:
        """Returns a table [rows, ...] that begins with the rows of another one."""
        shape = (rows, *table.shape[1:])
        size = math.prod(shape) * table.dtype.itemsize
        if size <= self.left:
            self.left -= size
            made = torch.empty(shape, dtype=table.dtype)
        else:
            with tempfile.NamedTemporaryFile(dir=self.scratch) as file:  # the mapping keeps it
                flat = torch.from_file(file.name, True, max(1, math.prod(shape)), dtype=table.dtype)
            made = flat[: math.prod(shape)].view(shape)
        made[: len(table)] = table
        return made


@dataclass
class _Known:
    """What is remembered of the nodes of a type."""

    memory: Memory
    place: Tensor  # by id, the row of a node in the tables, or -1
    count: int = 0  # how many nodes there are
    tables: dict[int, Tensor] = field(default_factory=dict)  # by value, a row for each

    def write(self, number: int, place: Tensor, rows: Any, count: int) -> Tensor:
        """Writes rows of a value, and returns its table. ``count``: how many rows it has then."""
        rows = rows.gather() if isinstance(rows, nn.RowView) else rows
        table = self.tables.get(number, rows[:0])
        if len(table) < count or number not in self.tables:
            table = self.tables[number] = self.memory.grown(table, max(count, 2 * len(table)))
        table[place] = rows
        return table


@dataclass
class _New:
    """The nodes of a type in a batch. Those that are not remembered as they are, are computed."""

    known: _Known
    ids: Tensor  # [D] int64, of the distinct nodes
    place: Tensor  # [D] int64, their rows in the tables
    rows: Tensor  # which of them are computed
    count: int  # how many nodes are remembered then
    nodes: CopiedNodes  # which row of the tables each node of the batch is
    inputs: dict[int, Tensor]  # by value, the attributes of those that are computed


@dataclass
class Fresh:
    """The nodes of a batch that no earlier one had as they are, by type."""

    of: dict[TypeName, _New]
    structure: Structure  # counts them in the place of all nodes, as if they were seeds

    @property
    def inputs(self) -> dict[int, Any]:
        return {number: one for new in self.of.values() for number, one in new.inputs.items()}

    def knows(self, axis: Any) -> bool:
        """Returns whether earlier batches had all nodes of an axis."""
        new = self.of.get(axis.name)
        return new is not None and len(new.rows) == 0 and new.known.count > 0

    def keep(self, name: TypeName, number: int, rows: Any) -> Tensor:
        """Writes the new rows of a value, and returns the rows of all nodes."""
        new = self.of[name]
        if len(new.rows) == 0 and number in new.known.tables:
            return new.known.tables[number]
        return new.known.write(number, new.place[new.rows], rows, new.count)

    def finish(self) -> None:
        """Remembers the nodes, once all of their rows are there."""
        for name, new in self.of.items():
            for number, one in new.inputs.items():
                new.known.write(number, new.place[new.rows], one, new.count)
            new.known.place[new.ids], new.known.count = new.place, new.count
            new.known.memory.encoded[name] += len(new.rows)


class Memo:
    """What a model encoded of nodes in earlier batches, by program and type."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._states: dict[Program, Any] = {}
        self._known: dict[Program, dict[TypeName, _Known]] = {}

    def fresh(
        self, program: Program, copies: Copies, rows: Mapping[int, Any], inputs: Sequence[Any], state: Any
    ) -> Fresh:
        """Compares the nodes of a batch with those that are remembered. ``rows``: the attributes of
        distinct nodes, by value. ``inputs``: of the program. ``state``: of the model."""
        values = zip(program.recording.inputs, inputs, strict=True)
        beside = [one for number, one in values if number in program.beside]
        now = state, [(one.data_ptr(), one._version) if isinstance(one, Tensor) else one for one in beside]
        if self._states.get(program) != now:
            self._states[program], self._known[program] = now, {}
        axes: Any = program.axes
        found: dict[TypeName, _New] = {}
        for name in dict.fromkeys(axes[one].name for one in rows):
            nowhere = _Known(self._memory, torch.empty(0, dtype=torch.int64))
            known = self._known[program].setdefault(name, nowhere)
            hops = [program.need[one] for one in program.kept if axes[one].name == name]
            own = {number: one for number, one in rows.items() if axes[number].name == name}
            found[name] = _compared(known, copies, name, max(hops, default=0), own)
        return Fresh(found, copies.distinct({name: len(one.rows) for name, one in found.items()}))


def _compared(known: _Known, copies: Copies, name: TypeName, hops: int, rows: Mapping[int, Any]) -> _New:
    nodes: Any = copies.nodes(name)
    distinct = sum(nodes.per_hop[: hops + 1])
    ids = copies.ids(name)[nodes.first[:distinct]]
    more = int(ids.max()) + 1 - len(known.place) if distinct else 0
    known.place = torch.cat([known.place, known.place.new_full((max(0, more),), -1)])
    place = known.place[ids]
    is_new = place < 0
    count = known.count + int(is_new.sum())
    place[is_new] = torch.arange(known.count, count)
    inputs = {
        number: one.head(distinct).gather() if isinstance(one, nn.RowView) else one[:distinct]
        for number, one in rows.items()
    }
    old = (~is_new).nonzero().view(-1)
    for number, one in inputs.items() if len(old) else ():
        is_new[old] |= ~same_bits(known.tables[number][place[old]], one[old])
    known.place[ids[is_new]] = -1  # until all of their rows are there
    new = is_new.nonzero().view(-1)
    inputs = {number: one[new] for number, one in inputs.items()}
    every = place[nodes.row[: copies.count(name, hops)]]
    return _New(known, ids, place, new, count, CopiedNodes(nodes.first, every, nodes.per_hop), inputs)
