"""What a rank can read of nodes and edges without asking anybody: its own part, and those of its host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.partition import Part, share_arrays

#: Before the names of tables among a host's arrays.
_NODE, _EDGE = "node/", "edge/"


@dataclass(frozen=True, eq=False)
class Holding:
    """The attributes of one part.

    Attributes:
        node: [n] ``book.id_dtype``, original ids.
        tables: node attributes by name, [n, ...].
        edge_tables: edge attributes by name, [e, ...].
        indptr: [n + 1] where each node's in-edges lie in the edge tables; empty where there are none.
        edge_ids: [e] input ids of the edges, ascending for each node; empty where there are no edge tables.
    """

    node: Tensor
    tables: dict[str, Tensor]
    edge_tables: dict[str, Tensor]
    indptr: Tensor
    edge_ids: Tensor

    def edge_rows(self, row: Tensor, edge: Tensor) -> Tensor:
        """Where edges lie in the edge tables, by bisection among the in-edges of their destinations.

        Args:
            row: [w] int64 destinations, as rows of this part.
            edge: [w] int64 input ids of the edges.

        Raises:
            IndexError: an edge is not among the in-edges of its destination.
        """
        low, high = self.indptr[row], self.indptr[row + 1]
        last = max(self.edge_ids.numel() - 1, 0)
        most = int((high - low).max()) if row.numel() else 0
        for _ in range(most.bit_length()):
            middle = (low + high) // 2
            below = (low < high) & (self.edge_ids[middle.clamp(max=last)] < edge)
            low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
        if row.numel() and not torch.equal(self.edge_ids[low.clamp(max=last)].to(edge.dtype), edge):
            raise IndexError("an edge was asked for that is not among the in-edges of its destination")
        return low


def holding_of(part: Part, floats: torch.dtype | None) -> Holding:
    """A part's attributes, and its splits as masks (``train_mask``), as rows that lie one behind the other.

    Args:
        part: its own tables are used where they lie, unless they are converted.
        floats: element type of attributes that are floating-point numbers; None leaves them as they are.
    """

    def rows(table: Tensor) -> Tensor:
        table = torch.as_tensor(table)
        wanted = floats if floats is not None and table.is_floating_point() else table.dtype
        return table.to(wanted).contiguous()

    empty = torch.empty(0, dtype=torch.int64)
    masks = {
        f"{name}_mask": _mask(part.num_nodes, index)
        for name, index in part.splits.items()
        if f"{name}_mask" not in part.tables
    }
    return Holding(
        node=part.node.to(part.book.id_dtype),
        tables={name: rows(table) for name, table in part.tables.items()} | masks,
        edge_tables={name: rows(table) for name, table in part.edge_tables.items()},
        indptr=part.indptr if part.edge_tables else empty,
        edge_ids=part.edge_ids if part.edge_tables else empty,
    )


def _mask(count: int, index: Tensor) -> Tensor:
    mask = torch.zeros(count, dtype=torch.bool)
    mask[index] = True
    return mask


def share_holding(own: Holding, comm: Communicator) -> dict[int, Holding]:
    """The holdings of this host's ranks by rank, in memory that they share; collective.

    This rank's own arrays are copied there.
    """
    if len(set(comm.hosts)) == comm.size:
        return {comm.rank: own}  # nobody has anybody to share with
    alone = len(comm.ranks_of_host) == 1
    shared = share_arrays(comm, {} if alone else _arrays(own))
    return {comm.rank: own} if alone else {rank: _holding(arrays) for rank, arrays in shared.items()}


def _arrays(own: Holding) -> dict[str, Tensor]:
    tables = {_NODE + name: table for name, table in own.tables.items()}
    edge_tables = {_EDGE + name: table for name, table in own.edge_tables.items()}
    return {"ids": own.node, "indptr": own.indptr, "edge_ids": own.edge_ids, **tables, **edge_tables}


def _holding(arrays: Mapping[str, Tensor]) -> Holding:
    def named(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}

    return Holding(arrays["ids"], named(_NODE), named(_EDGE), arrays["indptr"], arrays["edge_ids"])
