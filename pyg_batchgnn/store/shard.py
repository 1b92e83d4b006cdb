"""A rank's rows of all attributes, and those of the other ranks of its host."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Field
from pyg_batchgnn.data import converted
from pyg_batchgnn.disk import DiskReader, DiskTable, ReadCounters, are_mapped
from pyg_batchgnn.partition import Part, PartitionBook, share_arrays
from pyg_batchgnn.types import Group


@dataclass(frozen=True, eq=False)
class FileRows:
    """A mapped table whose rows are read from its file by direct reads."""

    table: Tensor  # [rows, ...] mapped from the file, a `QuantizedTensor` where it holds codes; not read
    reader: DiskReader  # reads its rows past the page cache
    counters: ReadCounters = field(default_factory=ReadCounters)  # all that was read

    def place(self) -> Tensor:
        """Returns file, offset and shape as a text in bytes, from which `at` opens the table."""
        text = json.dumps(self.reader.table.to_json()).encode()
        return torch.frombuffer(bytearray(text), dtype=torch.uint8)

    @classmethod
    def at(cls, place: Tensor, like: Tensor) -> FileRows:
        """Opens the table that `place` describes, with the scales and offsets of ``like`` if it is
        quantised. Raises OSError if the file cannot be read here."""
        table = DiskTable.from_json(json.loads(bytes(place.tolist())))
        return cls(ops.rows_like(like, table.map()), DiskReader(table))

    def put(self, out: Tensor, index: Tensor) -> None:
        """Reads rows ``index`` [n], in any order, into ``out`` [n, ...], or into bytes with gaps
        between rows. Raises OSError, with the byte, if the file cannot be read."""
        table = self.reader.table
        row, place = index.to(torch.int64), None
        if not ops.is_ascending(row):
            row, place = torch.sort(row)
        to = out
        if not out.is_contiguous() or out.dtype != table.dtype:
            to = ops.empty((len(row), *table.row_shape), table.dtype)
        self.counters.add(self.reader.read(row, to, place))
        if to is not out:
            ops.put_rows(out, _bytes_of(to))


#: Names of a shard's arrays in shared memory: by group the original ids, the index and the tables.
_ORIGINAL, _INDEX, _TABLE, _DISK = "original", "index", "table", "disk"


@dataclass(frozen=True, eq=False)
class LocalShard:
    """The attributes of one part. int8-quantised tables are `QuantizedTensor`s. Their codes are
    shared, read from files and sent."""

    original: dict[Group, Tensor]  # by group of nodes, [n_t] ``book.id_dtype``, original ids
    attributes: dict[Group, dict[str, Tensor]]  # by group and name, [rows, ...] each
    index: dict[Group, EdgeIndex]  # by group of edges, the index that finds its rows
    disk: tuple[FileRows, ...] = ()  # the tables among them whose rows are read from their files

    def block(self, group: Group, columns: Columns) -> RowBlock:
        """Returns all rows of some attributes, without a copy."""
        tables = self.attributes[group]
        original = self.original[group] if columns.original_ids else None
        read = {name: tables[name] for name in columns.attributes}
        disk = {name: rows for name, table in read.items() for rows in self.disk if rows.table is table}
        return RowBlock(read, original, disk)

    def find(self, group: Group, request: RowRequest) -> Tensor:
        """Returns the positions of the requested rows in the group's tables."""
        return request.node if group.is_node else self.index[group].find(request)

    def with_attribute(self, group: Group, name: str, table: Tensor) -> LocalShard:
        """Returns the shard with one more attribute, without a copy."""
        return replace(self, attributes={**self.attributes, group: {**self.attributes[group], name: table}})

    def arrays(self) -> dict[str, Tensor]:
        """Returns all arrays by names from which `like` makes the shard again. A table in a file is
        replaced by a text that says where it lies."""
        found = {}
        for at, (group, tables) in enumerate(self.attributes.items()):
            if group.is_node:
                found[f"{at}/{_ORIGINAL}"] = self.original[group]
            else:
                found |= {f"{at}/{_INDEX}/{name}": array for name, array in vars(self.index[group]).items()}
            for name, table in tables.items():
                disk = next((rows for rows in self.disk if rows.table is table), None)
                if disk is None:
                    found[f"{at}/{_TABLE}/{name}"] = ops.as_stored(table)
                else:
                    found[f"{at}/{_DISK}/{name}"] = disk.place()
        return found

    def like(self, arrays: Mapping[str, Tensor]) -> LocalShard:
        """Makes a shard of the same groups, scales and offsets from `arrays`."""
        shard = LocalShard({}, {}, {})
        disk: list[FileRows] = []
        for at, (group, tables) in enumerate(self.attributes.items()):
            held = _below(arrays, f"{at}/{_TABLE}/")
            places = _below(arrays, f"{at}/{_DISK}/")
            files = {name: FileRows.at(place, tables[name]) for name, place in places.items()}
            shard.attributes[group] = {name: ops.rows_like(tables[name], one) for name, one in held.items()}
            shard.attributes[group] |= {name: rows.table for name, rows in files.items()}
            disk += files.values()
            if group.is_node:
                shard.original[group] = arrays[f"{at}/{_ORIGINAL}"]
            else:
                shard.index[group] = EdgeIndex(**_below(arrays, f"{at}/{_INDEX}/"))
        return replace(shard, disk=tuple(disk))

    def on_disk(self, budget: int) -> LocalShard:
        """Returns the shard with its largest mapped tables left in files: others fit ``budget``
        bytes."""
        every = [table for tables in self.attributes.values() for table in tables.values()]
        mapped = [
            (table, place)
            for table, is_there in zip(every, are_mapped(every), strict=True)
            if is_there and (place := DiskTable.of(table)) is not None
        ]
        mapped.sort(key=lambda one: one[0].nbytes)
        ends = itertools.accumulate(table.nbytes for table, _ in mapped)
        left = [one for one, end in zip(mapped, ends, strict=True) if end > budget]
        return replace(self, disk=tuple(FileRows(table, DiskReader(place)) for table, place in left))


def _below(arrays: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def shard_of(part: Part, floats: torch.dtype | None) -> LocalShard:
    """Makes a shard of a part's attributes, and of its splits as masks (``train_mask``). Tables are
    used in place, unless ``floats`` converts floating-point ones. int8-quantised ones stay
    quantised and are decoded into ``floats``."""

    part.check()
    schema = part.schema

    def rows(table: Tensor) -> Tensor:
        table = torch.as_tensor(table)
        if isinstance(table, ops.QuantizedTensor):
            return converted(table, floats or table.dtype)
        wanted = floats if floats is not None and table.is_floating_point() else table.dtype
        return table.to(wanted).contiguous()

    attributes = {
        group: {name: rows(table) for name, table in part.attributes.get(group, {}).items()}
        for group in (*schema.node_groups, *schema.edge_groups)
    }
    original = {
        group: part.original_ids(number).to(part.book.id_dtype)
        for number, group in enumerate(schema.node_groups)
    }
    for group, ids in original.items():
        for name, split in part.splits.get(group, {}).items():
            mask = torch.zeros(len(ids), dtype=torch.bool).index_fill_(0, split.long(), True)
            attributes[group].setdefault(f"{name}_mask", mask)
    index = {
        group: EdgeIndex(edges.indptr, edges.explicit_edge_ids()) if attributes[group] else EdgeIndex()
        for group, edges in zip(schema.edge_groups, part.relations, strict=True)
    }
    return LocalShard(original, attributes, index)


def share_shard(own: LocalShard, comm: Communicator) -> dict[int, LocalShard]:
    """Copies a shard to memory of the host. Returns the shards of the host's ranks. Collective."""
    if len(set(comm.hosts)) == comm.size:
        return {comm.rank: own}  # nobody has anybody to share with
    alone = len(comm.ranks_of_host) == 1
    shared = share_arrays(comm, {} if alone else own.arrays())
    return {comm.rank: own} if alone else {rank: own.like(arrays) for rank, arrays in shared.items()}


@dataclass(frozen=True, eq=False)
class RowRequest:
    """The rows of some nodes of one type, or of some edges of one relation. A rank owns the rows of
    its nodes and of their in-edges. So an edge's row is found by its target and its edge id."""

    # [n] int64, the nodes themselves or the destinations of the edges. A reader takes ascending
    # internal ids; `split` gives rows of the owners' parts.
    node: Tensor
    edge: Tensor | None = None  # [n] int64, the input ids of the edges; None for nodes

    def __len__(self) -> int:
        """The number of rows."""
        return self.node.numel()

    @property
    def columns(self) -> list[Tensor]:
        """The ids of the rows, one or two vectors [n], from which the request can be made again."""
        return [self.node] if self.edge is None else [self.node, self.edge]

    def take(self, order: Tensor) -> RowRequest:
        """Returns the rows in another order. ``order``: [n] int64 positions."""
        return RowRequest(*(column[order] for column in self.columns))

    def split(self, book: PartitionBook, node_type: int = 0) -> list[RowRequest]:
        """Cuts a request with ascending internal ids of one node type into one per part, ``node``
        counted from the part's first node of the type."""
        if not len(self):
            return [self] * book.parts
        own = [book.nodes_of(part, node_type) for part in range(book.parts)]
        ends = torch.searchsorted(self.node, torch.tensor([nodes.stop for nodes in own])).tolist()
        pieces = zip([0, *ends], ends, own, strict=False)
        return [
            RowRequest(
                self.node[begin:end] - nodes.start, None if self.edge is None else self.edge[begin:end]
            )
            for begin, end, nodes in pieces
        ]


@dataclass(frozen=True)
class Columns:
    """The attributes of a group to read."""

    attributes: Sequence[str] = ()  # names
    original_ids: bool = False  # True if the original ids of nodes are read too


@dataclass(frozen=True, eq=False)
class EdgeIndex:
    """Finds the rows of edges, which are in the order of the in-edges of a part's nodes."""

    #: [n + 1] int64, where each node's in-edges begin; empty where edges have no attributes
    indptr: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    #: [e] input ids of the edges, ascending for each node; empty where edges have no attributes
    edge_ids: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    def find(self, request: RowRequest) -> Tensor:
        """Finds edges by bisection among their targets' in-edges. Raises IndexError for a missing
        one."""
        assert request.edge is not None
        row, edge = request.node.long(), request.edge.long()
        low, high = self.indptr[row], self.indptr[row + 1]
        end, last = high, max(self.edge_ids.numel() - 1, 0)
        most = int((high - low).max()) if row.numel() else 0
        for _ in range(most.bit_length()):
            middle = (low + high) // 2
            below = (low < high) & (self.edge_ids[middle.clamp(max=last)] < edge)
            low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
        if not bool((low < end).all()) or not torch.equal(self.edge_ids[low].to(edge.dtype), edge):
            raise IndexError(
                "an edge was asked for that is not among the in-edges of its destination; give all ranks "
                "parts of the same graph"
            )
        return low


#: Makes a tensor from its shape and dtype.
Allocate = Callable[[tuple[int, ...], torch.dtype], Tensor]

#: Names of a row's columns: original ids and attributes are told apart.
_ORIGINAL_IDS, _ATTRIBUTE = "original", "attribute/"


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Rows of one group, in columns by attribute."""

    attributes: dict[str, Tensor]  # by name, [n, ...] each; a `QuantizedTensor` where the rows are codes
    # [n] int32 or int64, original ids of nodes, where they are read; else None.
    original: Tensor | None = None
    # By name, the attributes whose rows are read from their files.
    disk: Mapping[str, FileRows] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, Tensor]:
        """All tensors as they are stored, by names that tell attributes and original ids apart."""
        named = {_ATTRIBUTE + name: ops.as_stored(table) for name, table in self.attributes.items()}
        return named if self.original is None else {_ORIGINAL_IDS: self.original, **named}

    def like(self, columns: Mapping[str, Tensor]) -> RowBlock:
        """Makes a block of the same attributes from its `columns`."""
        attributes = {
            name: ops.rows_like(table, columns[_ATTRIBUTE + name]) for name, table in self.attributes.items()
        }
        return RowBlock(attributes, columns.get(_ORIGINAL_IDS))

    def put(self, out: Tensor, name: str, index: Tensor, *, as_bytes: bool = False) -> None:
        """Copies rows ``index`` [n] of a column to ``out`` [n, ...], or as bytes [n, bytes]."""
        disk = self.disk.get(name.removeprefix(_ATTRIBUTE)) if name != _ORIGINAL_IDS else None
        if disk is not None:
            disk.put(out, index)
        else:
            column = self.columns[name]
            ops.put_rows(out, _bytes_of(column) if as_bytes else column, index)

    def rows(self, begin: int, end: int) -> RowBlock:
        """Returns rows ``begin`` to ``end`` (exclusive), as views."""
        return self.like({name: column[begin:end] for name, column in self.columns.items()})


class RowFormat:
    """The layout of a group's rows as bytes in a message: columns with wide elements first,
    whatever order they are given in, and zeros up to a multiple of the widest element.
    ``wire_bytes``: of such a row. ``row_bytes``: of a row in a block."""

    def __init__(self, tables: RowBlock) -> None:
        fields = {name: Field(table.dtype, tuple(table.shape[1:])) for name, table in tables.columns.items()}
        self._fields = dict(sorted(fields.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])))
        ends = list(itertools.accumulate((field.bytes for field in self._fields.values()), initial=0))
        self._offsets = dict(zip(self._fields, ends, strict=False))
        widest = max((field.dtype.itemsize for field in fields.values()), default=1)
        self.row_bytes, self.wire_bytes = ends[-1], -(-ends[-1] // widest) * widest
        #: Without rows: the scales and offsets of codes.
        self._none = tables.rows(0, 0)

    def empty(self, rows: int, allocate: Allocate = ops.empty) -> RowBlock:
        """Makes a block of unwritten rows."""
        made = {name: allocate((rows, *field.shape), field.dtype) for name, field in self._fields.items()}
        return self._none.like(made)

    def gather(self, out: RowBlock, tables: RowBlock, index: Tensor) -> None:
        """Copies rows ``index`` [n] of ``tables`` to ``out``."""
        for name, column in out.columns.items():
            tables.put(column, name, index)

    def pack(self, tables: RowBlock, index: Tensor, out: Tensor) -> None:
        """Writes rows ``index`` [n] of ``tables`` as bytes to ``out`` [n * wire_bytes] uint8."""
        for name, column in self._columns(out).items():
            tables.put(column, name, index, as_bytes=True)
        if self.row_bytes < self.wire_bytes:
            out.view(-1, self.wire_bytes)[:, self.row_bytes :] = 0

    def unpack(self, packed: Tensor, out: RowBlock) -> None:
        """Reads rows that `pack` wrote, one for each row of ``out``."""
        columns = out.columns
        for name, column in self._columns(packed).items():
            ops.put_rows(_bytes_of(columns[name]), column)

    def _columns(self, packed: Tensor) -> dict[str, Tensor]:
        """Returns the bytes of each column of packed rows, [n, bytes] strided."""
        if not self.wire_bytes:
            return {}
        rows, offsets = packed.view(-1, self.wire_bytes), self._offsets
        return {
            name: rows[:, offsets[name] : offsets[name] + field.bytes]
            for name, field in self._fields.items()
            if field.bytes
        }


def _bytes_of(table: Tensor) -> Tensor:
    rows, width = table.size(0), math.prod(table.shape[1:]) * table.element_size()
    if not rows or not width:
        return torch.empty(rows, width, dtype=torch.uint8)
    return table.view(rows, -1).view(torch.uint8)
