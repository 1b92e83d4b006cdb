"""The tables of all node types."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Schema
from pyg_batchgnn.embed.owners import NodeOwners
from pyg_batchgnn.embed.rules import UpdateRule
from pyg_batchgnn.embed.table import EmbeddingTable, InitialRows, make_table


class EmbeddingTables:
    """The rows of the nodes that a rank owns, of every node type that has a table.

    Making the tables is collective, and so is every method that says so.

    Args:
        data: the graph; see `NodeOwners.of`.
        columns: the number of columns, by node type; a number alone is that of the only type.
        initial: the rule of initial rows.
        dtype: torch.float32 or torch.float64.
        comm: of all ranks; None makes one.

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
        """Waits for the updates that were started: for none here."""

    def _changed(self) -> None:
        """Notes that rows were overwritten."""

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
    """Ends the thread of a communicator of one process."""
    with contextlib.suppress(RuntimeError):  # the garbage collector may run on that very thread
        comm.close()


def _columns_by_type(columns: int | Mapping[str, int], schema: Schema) -> dict[int, int]:
    """Returns the number of columns of each type that has a table, in the order of types."""
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
