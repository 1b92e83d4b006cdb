"""The rows that a rank wants, and the columns of them that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.partition import PartitionBook


@dataclass(frozen=True, eq=False)
class RowRequest:
    """Some rows of one group, the nodes of one type or the edges of one relation.

    A rank owns the rows of its nodes and of their in-edges. So a node's row is found by the node's
    id, and an edge's row by the edge's id among the in-edges of its destination.

    Attributes:
        node: [n] int64, the nodes themselves or the destinations of the edges. A reader takes
            ascending internal ids; `split` gives rows of the owners' parts.
        edge: [n] int64, the input ids of the edges; None for nodes.
    """

    node: Tensor
    edge: Tensor | None = None

    def __len__(self) -> int:
        """The number of rows."""
        return self.node.numel()

    @property
    def columns(self) -> list[Tensor]:
        """The ids of the rows, one or two vectors [n]; a request can be made of them again."""
        return [self.node] if self.edge is None else [self.node, self.edge]

    def take(self, order: Tensor) -> RowRequest:
        """Returns the rows in another order. ``order``: [n] int64 positions."""
        return RowRequest(*(column[order] for column in self.columns))

    def split(self, book: PartitionBook, node_type: int = 0) -> list[RowRequest]:
        """Cuts ascending internal ids of one node type where the owner changes.

        Args:
            book: the owners.
            node_type: the number of the type.

        Returns:
            One request per part, its ``node`` counted from the part's first node of the type.
        """
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
    """The columns of a group's rows that are read.

    Attributes:
        attributes: names.
        original_ids: True if the original ids of nodes are read too.
    """

    attributes: Sequence[str] = ()
    original_ids: bool = False
