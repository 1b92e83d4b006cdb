"""Ways to the rows of tables other than the steps of training: by id, in files, as features."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Header, MessageKind
from pyg_batchgnn.embed.step_plan import StepPlanner
from pyg_batchgnn.embed.steps import read_rows
from pyg_batchgnn.embed.table_files import export_table, load_tables, read_table, save_tables
from pyg_batchgnn.embed.tables import EmbeddingTable, EmbeddingTables
from pyg_batchgnn.partition import share_arrays
from pyg_batchgnn.store import DistFeatureStore, internal_ids
from pyg_batchgnn.types import FEATURES

# Tables ###########################################################################################


class AccessibleTables(EmbeddingTables):
    """Tables whose rows are read by id, frozen, and kept in files."""

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


# Features #########################################################################################


def as_features(table: EmbeddingTable, data: Any, name: str) -> Any:
    """Returns a graph with the rows of a table as the last columns of an attribute.

    Collective if the graph is a pair of stores. The graph given is not changed.

    Raises:
        TypeError: another kind of graph.
    """
    if isinstance(data, (tuple, list)) and isinstance(data[0], DistFeatureStore):
        features: DistFeatureStore = data[0]
        columns = _columns(table, features.own.attributes[table.group], name)
        rows = features.comm.run_job(lambda: _shared(features, columns))
        return features.with_table(table.group, name, rows), *data[1:]
    if not isinstance(data, (Data, HeteroData)):
        raise TypeError(
            f"data must be a Data, a HeteroData or (DistFeatureStore, DistGraphStore), got a "
            f"{type(data).__name__}"
        )
    other = copy.copy(data)
    store = other[str(table.group.name)] if isinstance(other, HeteroData) else other
    store[name] = _columns(table, store, name)
    return other


def _columns(table: EmbeddingTable, attributes: Any, name: str) -> Tensor:
    """Returns a copy of the rows, behind the attribute's columns if there are any."""
    held = [attributes[name]] if name in attributes else []
    return torch.cat([*held, table.weight.to(held[0].dtype if held else table.weight.dtype)], dim=1)


def _shared(features: DistFeatureStore, columns: Tensor) -> Mapping[int, Tensor]:
    comm = features.comm
    if not comm.max(len(features.readable) > 1):
        return {comm.rank: columns}
    return {rank: arrays["rows"] for rank, arrays in share_arrays(comm, {"rows": columns}).items()}
