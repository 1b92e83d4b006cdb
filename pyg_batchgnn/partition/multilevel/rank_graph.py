"""A rank's share of an undirected graph with weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.ops import MergedLists, WeightedGraph
from pyg_batchgnn.partition.move import Grouping, Remote, group_by_range


@dataclass(frozen=True, eq=False)
class Ghosts:
    """The nodes of other ranks that a rank's nodes have edges to.

    Attributes:
        ids: [ghosts], ascending.
        needed: [m] int32, the own nodes that other ranks have as ghosts, by rank.
        counts: how many of these each rank has.
    """

    ids: Tensor
    needed: Tensor
    counts: list[int]

    @classmethod
    def of(cls, comm: Communicator, ids: Tensor, bounds: Tensor) -> Ghosts:
        """Tells the owners of the ghosts who needs them. Collective."""
        asked = comm.exchange(*group_by_range(ids, bounds).sorted(ids), MessageKind.PARTITION)
        return cls(ids, (asked.rows - bounds[comm.rank]).to(torch.int32), asked.counts)

    def refresh(self, comm: Communicator, values: Tensor) -> None:
        """Overwrites the ghosts' values by their owners'. Collective.

        Args:
            comm: the communicator of all ranks.
            values: [n + ghosts, ...], those of own nodes first.
        """
        own = values[: len(values) - self.ids.numel()]
        wanted = own.index_select(0, self.needed)  # indexing would copy the numbers to int64
        found = comm.exchange(wanted, self.counts, MessageKind.PARTITION).rows
        values[len(own) :] = found


@dataclass(frozen=True, eq=False)
class RankGraph:
    """A rank's share of an undirected graph with weights.

    The nodes of the whole graph have ids from 0 on, and each rank has a range of them.

    Attributes:
        comm: the communicator of all ranks.
        bounds: [ranks + 1] int64, where each rank's range begins.
        lists: the neighbours of the rank's nodes.
        ghosts: the nodes of other ranks among them.
        id_dtype: the dtype of ids.
    """

    comm: Communicator
    bounds: Tensor
    lists: WeightedGraph
    ghosts: Ghosts
    id_dtype: torch.dtype

    @classmethod
    def of(cls, comm: Communicator, bounds: Tensor, merged: MergedLists, node_weight: Tensor) -> RankGraph:
        """Makes a graph of lists that hold ids of the whole graph. Collective.

        Args:
            comm: the communicator of all ranks.
            bounds: [ranks + 1] int64, where each rank's range of ids begins.
            merged: the lists of this rank's nodes.
            node_weight: [n, k] int32, the weights of this rank's nodes.
        """
        own = range(*bounds[comm.rank : comm.rank + 2].tolist())
        ghosts, local = ops.number_ghosts(merged.ids, own, int(bounds[-1]))
        lists = WeightedGraph(merged.indptr, local, node_weight, _edge_weight(comm, merged), ghosts.numel())
        return cls(comm, bounds, lists, Ghosts.of(comm, ghosts, bounds), merged.ids.dtype)

    @property
    def first(self) -> int:
        """The id of this rank's first node."""
        return int(self.bounds[self.comm.rank])

    @property
    def total(self) -> int:
        """The number of nodes of the whole graph."""
        return int(self.bounds[-1])

    def group(self, node: Tensor) -> Grouping:
        """Groups ids [n] by the rank that has the nodes."""
        return group_by_range(node, self.bounds)

    def own_ids(self) -> Tensor:
        """Returns the ids of this rank's nodes."""
        return torch.arange(self.first, self.first + self.lists.num_nodes, dtype=self.id_dtype)

    def ids(self) -> Tensor:
        """Returns the ids of this rank's nodes, then those of its ghosts."""
        return torch.cat([self.own_ids(), self.ghosts.ids])

    def with_ghosts(self, own: Tensor) -> Tensor:
        """Returns the values of own nodes, then of ghosts. Collective."""
        values = torch.empty(self.lists.num_all, *own.shape[1:], dtype=own.dtype)
        values[: len(own)] = own
        self.refresh(values)
        return values

    def refresh(self, values: Tensor) -> None:
        """Overwrites the ghosts' values [n + ghosts, ...] by their owners'. Collective."""
        self.ghosts.refresh(self.comm, values)

    def remote(self, table: Tensor) -> Remote:
        """Returns a table of which each rank has the rows of its nodes, to be pulled by id."""
        return Remote(
            self.group,
            lambda node: table.index_select(0, node.sub_(self.first)),
            tuple(table.shape[1:]),
            table.dtype,
        )


def _edge_weight(comm: Communicator, merged: MergedLists) -> Tensor | None:
    """Returns the weights of the edges, None where all weigh the same on all ranks. Collective."""
    own = merged.uniform if merged.ids.numel() else -1
    found = {int(uniform) for uniform in comm.all_gather_json(own)} - {-1}
    if 0 not in found and len(found) <= 1:
        return None
    if merged.uniform:
        return torch.full((merged.ids.numel(),), merged.uniform, dtype=torch.int32)
    return merged.weight
