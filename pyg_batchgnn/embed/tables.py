"""The table of a node type, and the owners of its rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.partition import Part, PartitionBook
from pyg_batchgnn.store import CscGraph, DistGraphStore, TypedGraph, typed_graph_from_pyg
from pyg_batchgnn.types import HOMOGENEOUS, Group, Schema

_EMBEDDING = int.from_bytes(b"embed", "little")


@dataclass(eq=False)
class EmbeddingTable:
    """A rank's rows of one node type."""

    group: Group  # the nodes
    node_type: int  # the number of their type
    node: Tensor  # [n] int64, the original id of each row's node
    weight: Tensor  # [n, F] float32 or float64, the rows
    state: tuple[Tensor, ...] = ()  # [n, F] each, what the optimizer keeps for each number
    frozen: Tensor | None = None  # [n] bool, the rows that no optimizer changes; None if there are none

    @property
    def columns(self) -> int:
        """The number of columns, F."""
        return self.weight.size(1)

    @property
    def rows(self) -> ops.RowTable:
        """The rows and their state as arguments of operators."""
        return ops.RowTable(self.weight, self.state, self.frozen)


@dataclass(frozen=True)
class InitialRows:
    """Initial rows: keyed uniform numbers in [-bound, bound)."""

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


@dataclass(frozen=True, eq=False)
class NodeOwners:
    """The owner of each node, and this rank's nodes."""

    schema: Schema  # the node types and the relations
    book: PartitionBook  # the owner and the type of each internal id
    rank: int = 0  # this rank
    part: Part | None = None  # this rank's part; None if one process holds the graph

    @classmethod
    def of(cls, data: Any) -> NodeOwners:
        """Returns the owners of the nodes of a graph."""
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
        """Returns internal ids [n] of a type's original ids, in one process."""
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
