"""Looking up rows by the ids that users give them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from pyg_batchgnn.comm import Communicator
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
    """Looks up nodes by original id."""

    part: Part
    comm: Communicator

    noun: ClassVar[str] = "node ids"

    @property
    def num_rows(self) -> int:
        return self.part.book.num_nodes

    def locate(self, ids: Tensor) -> RowRequest:
        return RowRequest(internal_ids(self.part, self.comm, ids))


@dataclass(frozen=True, eq=False)
class EdgeLookup:
    """Looks up edges by input edge id."""

    part: Part
    comm: Communicator

    noun: ClassVar[str] = "edge ids"

    @property
    def num_rows(self) -> int:
        return self.part.num_edges

    def locate(self, ids: Tensor) -> RowRequest:
        return RowRequest(edge_targets(self.part, self.comm, ids), ids)
