"""The tables of all node types: their rows by id, in files, and frozen."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.data import FEATURES, Schema
from pyg_batchgnn.embed.features import as_features
from pyg_batchgnn.embed.load import load_tables
from pyg_batchgnn.embed.owners import NodeOwners
from pyg_batchgnn.embed.plan import StepPlanner
from pyg_batchgnn.embed.rules import UpdateRule
from pyg_batchgnn.embed.save import save_tables
from pyg_batchgnn.embed.table import EmbeddingTable, InitialRows, make_table
from pyg_batchgnn.embed.whole import export_table, read_table
from pyg_batchgnn.embed.wire import read_rows
from pyg_batchgnn.store import internal_ids


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
        if comm is None:
            weakref.finalize(self, self.comm.close)
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

    # Rows by other means ##########################################################################

    def rows(self, node: Tensor, node_type: str | None = None) -> Tensor:
        """Returns the rows of nodes by original id, for evaluation and predictions. Collective.

        Args:
            node: [n] int64 original ids; any number on any rank.
            node_type: the type of the nodes; not needed if there is one table.

        Returns:
            [n, F], without a gradient.
        """
        table = self.table_of(node_type)
        at = self.tables.index(table)
        none = torch.empty(0, dtype=torch.int64)

        def read() -> Tensor:
            internal = self._internal_ids(node, table.node_type)
            number = range(self.owners.schema.num_types)
            wanted = [internal if one == table.node_type else none for one in number]
            planner = StepPlanner(self.owners, [one.node_type for one in self.tables])
            (plan,) = planner.plan([wanted], Header(MessageKind.EMBEDDINGS), self.comm)
            return read_rows(self.tables, plan, self.comm)[at]

        return self.comm.run_job(read)

    def _internal_ids(self, node: Tensor, node_type: int) -> Tensor:
        part = self.owners.part
        if part is None:
            return self.owners.internal_ids(node_type, node)
        return internal_ids(part, self.comm, node, node_type=node_type)

    def as_features(self, data: Any, name: str = FEATURES, node_type: str | None = None) -> Any:
        """Returns a graph with the present rows as features, for the inference of all nodes.

        The rows are the last columns of the attribute, behind those that it has. Collective over
        ranks.

        Args:
            data: the graph of these tables: a ``Data``, a ``HeteroData``, or (DistFeatureStore,
                DistGraphStore). It is not changed.
            name: the attribute.
            node_type: the type of the nodes; not needed if there is one table.
        """
        self.check_graph(data)
        return as_features(self.table_of(node_type), data, name)

    def freeze(self, node: Tensor | None = None, node_type: str | None = None) -> None:
        """Keeps rows as they are from now on, those that are frozen already included.

        Args:
            node: original ids, or a mask with one bool for each node of the type; the same on
                every rank. None stands for all nodes.
            node_type: the type of the nodes; not needed if there is one table.
        """
        table = self.table_of(node_type)
        count = self.owners.book.num_nodes_of(table.node_type)
        mask = torch.zeros(count, dtype=torch.bool)
        if node is None:
            mask.fill_(True)
        elif node.dtype == torch.bool:
            if node.shape != (count,):
                raise ValueError(f"the mask must be of the {count} nodes, got shape {list(node.shape)}")
            mask = node
        else:
            ops.check_ids("node", node, count)
            mask[node] = True
        own = mask[table.node]
        table.frozen = own if table.frozen is None else table.frozen | own

    def read_rows(self, path: str | Path, node_type: str | None = None) -> None:
        """Overwrites the rows of a type by those of a ``.npy`` file. Collective.

        Args:
            path: of the file, with one row per node in the order of original ids. It is mapped,
                and never unpickled.
            node_type: the type; not needed if there is one table.

        Raises:
            DatasetError: the file is missing or damaged, or has other rows.
        """
        table = self.table_of(node_type)
        count = self.owners.book.num_nodes_of(table.node_type)
        self.comm.run_job(lambda: read_table(table, count, Path(path).expanduser(), self.comm))
        self._changed()

    def export_rows(self, path: str | Path, node_type: str | None = None) -> None:
        """Writes the rows of a type to one ``.npy`` file, which is replaced. Collective.

        No rank holds all rows. The first rank writes them in the order of original ids.

        Raises:
            DatasetError: the file cannot be written.
        """
        table = self.table_of(node_type)
        count = self.owners.book.num_nodes_of(table.node_type)
        self.comm.run_job(lambda: export_table(table, count, Path(path).expanduser(), self.comm))

    def save(self, folder: str | Path) -> None:
        """Writes all rows, and what the optimizer keeps, to a new folder. Collective.

        Every rank writes its own part. All ranks must see the same file system.

        Raises:
            DatasetError: the folder exists, or a rank cannot write.
        """
        self.synchronize()
        counts = [self.owners.book.num_nodes_of(table.node_type) for table in self.tables]
        self.comm.run_job(lambda: save_tables(self.tables, counts, self.steps, folder, self.comm))

    def load(self, folder: str | Path) -> None:
        """Reads what `save` wrote on any number of ranks. Collective.

        Training goes on as if it had not stopped: on as many ranks with the same bits.

        Raises:
            DatasetError: a file is damaged or missing, or of other tables.
        """
        self.synchronize()
        self.steps = self.comm.run_job(lambda: load_tables(self.tables, folder, self.comm))
        self._changed()

    def __repr__(self) -> str:
        sizes = ", ".join(
            f"{name}: {self.owners.book.num_nodes_of(table.node_type):,} x {table.columns}"
            for name, table in zip(self.node_types, self.tables, strict=True)
        )
        return f"{type(self).__name__}({sizes}; {self.comm!r})"


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
