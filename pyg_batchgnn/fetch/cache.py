"""A static cache of the remote rows that minibatches are most likely to need, fetched once.

The rows are chosen before the first epoch (`choose_rows`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.partition import Part, PartitionBook
from pyg_batchgnn.sample import SamplingPlan, taken_probability
from pyg_batchgnn.store import RowBlock, RowFormat, RowReader, RowRequest, SortedNodes
from pyg_batchgnn.types import Group

# Cache ############################################################################################


class FeatureCache:
    """Rows of remote nodes that are kept on this rank. ``nodes``: by group of nodes, [c] int64
    internal ids, ascending. Other types have no rows here."""

    def __init__(self, nodes: Mapping[Group, Tensor]) -> None:
        self.rows = {group: CachedRows(node) for group, node in nodes.items() if node.numel()}
        self.version = -1

    @property
    def nbytes(self) -> int:
        """The bytes of rows and ids."""
        return sum(rows.nbytes for rows in self.rows.values())

    def fill(self, reader: RowReader, version: int) -> None:
        """Reads all rows from their owners, in bounded pieces; collective."""
        pieces = [
            (group, at) for group, rows in self.rows.items() for at in rows.begin_fill(reader.format(group))
        ]
        self.version, header = version, Header(MessageKind.FEATURES)
        for number in range(int(reader.comm.max(len(pieces)))):
            if number >= len(pieces):
                reader.read({}, header)
                continue
            group, at = pieces[number]
            rows = self.rows[group]
            rows.fill(at, reader.read({group: RowRequest(rows.node[at])}, header).blocks[group])

    def split(self, nodes: Mapping[Group, Tensor]) -> dict[Group, CacheSplit]:
        """Splits ids by whether their rows are cached, for types with a cache. ``nodes``: by group,
        [n] int64 internal ids, ascending."""
        return {group: self.rows[group].split(node) for group, node in nodes.items() if group in self.rows}

    def put(self, blocks: Mapping[Group, RowBlock], splits: Mapping[Group, CacheSplit]) -> None:
        """Writes cached rows into blocks, behind the rows that were fetched."""
        for group, split in splits.items():
            self.rows[group].put(blocks[group], split)


# Cached rows ######################################################################################

#: Bytes of rows that are received at once when a cache is filled.
_PIECE = 16 << 20
#: Bytes of a node's id in a cache.
_ID_BYTES = 8


@dataclass(frozen=True)
class CacheSplit:
    """Nodes that a fetch group needs, split by whether their rows are cached."""

    missing: Tensor  # [m] int64, the nodes whose rows the cache has not, ascending
    row: Tensor  # [h] int64, the rows in the cache of the other nodes
    place: Tensor  # [m + h] int64, the place of each node if missing ones come first

    @property
    def hits(self) -> int:
        return self.row.numel()


class CachedRows:
    """The cached rows of remote nodes of one type, by ascending internal ids ``node``."""

    def __init__(self, node: Tensor) -> None:
        self.node = node
        self._rows = RowBlock({})

    @property
    def nbytes(self) -> int:
        return self.node.nbytes + sum(column.nbytes for column in self._rows.columns.values())

    def begin_fill(self, row_format: RowFormat) -> Iterator[slice]:
        """Allocates rows of a format, and yields the positions to fill, in bounded pieces."""
        # The memory is torch's, not from the package's cache.
        rows = row_format.empty(self.node.numel(), lambda shape, dtype: torch.empty(shape, dtype=dtype))
        self._format, self._rows = row_format, rows
        piece = max(1, _PIECE // max(1, bytes_in_cache(row_format)))
        for begin in range(0, self.node.numel(), piece):
            yield slice(begin, begin + piece)

    def fill(self, at: slice, read: RowBlock) -> None:
        columns = read.columns
        for name, column in self._rows.columns.items():
            column[at] = columns[name]

    def split(self, node: Tensor) -> CacheSplit:
        """Splits ids [n] int64, ascending, by whether their rows are cached."""
        found = SortedNodes(self.node, None).find(node)
        place, left = torch.empty_like(node), found.missing.numel()
        place[found.missing] = torch.arange(left)
        place[found.position] = torch.arange(left, node.numel())
        return CacheSplit(node[found.missing], found.row, place)

    def put(self, block: RowBlock, split: CacheSplit) -> None:
        """Writes cached rows into a block, behind the rows that were fetched."""
        if split.hits:
            begin = split.missing.numel()
            self._format.gather(block.rows(begin, begin + split.hits), self._rows, split.row)


def bytes_in_cache(row_format: RowFormat) -> int:
    return _ID_BYTES + row_format.row_bytes


# Choosing rows ####################################################################################

# The choice of the rows of a feature cache.
#
# Every remote node has a probability of being in a minibatch (`inclusion`). A row in the cache
# spares its bytes on the wire with this probability, and takes bytes of the budget. Rows are taken
# in descending order of the bytes that one byte of the cache is expected to spare. Rows of one
# type are of one width, so they are taken in descending order of probability.


@dataclass(frozen=True)
class CacheRequest:
    """What a feature cache is chosen for: its size, and the minibatches that read it."""

    budget: int  # the bytes of rows and ids that a rank may hold
    plan: SamplingPlan  # the plan by which minibatches are sampled
    seeds: SeedShare  # the seeds that they are made of


def choose_rows(
    part: Part, held: Collection[int], reader: RowReader, request: CacheRequest
) -> dict[Group, Tensor]:
    """Chooses the remote rows to cache on this rank; collective. ``held``: the ranks whose rows can
    be read here without a message, and that can read this rank's. Returns by group of nodes [c]
    int64 internal ids, ascending."""
    comm, schema = reader.comm, part.schema
    price = _Price(reader, schema.node_groups, part.book)
    none = torch.empty(0, dtype=torch.int64)
    chosen = none
    if comm.max(0 if len(held) == comm.size else price.most_rows(request.budget)):
        candidates = [torch.empty(0, 2, dtype=torch.float64)] * comm.size
        own = torch.arange(part.first, part.first + part.num_nodes)
        for ranks, likely in inclusion(part, comm, request.plan, request.seeds):
            for at, rank in enumerate(ranks):
                if rank not in held:
                    column = likely[:, at if likely.size(1) == len(ranks) else 0]
                    node, value, used = price.best(own, price.value(own, column), request.budget)
                    most = int((used < request.budget).sum()) + 1  # those that fit, and the next one
                    candidates[rank] = torch.stack([node.to(torch.float64), value], 1)[:most]
        offered = comm.exchange(candidates, None, _HEADER).rows
        node, value = offered[:, 0].to(torch.int64), offered[:, 1].contiguous()
        node, _, used = price.best(node, value, request.budget)
        chosen = node[used <= request.budget].sort().values
    kind = part.book.type_of(chosen)
    return {group: chosen[kind == number] for number, group in enumerate(schema.node_groups)}


class _Price:
    """Compares nodes by the bytes that they take in the cache and save in messages, by type.
    ``held``: [types] int64, bytes of a node in the cache. ``spared``: of its row in a message."""

    def __init__(self, reader: RowReader, groups: Sequence[Group], book: PartitionBook) -> None:
        self.book, formats = book, [reader.format(group) for group in groups]
        self.held = torch.tensor([bytes_in_cache(one) for one in formats])
        self.spared = torch.tensor([one.wire_bytes for one in formats])

    def most_rows(self, budget: int) -> int:
        useful = self.held[self.spared > 0]
        return budget // int(useful.min()) if useful.numel() else 0

    def value(self, node: Tensor, probability: Tensor) -> Tensor:
        """Returns [n] float64, the bytes of messages that one byte of the cache saves on
        average."""
        worth = self.spared.to(torch.float64) / self.held
        if self.book.num_types == 1:
            return probability.to(torch.float64) * worth
        return probability.to(torch.float64) * worth[self.book.type_of(node)]

    def best(self, node: Tensor, value: Tensor, budget: int) -> tuple[Tensor, Tensor, Tensor]:
        """Returns nodes by descending value, without those of value 0, as many as fit a budget and
        one more: [k] int64 ids, [k] float64 values, and [k] int64 bytes in the cache up to each."""
        top = value.topk(min(self.most_rows(budget) + 1, int((value > 0).sum())))
        ids = node[top.indices]
        return ids, top.values, self.held[self.book.type_of(ids)].cumsum(0)


# Inclusion probabilities ##########################################################################

# The probability that a minibatch of each rank holds each node.
#
# The probability that a node is found at hop h follows from those of hop h - 1. An in-edge of a
# node that is expanded is taken with a probability that the degree and the fanout of its relation
# decide. Edges are treated as independent of each other. Each hop is one exchange along the edges
# that join parts, for all relations together.


#: Numbers that a rank works on at once, which bounds memory: one column per rank.
_NUMBERS = 1 << 26
_HEADER = Header(MessageKind.LOOKUP)


@dataclass(frozen=True)
class SeedShare:
    """The seed nodes from which minibatches are made."""

    # [s] int64, the rows of this rank's part that are seed nodes of an epoch, of any types. A row
    # may be there several times.
    row: Tensor
    probability: float  # the probability that a minibatch has a given one of them among its seeds
    # [s] int64, the rank whose minibatches have the node among their seeds; None if those of all
    # ranks do. Ranks need different nodes if there are trainers.
    trainer: Tensor | None

    def begin(self, nodes: int, ranks: Sequence[int]) -> Tensor:
        """Returns the probability that a minibatch of each rank has a node among its seeds: [nodes,
        ranks] float32, or one column for all ranks."""
        if self.trainer is None:
            row, column, columns = self.row, torch.zeros_like(self.row), 1
        else:
            here = (self.trainer >= ranks[0]) & (self.trainer <= ranks[-1])
            row, column, columns = self.row[here], self.trainer[here] - ranks[0], len(ranks)
        times = torch.zeros(nodes, columns).index_put_((row, column), torch.ones(1), accumulate=True)
        return times.mul_(self.probability).clamp_(max=1.0)


def inclusion(
    part: Part, comm: Communicator, plan: SamplingPlan, seeds: SeedShare
) -> Iterator[tuple[list[int], Tensor]]:
    """Yields (some ranks, the probability that their minibatches hold each node of this part): [n,
    ranks] float32, or one column if all ranks draw from all seeds. Collective. Times and weights of
    edges are ignored."""
    edges = _EdgesBySource(part, comm)
    most = max(1, int(comm.max(max(part.num_nodes, edges.num_targets, edges.num_sources))))
    width = comm.size if seeds.trainer is None else max(1, min(comm.size, _NUMBERS // most))
    for first in range(0, comm.size, width):
        ranks = list(range(first, min(first + width, comm.size)))
        yield ranks, _propagated(seeds.begin(part.num_nodes, ranks), edges, part, plan)


def _propagated(found: Tensor, edges: _EdgesBySource, part: Part, plan: SamplingPlan) -> Tensor:
    """Returns [n, c], the probability of being in a minibatch. ``found``: [n, c], of being a
    seed."""
    schema = part.schema
    left = 1 - found  # of not having been found yet
    for hop in range(plan.num_hops):
        passed = [found[:0]]  # whether the hop finds the source of an in-edge of each target
        for at, (name, kind) in enumerate(zip(schema.relations, schema.target_types, strict=True)):
            degree = part.relations[at].degrees.to(torch.float32)
            taken = taken_probability(degree, plan.fanouts_of(name)[hop], plan.replacement)
            passed.append(found[part.rows_of(kind)] * taken[:, None])
        escapes = torch.cat(passed).clamp_(max=1 - 1e-6).neg_().log1p_()
        found = -torch.expm1(edges.sums(escapes)) * left
        left = left - found
    return 1 - left


class _EdgesBySource:
    """The in-edges of this part's nodes by source, wherever the source is owned."""

    def __init__(self, part: Part, comm: Communicator) -> None:
        sources = [edges.indices.to(torch.int64) for edges in part.relations]
        source, places = ops.unique_nodes(sources, part.book.num_nodes)
        none = torch.zeros(1, dtype=torch.int64)
        degrees = torch.cat([none, *(edges.degrees for edges in part.relations)])
        self._ptr, self._targets, _ = ops.transpose(
            degrees.cumsum(0), torch.cat([none[:0], *places]), source.numel()
        )
        self._comm, self._nodes, self.num_sources = comm, part.num_nodes, source.numel()
        self.num_targets = degrees.numel() - 1
        ends = torch.searchsorted(source, part.book.part_offsets)
        self._counts: list[int] = ends.diff().tolist()
        asked = comm.exchange(source, self._counts, _HEADER)
        self._rows = [rows - part.first for rows in asked.split()]

    def sums(self, values: Tensor) -> Tensor:
        """Returns [n, c], the sums of the targets' ``values`` over every own node's out-edges.
        Collective, one round."""
        sums = ops.aggregate(values, self._ptr, self._targets)
        received = self._comm.exchange(sums, self._counts, _HEADER).split()
        out = torch.zeros(self._nodes, values.size(1))
        for rows, message in zip(self._rows, received, strict=True):
            out[rows] += message
        return out
