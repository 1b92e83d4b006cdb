"""The owners of nodes, and the nodes of this rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import HOMOGENEOUS, Schema
from pyg_batchgnn.partition import Part, PartitionBook
from pyg_batchgnn.store import CscGraph, DistGraphStore, TypedGraph, typed_graph_from_pyg


@dataclass(frozen=True, eq=False)
class NodeOwners:
    """The owners of all nodes, and the nodes of this rank.

    A graph that one process holds is one part, of which internal ids are original ids behind those
    of the types before.

    Attributes:
        schema: the node types and the relations.
        book: the owner and the type of each internal id.
        rank: this rank.
        part: this rank's part; None if one process holds the graph.
    """

    schema: Schema
    book: PartitionBook
    rank: int = 0
    part: Part | None = None

    @classmethod
    def of(cls, data: Any) -> NodeOwners:
        """Returns the owners of the nodes of a graph.

        Args:
            data: what loaders take; or a `Part`, a `CscGraph` or a `TypedGraph`.

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
        """Returns whether a graph is a pair of stores that is spread over ranks."""
        return isinstance(data, (tuple, list)) and any(isinstance(one, DistGraphStore) for one in data)

    def __str__(self) -> str:
        return f"{self.book} of the types {list(self.schema.node_types)}"

    def check_comm(self, comm: Communicator) -> None:
        """Raises ValueError unless there are as many ranks as parts."""
        if comm.size != self.book.parts or comm.rank != self.rank:
            raise ValueError(
                f"part {self.rank} of {self.book.parts} cannot be on rank {comm.rank} of {comm.size}; give "
                f"(DistFeatureStore, DistGraphStore) of a graph that is partitioned for {comm.size} ranks"
            )

    def original_ids(self, node_type: int) -> Tensor:
        """Returns the original ids of this rank's nodes of a type, [n_t] int64."""
        if self.part is not None:
            return self.part.original_ids(node_type)
        return torch.arange(self.book.num_nodes_of(node_type))

    def internal_ids(self, node_type: int, original: Tensor) -> Tensor:
        """Returns internal ids of original ids of a type, in one process."""
        first = self.book.nodes_of(0, node_type).start
        return original + first if first else original


def _counts(data: Any) -> tuple[Schema, list[int]]:
    """Returns the schema of a graph that one process holds, and the nodes of each type."""
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
