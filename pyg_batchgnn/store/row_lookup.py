"""Looking up rows by the ids that users give them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Group
from pyg_batchgnn.partition import Part
from pyg_batchgnn.store.directory import edge_targets, internal_ids
from pyg_batchgnn.store.row_request import RowRequest


class RowLookup(Protocol):
    """Turns the ids by which users know the rows of a group into a request to their owners."""

    #: What the ids are called in errors.
    noun: ClassVar[str]

    @property
    def num_rows(self) -> int:
        """The number of rows of the group, over all ranks."""

    def locate(self, ids: Tensor) -> RowRequest:
        """Looks up [n] int64 ids that users know; rows come in the order of the ids. Collective."""


@dataclass(frozen=True, eq=False)
class NodeLookup:
    """Looks up nodes of one type by original id."""

    part: Part
    comm: Communicator
    node_type: int = 0

    noun: ClassVar[str] = "node ids"

    @property
    def num_rows(self) -> int:
        return self.part.book.num_nodes_of(self.node_type)

    def locate(self, ids: Tensor) -> RowRequest:
        return RowRequest(internal_ids(self.part, self.comm, ids, node_type=self.node_type))


@dataclass(frozen=True, eq=False)
class EdgeLookup:
    """Looks up edges of one relation by input edge id."""

    part: Part
    comm: Communicator
    relation: int = 0

    noun: ClassVar[str] = "edge ids"

    @property
    def num_rows(self) -> int:
        return self.part.edge_counts[self.relation]

    def locate(self, ids: Tensor) -> RowRequest:
        return RowRequest(edge_targets(self.part, self.comm, ids, relation=self.relation), ids)


def lookups_of(part: Part, comm: Communicator) -> dict[Group, RowLookup]:
    """Returns the lookup of every group of a part's graph."""
    nodes = {group: NodeLookup(part, comm, number) for number, group in enumerate(part.schema.node_groups)}
    edges = {group: EdgeLookup(part, comm, number) for number, group in enumerate(part.schema.edge_groups)}
    return {**nodes, **edges}
