"""Rows of nodes that a model without gradients encodes once for many batches."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import nn
from pyg_batchgnn.port.program import Program
from pyg_batchgnn.port.structure import CopiedNodes, Copies, Structure, TypeName, same_bits


@dataclass
class Memory:
    left: int  # the bytes of rows that may still lie in memory
    scratch: Any = None  # the folder of files of other rows
    encoded: Counter[TypeName] = field(default_factory=Counter)  # the rows that were computed

    def grown(self, table: Tensor, rows: int) -> Tensor:
        """Returns a table [rows, ...] that begins with the rows of another one."""
        shape = (rows, *table.shape[1:])
        size = math.prod(shape) * table.dtype.itemsize
        if size <= self.left:
            self.left -= size
            made = torch.empty(shape, dtype=table.dtype)
        else:
            with tempfile.NamedTemporaryFile(dir=self.scratch) as file:  # the mapping keeps it
                made = torch.from_file(file.name, True, math.prod(shape), dtype=table.dtype).view(shape)
        made[: len(table)] = table
        return made


@dataclass
class _OfType:
    """The nodes of a type that are remembered, and those that the batch of now adds."""

    memory: Memory
    place: Tensor  # by id, the row of a node in the tables, or -1
    count: int = 0  # how many nodes there are
    tables: dict[int, Tensor] = field(default_factory=dict)  # by value, a row for each

    def compare(self, copies: Copies, name: TypeName, hops: int, inputs: Mapping[int, Any]) -> None:
        """Finds the nodes up to some hops that are not remembered with these attributes."""
        nodes: Any = copies.nodes(name)
        distinct = sum(nodes.per_hop[: hops + 1])
        self.ids = copies.ids(name)[nodes.first[:distinct]]
        more = int(self.ids.max()) + 1 - len(self.place) if distinct else 0
        self.place = torch.cat([self.place, self.place.new_full((max(0, more),), -1)])
        self.now = self.place[self.ids]  # the rows of these nodes in the tables
        is_new = self.now < 0
        old = (~is_new).nonzero().view(-1)
        self.then = self.count + int(is_new.sum())
        self.now[is_new] = torch.arange(self.count, self.then)
        rows = {
            number: (one.gather() if isinstance(one, nn.RowView) else one) for number, one in inputs.items()
        }
        for number, one in rows.items() if len(old) else ():
            is_new[old] |= ~same_bits(self.tables[number][self.now[old]], one[old])
        self.place[self.ids[is_new]] = -1  # until all of their rows are there
        self.new = is_new.nonzero().view(-1)
        self.inputs = {number: one[self.new] for number, one in rows.items()}
        every = self.now[nodes.row[: copies.count(name, hops)]]
        self.nodes = CopiedNodes(nodes.first, every, nodes.per_hop)

    def keep(self, number: int, rows: Any) -> Tensor:
        """Writes the new rows of a value, and returns its table."""
        table = self.tables.get(number)
        if not len(self.new) and table is not None:
            return table
        rows = rows.gather() if isinstance(rows, nn.RowView) else rows
        table = rows[:0] if table is None else table
        if len(table) < self.then:
            table = self.memory.grown(table, max(self.then, 2 * len(table)))
        table[self.now[self.new]] = rows
        self.tables[number] = table
        return table


@dataclass
class Fresh:
    """The nodes of a batch that no earlier one had as they are, by type."""

    of: Mapping[TypeName, _OfType]
    structure: Structure  # counts them in the place of all nodes, as if they were seeds

    @property
    def inputs(self) -> dict[int, Any]:
        return {number: one for each in self.of.values() for number, one in each.inputs.items()}

    def knows(self, axis: Any) -> bool:
        """Returns whether earlier batches had all nodes of an axis."""
        one = self.of.get(axis.name)
        return one is not None and len(one.new) == 0 and one.count > 0

    def finish(self) -> None:
        """Remembers the nodes, once all of their rows are there."""
        for name, one in self.of.items():
            for number, rows in one.inputs.items():
                one.keep(number, rows)
            one.place[one.ids], one.count = one.now, one.then
            one.memory.encoded[name] += len(one.new)


class Memo:
    """What a model encoded of nodes in earlier batches, by program and type."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._known: dict[Program, tuple[Any, dict[TypeName, _OfType]]] = {}

    def fresh(
        self, program: Program, copies: Copies, rows: Mapping[int, Any], inputs: Sequence[Any], state: Any
    ) -> Fresh:
        """Compares the nodes of a batch with those that are remembered. ``rows``: the attributes of
        distinct nodes, by value. ``inputs``: of the program. ``state``: of the model."""
        values = zip(program.recording.inputs, inputs, strict=True)
        beside = [one for number, one in values if number in program.beside]
        tensors = [one for one in beside if isinstance(one, Tensor) and not one.is_inference()]
        versions = [(id(one), one._version, one.data_ptr()) for one in tensors]
        numbers = [id(one) if isinstance(one, Tensor) else one for one in beside]
        now = state, versions, numbers, torch.is_inference_mode_enabled()
        if program not in self._known or self._known[program][0] != now:
            self._known[program] = now, {}
        known, axes = self._known[program][1], program.axes
        names: dict[TypeName, dict[int, Any]] = {}
        for number, one in rows.items():
            names.setdefault(axes[number].name, {})[number] = one  # type: ignore[union-attr]
        for name, own in names.items():
            of_type = known.setdefault(name, _OfType(self._memory, torch.empty(0, dtype=torch.int64)))
            hops = [program.need[one] for one in program.kept if axes[one].name == name]  # type: ignore[union-attr]
            of_type.compare(copies, name, max(hops, default=0), own)
        found = {name: known[name] for name in names}
        return Fresh(found, copies.distinct({name: len(one.new) for name, one in found.items()}))
