"""The tables of all node types."""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.embed.rules import UpdateRule
from pyg_batchgnn.partition import Part, PartitionBook
from pyg_batchgnn.store import CscGraph, DistGraphStore, TypedGraph, typed_graph_from_pyg
from pyg_batchgnn.types import HOMOGENEOUS, Group, Schema

# Tables ###########################################################################################


class EmbeddingTables:
    """The rows of the nodes that a rank owns, of every node type that has a table.

    Making the tables is collective, and so is every method that says so.

    Attributes:
        owners: the owners of all rows.
        comm: the communicator.
        tables: the table of each type that has one, in the order of the types.
        steps: the number of steps that the optimizer made.
    """

    def __init__(
        self,
        data: Any,
        columns: int | Mapping[str, int],
        initial: InitialRows,
        dtype: torch.dtype,
        comm: Communicator | None,
    ) -> None:
        self.owners = NodeOwners.of(data)
        schema = self.owners.schema
        wanted = _columns_by_type(columns, schema)
        if dtype not in ops.ROW_DTYPES:
            raise TypeError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
        self.comm = Communicator.create("embedding") if comm is None else comm
        if comm is None and self.comm.size == 1:
            weakref.finalize(self, _close, self.comm)
        self.owners.check_comm(self.comm)
        self._agree(wanted, {"seed": initial.seed, "bound": initial.bound, "dtype": str(dtype)})
        self.tables = [
            make_table(schema, number, self.owners.original_ids(number), count, dtype)
            for number, count in wanted.items()
        ]
        for table in self.tables:
            initial.fill(table, schema)
        self.steps = 0

    def _agree(self, columns: Mapping[int, int], arguments: Mapping[str, Any]) -> None:
        schema, book = self.owners.schema, self.owners.book
        named = {f"columns of {schema.node_types[number]!r}": count for number, count in columns.items()}
        self.comm.run_job(
            lambda: self.comm.check_agreement({"partition book": book.digest, **named, **arguments})
        )

    def check_graph(self, data: Any) -> None:
        """Raises ValueError unless the tables are of the nodes of this graph."""
        if not isinstance(data, (Data, HeteroData)) and not NodeOwners.is_partitioned(data):
            return  # stores answer requests; their sizes are seen when rows are read
        theirs = NodeOwners.of(data)
        if (theirs.book, theirs.schema.node_types) != (self.owners.book, self.owners.schema.node_types):
            raise ValueError(
                f"the tables are of {self.owners}, but the graph has {theirs}; make the tables of the "
                f"loader's graph"
            )

    @property
    def node_types(self) -> list[str]:
        """The names of the node types that have a table."""
        return [str(table.group.name) for table in self.tables]

    def table_of(self, node_type: str | None = None) -> EmbeddingTable:
        """Returns the table of a node type, or the only one.

        Its rows are as they are after all updates that were started.

        Raises:
            KeyError: the type has no table.
            ValueError: no type is named, and there are several tables.
        """
        self.synchronize()
        if node_type is None:
            if len(self.tables) > 1:
                raise ValueError(f"there are tables of {self.node_types}; name one of them")
            return self.tables[0]
        if node_type not in self.node_types:
            raise KeyError(f"the node type {node_type!r} has no table; those that have: {self.node_types}")
        return self.tables[self.node_types.index(node_type)]

    def synchronize(self) -> None:
        """Waits for the updates that were started; there are none here."""

    def _changed(self) -> None:
        """Hears that rows were overwritten; nothing waits for them here."""

    def prepare(self, rule: UpdateRule) -> None:
        """Makes what a rule keeps for each number, unless it is there. `EmbeddingOptimizer` calls
        it.

        Raises:
            ValueError: the tables hold what another rule keeps.
        """
        for table in self.tables:
            if not table.state:
                table.state = tuple(torch.full_like(table.weight, value) for value in rule.initial)
            elif len(table.state) != len(rule.initial):
                raise ValueError(
                    f"the tables hold {len(table.state)} numbers for each weight, but {type(rule).__name__} "
                    f"keeps {len(rule.initial)}; take the rule that they were trained with"
                )

    def __repr__(self) -> str:
        sizes = ", ".join(
            f"{name}: {self.owners.book.num_nodes_of(table.node_type):,} x {table.columns}"
            for name, table in zip(self.node_types, self.tables, strict=True)
        )
        return f"{type(self).__name__}({sizes}; {self.comm!r})"


def _close(comm: Communicator) -> None:
    with contextlib.suppress(RuntimeError):  # the garbage collector may run on that very thread
        comm.close()


def _columns_by_type(columns: int | Mapping[str, int], schema: Schema) -> dict[int, int]:
    if not isinstance(columns, Mapping):
        if schema.num_types > 1:
            raise ValueError(
                f"the graph has the node types {list(schema.node_types)}; give the columns by type, for "
                f"instance {{{schema.node_types[0]!r}: {columns}}}"
            )
        columns = {schema.node_types[0]: columns}
    if not columns:
        raise ValueError("columns names no node type; give at least one")
    for name, count in columns.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"columns of {name!r} must be a number, at least 1, got {count!r}")
    return dict(sorted((schema.type_number(name), count) for name, count in columns.items()))


# Table ############################################################################################


_EMBEDDING = int.from_bytes(b"embed", "little")


@dataclass(eq=False)
class EmbeddingTable:
    """The rows of one node type that a rank holds. No rank holds all of them.

    Attributes:
        group: the nodes.
        node_type: the number of their type.
        node: [n] int64, the original id of each row's node.
        weight: [n, F] float32 or float64, the rows.
        state: [n, F] each, what the optimizer keeps for each number.
        frozen: [n] bool, the rows that no optimizer changes; None if there are none.
    """

    group: Group
    node_type: int
    node: Tensor
    weight: Tensor
    state: tuple[Tensor, ...] = ()
    frozen: Tensor | None = field(default=None)

    @property
    def columns(self) -> int:
        """The number of columns, F."""
        return self.weight.size(1)

    @property
    def rows(self) -> ops.RowTable:
        """The rows and their state as operators take them."""
        return ops.RowTable(self.weight, self.state, self.frozen)


@dataclass(frozen=True)
class InitialRows:
    """The rule of initial rows: keyed uniform numbers in [-bound, bound).

    A number is a function of (seed, node type, original id, column). So initial rows do not depend
    on ranks or threads.
    """

    seed: int  # any integer, taken modulo 2**64
    bound: float | None = None  # the largest absolute value; None is 1 / sqrt(F) of a table of F columns

    def fill(self, table: EmbeddingTable, schema: Schema) -> None:
        bound = 1 / math.sqrt(max(table.columns, 1)) if self.bound is None else self.bound
        key = ops.fold_key(ops.fold_key(0, self.seed % 2**64), _EMBEDDING)
        if schema.num_types > 1:
            key = ops.fold_key(key, ops.names_key([schema.node_types[table.node_type]]))
        ops.fill_uniform(table.weight, table.node, key, bound)


def make_table(
    schema: Schema, node_type: int, node: Tensor, columns: int, dtype: torch.dtype
) -> EmbeddingTable:
    weight = torch.empty(node.numel(), columns, dtype=dtype)
    ops.advise_huge_pages(weight)
    return EmbeddingTable(schema.node_groups[node_type], node_type, node, weight)


# Owners ###########################################################################################


@dataclass(frozen=True, eq=False)
class NodeOwners:
    """The owners of all nodes, and the nodes of this rank.

    A graph that one process holds is one part. Its internal ids are the original ids, one type
    after the other.
    """

    schema: Schema  # the node types and the relations
    book: PartitionBook  # the owner and the type of each internal id
    rank: int = 0  # this rank
    part: Part | None = None  # this rank's part; None if one process holds the graph

    @classmethod
    def of(cls, data: Any) -> NodeOwners:
        """Returns the owners of the nodes of a graph.

        ``data``: what loaders take; or a `Part`, a `CscGraph` or a `TypedGraph`.

        Raises:
            TypeError, ValueError: there is no graph, or its number of nodes is unknown.
        """
        if cls.is_partitioned(data):
            data = next(one for one in data if isinstance(one, DistGraphStore)).part
        if isinstance(data, Part):
            return cls(data.schema, data.book, data.number, data)
        schema, counts = _counts(data)
        for name, count in zip(schema.node_types, counts, strict=True):
            ops.check_node_count(f"the number of nodes of type {name!r}", count)
        offsets = torch.tensor([0, *counts]).cumsum(0)
        return cls(schema, PartitionBook(offsets, schema.num_types))

    @staticmethod
    def is_partitioned(data: Any) -> bool:
        return isinstance(data, (tuple, list)) and any(isinstance(one, DistGraphStore) for one in data)

    def __str__(self) -> str:
        return f"{self.book} of the types {list(self.schema.node_types)}"

    def check_comm(self, comm: Communicator) -> None:
        if comm.size != self.book.parts or comm.rank != self.rank:
            raise ValueError(
                f"part {self.rank} of {self.book.parts} cannot be on rank {comm.rank} of {comm.size}; give "
                f"(DistFeatureStore, DistGraphStore) of a graph that is partitioned for {comm.size} ranks"
            )

    def original_ids(self, node_type: int) -> Tensor:
        if self.part is not None:
            return self.part.original_ids(node_type)
        return torch.arange(self.book.num_nodes_of(node_type))

    def internal_ids(self, node_type: int, original: Tensor) -> Tensor:
        """Returns internal ids of original ids of a type, in one process."""
        first = self.book.nodes_of(0, node_type).start
        return original + first if first else original


def _counts(data: Any) -> tuple[Schema, list[int]]:
    if isinstance(data, CscGraph):
        return HOMOGENEOUS, [data.num_nodes]
    if isinstance(data, HeteroData):
        names, relations = data.metadata()
        found = [data[name].num_nodes for name in names]
        if None in found:
            name = names[found.index(None)]
            raise ValueError(f"the number of nodes of type {name!r} is unknown: set data[{name!r}].num_nodes")
        return Schema(tuple(names), tuple(relations)), found
    if isinstance(data, Data):
        if data.num_nodes is None:
            raise ValueError("the number of nodes is unknown: set data.num_nodes or an attribute such as x")
        return HOMOGENEOUS, [data.num_nodes]
    graph = data if isinstance(data, TypedGraph) else typed_graph_from_pyg(data)
    return graph.schema, list(graph.num_nodes)
