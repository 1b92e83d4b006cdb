"""Rows that a model computed for all nodes, read by original id or piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch_geometric.data import TensorAttr

from pyg_batchgnn.comm import MessageKind, RowLayout
from pyg_batchgnn.data import Group, RowKind
from pyg_batchgnn.store import DistFeatureStore, OwnRows, SortedNodes

_NAME = "rows"


@dataclass(frozen=True, eq=False)
class EmbeddedNodes:
    """The rows of some nodes of one type.

    Attributes:
        node: [n] int64, original ids.
        rows: [n, columns].
    """

    node: Tensor
    rows: Tensor

    def __len__(self) -> int:
        return len(self.node)

    def find(self, ids: Tensor) -> OwnRows:
        """Finds the nodes of a list, [m] int64 original ids, that are among these."""
        return SortedNodes.of(self.node).find(ids)

    def ascending(self) -> EmbeddedNodes:
        """Returns the nodes in ascending order."""
        order = self.node.argsort()
        return EmbeddedNodes(self.node[order], self.rows[order])


class EmbeddedRows(Protocol):
    """The rows of all nodes of a graph."""

    def of(self, node_type: str, ids: Tensor) -> Tensor:
        """Returns [n, columns], the rows of some nodes of a type; collective over ranks.

        Args:
            node_type: the type.
            ids: [n] int64, original ids. Each rank gives some of its own choice, possibly none.
        """

    def own(self, node_type: str) -> EmbeddedNodes:
        """Returns the rows of the nodes of a type that this rank owns."""

    def pieces(self, node_type: str, size: int) -> Iterator[EmbeddedNodes]:
        """Yields the rows of all nodes of a type to every rank, a piece at a time; collective.

        Each node is in one piece. Pieces are the same on every rank, with ascending ids in each.

        Args:
            node_type: the type.
            size: the most nodes of a piece, but at least one of each rank.
        """


@dataclass(frozen=True, eq=False)
class RowsHere:
    """Rows that are all in this process.

    Attributes:
        rows: [N_t, columns] by node type, in the order of original ids.
    """

    rows: Mapping[str, Tensor]

    def of(self, node_type: str, ids: Tensor) -> Tensor:
        return self.rows[node_type][ids]

    def own(self, node_type: str) -> EmbeddedNodes:
        rows = self.rows[node_type]
        return EmbeddedNodes(torch.arange(len(rows)), rows)

    def pieces(self, node_type: str, size: int) -> Iterator[EmbeddedNodes]:
        own = self.own(node_type)
        for node, rows in zip(own.node.split(size), own.rows.split(size), strict=True):
            yield EmbeddedNodes(node, rows)


@dataclass(frozen=True, eq=False)
class RowsOverRanks:
    """Rows that lie with the owners of the nodes.

    Attributes:
        store: holds them as an attribute.
    """

    store: DistFeatureStore

    @classmethod
    def beside(cls, features: DistFeatureStore, rows: Mapping[str, Tensor]) -> RowsOverRanks:
        """Returns the rows of all ranks; collective.

        Args:
            features: the attributes of the same nodes.
            rows: [n_t, columns] by node type, those of this rank's own nodes.
        """
        schema = features.part.schema
        tables: dict[Group, dict[str, Tensor]] = {
            group: {} for group in (*schema.node_groups, *schema.edge_groups)
        }
        for name, found in rows.items():
            tables[Group(RowKind.NODE, name)][_NAME] = found
        return cls(DistFeatureStore(replace(features.part, attributes=tables), features.comm, share=False))

    def of(self, node_type: str, ids: Tensor) -> Tensor:
        name = node_type if self.store.part.schema.has_names else None
        rows = self.store.get_tensor(TensorAttr(name, _NAME, index=ids))
        return torch.as_tensor(rows)

    def own(self, node_type: str) -> EmbeddedNodes:
        part = self.store.part
        rows = self.store.own.attributes[Group(RowKind.NODE, node_type)][_NAME]
        return EmbeddedNodes(part.original_ids(part.schema.type_number(node_type)), rows)

    def pieces(self, node_type: str, size: int) -> Iterator[EmbeddedNodes]:
        own, comm = self.own(node_type), self.store.comm
        each = max(1, size // comm.size)
        layout = RowLayout.of({"node": own.node, "rows": own.rows})
        for begin in range(0, max(1, comm.max(len(own))), each):
            part = slice(begin, begin + each)
            packed = layout.pack({"node": own.node[part], "rows": own.rows[part]})
            found = layout.unpack(comm.all_gather(packed, MessageKind.INFERENCE).rows)
            yield EmbeddedNodes(found["node"], found["rows"]).ascending()
