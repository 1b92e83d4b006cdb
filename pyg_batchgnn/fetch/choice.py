"""The choice of the rows of a feature cache.

Every remote node has a probability of being in a minibatch (`inclusion`). A row in the cache spares
its bytes on the wire with this probability, and takes bytes of the budget. Rows are taken in
descending order of the bytes that one byte of the cache is expected to spare. Rows of one type are
of one width, so they are taken in descending order of probability.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.data import Group
from pyg_batchgnn.fetch.cached_rows import bytes_in_cache
from pyg_batchgnn.fetch.inclusion import SeedShare, inclusion
from pyg_batchgnn.partition import Part, PartitionBook
from pyg_batchgnn.sample import SamplingPlan
from pyg_batchgnn.store import RowReader


@dataclass(frozen=True)
class CacheRequest:
    """The purpose of a feature cache.

    Attributes:
        budget: the bytes of rows and ids that a rank may hold.
        plan: the plan by which minibatches are sampled.
        seeds: the seeds that they are made of.
    """

    budget: int
    plan: SamplingPlan
    seeds: SeedShare


def choose_rows(
    part: Part, held: Collection[int], reader: RowReader, request: CacheRequest
) -> dict[Group, Tensor]:
    """Chooses the remote rows that are to stay on this rank; collective.

    Args:
        part: this rank's part.
        held: the ranks whose rows can be read here without asking, and that can read this rank's.
        reader: reads the attributes that are wanted.
        request: the purpose of the cache.

    Returns:
        By group of nodes, [c] int64 internal ids, ascending.
    """
    comm, schema = reader.comm, part.schema
    price = _Price.of(reader, schema.node_groups, part.book)
    none = torch.empty(0, dtype=torch.int64)
    chosen = none
    if comm.max(0 if len(held) == comm.size else price.most_rows(request.budget)):
        candidates = [torch.empty(0, 2, dtype=torch.float64)] * comm.size
        own = torch.arange(part.first, part.first + part.num_nodes)
        for ranks, likely in inclusion(part, comm, request.plan, request.seeds):
            for at, rank in enumerate(ranks):
                if rank not in held:
                    column = likely[:, at if likely.size(1) == len(ranks) else 0]
                    ranked = price.ranked(own, price.value(own, column), request.budget)
                    candidates[rank] = ranked.offered(request.budget)
        chosen = _chosen(comm, candidates, price, request.budget)
    kind = part.book.type_of(chosen)
    return {group: chosen[kind == number] for number, group in enumerate(schema.node_groups)}


@dataclass(frozen=True, eq=False)
class _Price:
    """The bytes that a node takes in the cache and those that it spares, by node type.

    Attributes:
        book: tells the type of each node.
        held: [types] int64, bytes of a node in the cache.
        spared: [types] int64, bytes of a row on the wire.
    """

    book: PartitionBook
    held: Tensor
    spared: Tensor

    @classmethod
    def of(cls, reader: RowReader, groups: Sequence[Group], book: PartitionBook) -> _Price:
        formats = [reader.format(group) for group in groups]
        held = torch.tensor([bytes_in_cache(one) for one in formats])
        return cls(book, held, torch.tensor([one.wire_bytes for one in formats]))

    def most_rows(self, budget: int) -> int:
        """Returns the largest number of rows that a budget holds."""
        useful = self.held[self.spared > 0]
        return budget // int(useful.min()) if useful.numel() else 0

    def value(self, node: Tensor, probability: Tensor) -> Tensor:
        """Returns the bytes that one byte of the cache is expected to spare, [n] float64."""
        worth = self.spared.to(torch.float64) / self.held
        if self.book.num_types == 1:
            return probability.to(torch.float64) * worth
        return probability.to(torch.float64) * worth[self.book.type_of(node)]

    def ranked(self, node: Tensor, value: Tensor, budget: int) -> _Ranked:
        """Ranks nodes by value, as many as a budget may hold and one more.

        Nodes without a value are left out.
        """
        top = value.topk(min(self.most_rows(budget) + 1, int((value > 0).sum())))
        ids = node[top.indices]
        return _Ranked(ids, top.values, self.held[self.book.type_of(ids)])


@dataclass(frozen=True, eq=False)
class _Ranked:
    """Nodes in descending order of value.

    Attributes:
        node: [k] int64 internal ids.
        value: [k] float64.
        held: [k] int64, the bytes of each in the cache.
    """

    node: Tensor
    value: Tensor
    held: Tensor

    def offered(self, budget: int) -> Tensor:
        """Returns the nodes that may be among the best of all owners, [k, 2] float64 with values.

        They are those that fit the budget, and the first that does not.
        """
        may_fit = self.held.cumsum(0) - self.held < budget
        return torch.stack([self.node.to(torch.float64), self.value], 1)[may_fit]

    def chosen(self, budget: int) -> Tensor:
        """Returns the nodes up to the first that does not fit the budget, [c] int64 ascending."""
        return self.node[self.held.cumsum(0) <= budget].sort().values


def _chosen(comm: Communicator, candidates: list[Tensor], price: _Price, budget: int) -> Tensor:
    """Returns the ids, [c] int64 ascending, of the best nodes that all owners offer."""
    offered = comm.exchange(candidates, None, Header(MessageKind.LOOKUP)).rows
    node, value = offered[:, 0].to(torch.int64), offered[:, 1].contiguous()
    return price.ranked(node, value, budget).chosen(budget)
