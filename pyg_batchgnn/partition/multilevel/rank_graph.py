"""A rank's share of an undirected graph with weights."""

from __future__ import annotations

from collections.abc import Sequence
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
        owned: how many of these each rank owns.
        needed: [m] int32, the own nodes that other ranks have as ghosts, by rank.
        counts: how many of these each rank has.
    """

    ids: Tensor
    owned: list[int]
    needed: Tensor
    counts: list[int]

    @classmethod
    def of(cls, comm: Communicator, ids: Tensor, bounds: Tensor) -> Ghosts:
        """Tells the owners of the ghosts who needs them. Collective."""
        owned = group_by_range(ids, bounds)
        asked = comm.exchange(*owned.sorted(ids), MessageKind.PARTITION)
        needed = (asked.rows - bounds[comm.rank]).to(torch.int32)
        return cls(ids, owned.counts, needed, asked.counts)

    def refresh(self, comm: Communicator, values: Tensor) -> None:
        """Overwrites the ghosts' values by their owners'. Collective.

        Args:
            comm: the communicator of all ranks.
            values: [n + ghosts, ...], those of own nodes first.
        """
        wanted, of_ghosts = self._split(values)
        of_ghosts.copy_(comm.exchange(wanted, self.counts, MessageKind.PARTITION).rows)

    def refresh_and_tell(self, comm: Communicator, values: Tensor, told: Sequence[Tensor]) -> list[Tensor]:
        """Overwrites the ghosts' values by their owners', and moves other numbers in the same
        exchange. Collective.

        Args:
            comm: the communicator of all ranks.
            values: [n + ghosts], those of own nodes first.
            told: [x], any numbers for each rank, of the dtype of ``values``.

        Returns:
            The numbers that each rank told this one.
        """
        wanted, of_ghosts = self._split(values)
        sent = torch.cat([one for both in zip(wanted.split(self.counts), told, strict=True) for one in both])
        del wanted  # large graphs have many ghosts
        counts = [count + len(one) for count, one in zip(self.counts, told, strict=True)]
        came = comm.exchange(sent, counts, MessageKind.PARTITION).split()
        torch.cat([rows[:size] for rows, size in zip(came, self.owned, strict=True)], out=of_ghosts)
        return [rows[size:] for rows, size in zip(came, self.owned, strict=True)]

    def _split(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Returns what other ranks need of this rank's values, and the place of the ghosts'."""
        own = len(values) - self.ids.numel()
        # Indexing would copy the numbers of the nodes to int64.
        return values[:own].index_select(0, self.needed), values[own:]


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

    def refresh_and_tell(self, values: Tensor, told: Sequence[Tensor]) -> list[Tensor]:
        """Refreshes ghosts' values [n + ghosts] and moves other numbers, as
        `Ghosts.refresh_and_tell`. Collective."""
        return self.ghosts.refresh_and_tell(self.comm, values, told)

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
