"""A static cache of the remote rows that minibatches are most likely to need, fetched once.

The rows are chosen before the first epoch, from the probability that a minibatch holds a node
(`inclusion`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.data import NODES
from pyg_batchgnn.fetch.inclusion import SeedShare, inclusion
from pyg_batchgnn.partition import Part
from pyg_batchgnn.sample import SamplingPlan
from pyg_batchgnn.store import RowBlock, RowReader, RowRequest

#: Bytes of rows that are received at once when the cache is filled.
_PIECE = 16 << 20
#: Bytes of a node's id in the cache.
_ID_BYTES = 8


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


@dataclass(frozen=True)
class CacheSplit:
    """Nodes that a fetch group needs, split by whether the cache has their rows.

    Attributes:
        missing: [m] int64, the nodes whose rows the cache has not, ascending.
        row: [h] int64, the rows in the cache of the other nodes.
        place: [m + h] int64, the place of each node if missing ones come first.
    """

    missing: Tensor
    row: Tensor
    place: Tensor


class FeatureCache:
    """The rows of some remote nodes.

    Attributes:
        node: [c] int64 internal ids, ascending.
        version: the store's version when the rows were read.
    """

    def __init__(self, node: Tensor) -> None:
        self.node, self.version = node, -1
        self._rows = RowBlock({})

    @property
    def nbytes(self) -> int:
        """The bytes of rows and ids."""
        return self.node.nbytes + sum(column.nbytes for column in self._rows.columns.values())

    def fill(self, reader: RowReader, version: int) -> None:
        """Reads all rows from their owners, in bounded pieces; collective."""
        piece = max(1, _PIECE // max(1, row_bytes(reader)))
        rounds = int(reader.comm.max(-(-self.node.numel() // piece)))
        self._format, self.version = reader.format(NODES), version
        self._rows = self._format.empty(self.node.numel(), _fresh)
        for number in range(rounds):
            at = slice(number * piece, (number + 1) * piece)
            wanted = {NODES: RowRequest(self.node[at])}
            read = reader.read(wanted, Header(MessageKind.FEATURES)).blocks[NODES].columns
            for name, column in self._rows.columns.items():
                column[at] = read[name]

    def split(self, node: Tensor) -> CacheSplit:
        """Splits ascending ids, [n] int64, by whether their rows are here."""
        position, row = _common(node, self.node)
        missing = torch.ones(node.numel(), dtype=torch.bool)
        missing[position] = False
        left = missing.nonzero().view(-1)
        place = torch.empty_like(node)
        place[left] = torch.arange(left.numel())
        place[position] = torch.arange(left.numel(), node.numel())
        return CacheSplit(node[left], row, place)

    def put(self, block: RowBlock, split: CacheSplit) -> None:
        """Writes the rows that are here behind those that are not."""
        if split.row.numel():
            begin = split.missing.numel()
            self._format.gather(block.rows(begin, begin + split.row.numel()), self._rows, split.row)


def _fresh(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Returns memory of torch's allocator, which is kept."""
    return torch.empty(shape, dtype=dtype)


def _common(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the places of the values that two ascending vectors have in common, in each of them.

    The shorter vector is looked up in the longer one.
    """
    if one.numel() < other.numel():
        at, found = _common(other, one)
        return found, at
    at = torch.searchsorted(one, other)
    found = (one[at.clamp(max=max(one.numel() - 1, 0))] == other) if one.numel() else at.bool()
    return at[found], found.nonzero().view(-1)


def row_bytes(reader: RowReader) -> int:
    """Returns the bytes that a node takes in the cache."""
    return _ID_BYTES + reader.format(NODES).row_bytes


def make_cache(part: Part, held: Collection[int], reader: RowReader, request: CacheRequest) -> FeatureCache:
    """Chooses the remote rows that are most likely to be needed; collective.

    `FeatureCache.fill` reads them.

    Args:
        part: this rank's part.
        held: the ranks whose rows can be read here without asking, and that can read this rank's.
        reader: reads the attributes that are wanted.
        request: the purpose of the cache.
    """
    comm, capacity = reader.comm, request.budget // row_bytes(reader)
    none = torch.empty(0, dtype=torch.int64)
    if not comm.max(0 if len(held) == comm.size else capacity):
        return FeatureCache(none)
    candidates = [torch.empty(0, 2, dtype=torch.float64)] * comm.size
    for ranks, likely in inclusion(part, comm, request.plan, request.seeds):
        for at, rank in enumerate(ranks):
            if rank not in held:
                column = likely[:, at if likely.size(1) == len(ranks) else 0]
                candidates[rank] = _most_likely(column, part.first, capacity)
    return FeatureCache(_chosen(comm, candidates, capacity))


def _most_likely(likely: Tensor, first: int, count: int) -> Tensor:
    """Returns at most ``count`` nodes that may be needed and probabilities: [k, 2] float64."""
    top = likely.topk(min(count, int((likely > 0).sum())))
    return torch.stack([(top.indices + first).to(torch.float64), top.values.to(torch.float64)], 1)


def _chosen(comm: Communicator, candidates: list[Tensor], count: int) -> Tensor:
    """Returns the ids, [c] int64 ascending, of the most likely nodes that all owners offer."""
    offered = comm.exchange(candidates, None, Header(MessageKind.LOOKUP)).rows
    best = offered[:, 1].topk(min(count, len(offered))).indices
    return offered[best, 0].to(torch.int64).sort().values
