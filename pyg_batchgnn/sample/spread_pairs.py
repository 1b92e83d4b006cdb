"""The pairs of nodes that edges of a relation join, spread over ranks by one of their ends."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.partition import Part, node_values, own_rounds, send_rows
from pyg_batchgnn.sample.existing_pairs import ExistingPairs
from pyg_batchgnn.sample.node_pool import NodePool


@dataclass(frozen=True, eq=False)
class EndNumbers:
    """The numbers by which existing pairs name the nodes at one end of a relation.

    They are positions in the pool of the end. Where it has no times, these are the original ids.

    Attributes:
        bounds: [ranks + 1] int64, the slice of the numbers that each rank answers for.
        own: [n] int64, the number of each of this rank's own nodes of the type, by row.
    """

    bounds: Tensor
    own: Tensor


@dataclass(frozen=True, eq=False)
class RelationEnds:
    """The two ends of a relation whose pairs are spread.

    Attributes:
        relation: the number of the relation.
        sources, targets: the numbers of the nodes.
    """

    relation: int
    sources: EndNumbers
    targets: EndNumbers

    def pairs(self, part: Part, comm: Communicator) -> tuple[Tensor, Tensor]:
        """Returns the source and the target of each of a rank's in-edges, by number. Collective."""
        edges, schema = part.relations[self.relation], part.schema
        own = torch.empty(part.num_nodes, dtype=torch.int64)
        own[part.rows_of(schema.source_types[self.relation])] = self.sources.own
        distinct, (place,) = ops.unique_nodes([edges.indices.to(torch.int64)], part.book.num_nodes)
        source = node_values(comm, part.book, distinct, own)[place.long()]
        return source, self.targets.own[edges.targets()]


def spread_by_target(
    ends: RelationEnds, part: Part, comm: Communicator, sources: NodePool, targets: NodePool
) -> ExistingPairs:
    """Returns the pairs (target, source) whose targets this rank answers for. Collective.

    With them come the pairs of the few targets of other ranks that a search for a target with a
    free source may lead to, whatever target and limits it begins with.
    """
    source, target = ends.pairs(part, comm)
    bounds = ends.targets.bounds
    own = _held(comm, target, source, bounds, targets.num_nodes, sources.num_nodes)
    slice_of_rank = torch.arange(int(bounds[comm.rank]), int(bounds[comm.rank + 1]))
    entries = slice_of_rank[_entries(own, slice_of_rank, sources, targets)]
    codes = torch.cat([own.code[:0], *(_codes_of(own, int(held)) for held in entries)])
    known, others = (_of_all_ranks(comm, values) for values in (entries, codes))
    return ExistingPairs(
        torch.cat([own.code, others]).unique(), own.num_others, torch.cat([slice_of_rank, known]).unique()
    )


def spread_by_source(
    ends: RelationEnds, part: Part, comm: Communicator, sources: NodePool, targets: NodePool
) -> ExistingPairs:
    """Returns the pairs (source, target) whose sources this rank answers for. Collective."""
    source, target = ends.pairs(part, comm)
    return _held(comm, source, target, ends.sources.bounds, sources.num_nodes, targets.num_nodes)


def _held(
    comm: Communicator, held: Tensor, other: Tensor, bounds: Tensor, num_held: int, num_others: int
) -> ExistingPairs:
    """Sends pairs to the ranks that answer for their held ends."""
    code = ExistingPairs.of(held, other, num_held, num_others).code
    to = torch.searchsorted(bounds, code // max(num_others, 1), right=True) - 1
    return ExistingPairs(send_rows(comm, code, to).unique(), num_others)


def _of_all_ranks(comm: Communicator, own: Tensor) -> Tensor:
    """Returns the values of all ranks, gathered in bounded pieces, in no order. Collective."""
    pieces = [own[:0]]
    for rows in own_rounds(comm, own.numel(), own.itemsize):
        pieces.append(comm.all_gather(own[rows.start : rows.stop], MessageKind.PARTITION).rows)
    return torch.cat(pieces)


def _codes_of(pairs: ExistingPairs, held: int) -> Tensor:
    return pairs.others(held) + held * pairs.num_others


def _entries(pairs: ExistingPairs, held: Tensor, sources: NodePool, targets: NodePool) -> Tensor:
    """Returns which targets of a slice a search that enters at its first one can end at.

    Such a search looks for a target that may be drawn and has a free source among the first ones of
    the pool, however many these are. It ends at a target whose first free source comes before those
    of all targets that the search has passed.

    Args:
        pairs: the pairs of the slice.
        held: [n] int64, the targets of the slice, ascending.
        sources, targets: the pools.

    Returns:
        [k] int64 places in ``held``, ascending.
    """
    if not held.numel():
        return held
    first = _first_free(pairs, held, sources)
    if targets.weight is not None:
        first[targets.weight[held] == 0] = sources.num_nodes
    least = first.cummin(0).values
    before = torch.cat([torch.tensor([sources.num_nodes]), least[:-1]])
    return (first < before).nonzero().view(-1)


def _first_free(pairs: ExistingPairs, held: Tensor, sources: NodePool) -> Tensor:
    """Returns how many sources that may be drawn lie before the first free one of each target."""
    begin, num_others = int(held[0]), max(pairs.num_others, 1)
    at, other = pairs.code // num_others - begin, pairs.code % num_others
    if sources.weight is not None:
        may_be_drawn = sources.weight > 0
        kept = may_be_drawn[other]
        at, other = at[kept], (may_be_drawn.long().cumsum(0) - 1)[other[kept]]
    count = torch.bincount(at, minlength=held.numel())
    rank = torch.arange(at.numel()) - (count.cumsum(0) - count)[at]
    gap = torch.where(other == rank, num_others, rank)  # the first place where a source is left out
    return count.scatter_reduce(0, at, gap, "amin")
