"""Tokens: the sample of each seed as a row of K nodes, for graph transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.types import SampledMinibatch

#: The time of what has none: before all others.
_ALWAYS = torch.iinfo(torch.int64).min
_MOST_ROWS = 1 << 40
#: Returns the times of the nodes or edges of a type or relation, given by number.
TimesOf: TypeAlias = Callable[[int], Tensor]


class Tokens(NamedTuple):
    """The first K nodes around each of S seeds, breadth first, for graph transformers.

    The first token is the seed. The neighbours of an earlier token come first, those of one token
    by relation and in the order in which they were sampled. A node is one token, by the first edge
    that leads to it. Seeds are in the order of ``input_id``. A row with fewer nodes ends in
    padding: False in ``mask``, 0 in ``time``, -1 elsewhere.
    """

    mask: Tensor  # [S, K] bool, True for tokens, False for padding
    type: Tensor  # [S, K] int64, the number of the node's type among the batch's ``node_types``
    node: Tensor  # [S, K] int64, its row among the batch's nodes of this type
    hop: Tensor  # [S, K] int64, its distance from the seed
    #: [S, K] int64, the number among the batch's ``edge_types`` of the relation by which it was
    #: reached; -1 for a seed
    relation: Tensor
    edge: Tensor  # [S, K] int64, the row of that edge among the batch's edges of this relation; likewise
    parent: Tensor  # [S, K] int64, the position of the token from which it was reached; likewise
    #: [S, K] int64, the seed's time minus the token's: the later of the times of its node and of
    #: that edge, as far as these have times; 0 where neither has
    time: Tensor


def tokens_of(minibatch: SampledMinibatch, count: int) -> Tokens:
    """Returns ``count`` tokens for each seed of a disjoint minibatch, without times."""
    kind, row = torch.empty((2, minibatch.batch_size), dtype=torch.int64)
    for number, one in minibatch.reached_nodes.items():
        assert one.example is not None, "the minibatch is disjoint"
        own = one.example[: one.nodes_per_hop[0]]
        kind[own], row[own] = number, torch.arange(own.numel())
    ends = minibatch.schema.source_types, minibatch.schema.target_types
    edges = zip(*((one.indptr, one.indices) for one in minibatch.edges), strict=True)
    table = ops.list_tokens(kind, row, [one.node.numel() for one in minibatch.nodes], (*ends, *edges), count)
    return Tokens._make([table[1] >= 0, *table, torch.zeros_like(table[0])])


@dataclass(frozen=True)
class TokenTimes:
    """The attribute from which tokens get their times, and the types and relations that have it."""

    name: str  # the attribute
    # types, relations: numbers of the node types and of the relations that have it
    types: tuple[int, ...]
    relations: tuple[int, ...]

    def put(self, tokens: Tokens, seed_time: Tensor | None, of_nodes: TimesOf, of_edges: TimesOf) -> Tokens:
        """Returns tokens with times. ``seed_time``: [S] int64; None for the times of the seeds'
        nodes. ``of_nodes, of_edges``: return the times of a type's nodes, a relation's edges."""
        time = _times_at(tokens.type, tokens.node, {one: of_nodes(one) for one in self.types})
        seeds = time[:, 0] if seed_time is None else seed_time
        if self.relations:
            edges = {one: of_edges(one) for one in self.relations}
            time = torch.maximum(time, _times_at(tokens.relation, tokens.edge, edges))
        return tokens._replace(time=(seeds[:, None] - time).masked_fill_(time == _ALWAYS, 0))


def _times_at(number: Tensor, row: Tensor, times: Mapping[int, Tensor]) -> Tensor:
    """Returns times [S, K] of rows by the index of their type; `_ALWAYS` without times."""
    known, last = [row.new_tensor([_ALWAYS])], 1
    # By number, where the times of a type begin: before all where it has none, as the last here.
    begin = row.new_full((max(times, default=-1) + 3,), -_MOST_ROWS)
    for at, time in times.items():
        begin[at + 1] = last
        known.append(time.reshape(-1))
        last += time.numel()
    place = begin.index_select(0, (number + 1).clamp_(max=len(begin) - 1).view(-1)).add_(row.view(-1))
    return torch.cat(known).index_select(0, place.clamp_(min=0)).view_as(row)
