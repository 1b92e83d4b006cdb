"""Tokens: the sample of each seed as a row of K nodes, for graph transformers.

The tokens of all seeds of a disjoint minibatch are found together: a few passes over the edges of
each hop count, scan and fill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from pyg_batchgnn.types import SampledMinibatch

#: The bytes of a token: seven numbers and a mark.
TOKEN_BYTES = 57
#: The time of what has none: before all others.
_ALWAYS = torch.iinfo(torch.int64).min
#: Returns the times of the nodes or edges of a type or relation, given by number.
TimesOf: TypeAlias = Callable[[int], Tensor]


class Tokens(NamedTuple):
    """The first K nodes around each of S seeds, breadth first.

    The first token is the seed. Its neighbours follow, then theirs: those of an earlier token
    first, of one token by relation, and in the order in which they were sampled. A node is one
    token, by the first of the edges that lead to it. Seeds are in the order of ``input_id``. A row
    with fewer nodes ends in padding: False in ``mask``, 0 in ``time``, -1 in all others.
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
    walk, hops = _Walk(minibatch, count), len(minibatch.nodes[0].nodes_per_hop) - 1
    for hop in range(hops):
        walk.write(hop)
        walk.step(hop)
    walk.write(hops)
    table = walk.table.view(6, -1, count)
    return Tokens._make([table[1] >= 0, *table, torch.zeros_like(table[1])])


class _Walk:
    """Goes through a minibatch from its seeds, hop by hop. Here the nodes of all types have one
    number each, type by type."""

    def __init__(self, minibatch: SampledMinibatch, count: int) -> None:
        self.minibatch, self.count, nodes = minibatch, count, minibatch.reached_nodes
        sizes, none = [one.node.numel() for one in nodes.values()], minibatch.nodes[0].node[:0]
        self.first = dict(zip(nodes, accumulate(sizes, initial=0), strict=False))
        begins = [self.first.get(number, 0) for number in range(minibatch.schema.num_types)]
        self.begins, self.sources = none.new_tensor(begins), none.new_tensor(minibatch.schema.source_types)
        #: The tokens of the last hop in their order, [n] each: the node, its type, its seed, the
        #: position among the tokens of the seed, and what `Tokens` has of the edge that leads to
        #: it.
        self.node, self.type = none.new_empty(2, minibatch.batch_size)
        for number, one in nodes.items():
            assert one.example is not None, "the minibatch is disjoint"
            own = one.example[: one.nodes_per_hop[0]]
            self.node[own], self.type[own] = _range(own) + self.first[number], number
        self.seed, self.position = _range(self.node), torch.zeros_like(self.node)
        self.relation = self.edge = self.parent = torch.full_like(self.node, -1)
        self.used = torch.ones_like(self.node)  # the tokens of each seed so far
        #: By node: its number among the tokens of its hop, and that of the first edge to it.
        self.token, self.edge_to = none.new_full((sum(sizes),), -1), none.new_full((sum(sizes),), _LAST)
        self.edge_to[self.node] = -1
        self.passed = 0  # the edges of earlier hops
        self.table = none.new_full((6, self.seed.numel() * count), -1)

    def write(self, hop: int) -> None:
        """Writes the tokens of the last hop into the table."""
        place, row = self.seed * self.count + self.position, self.node - self.begins[self.type]
        columns = self.type, row, torch.full_like(row, hop), self.relation, self.edge, self.parent
        for column, values in zip(self.table, columns, strict=True):
            column.scatter_(0, place, values)

    def step(self, hop: int) -> None:
        """Goes from the tokens of a hop to those of the next one."""
        self.token.scatter_(0, self.node, _range(self.node))
        ends = self._ends(hop)
        number = _range(ends[0]) + self.passed
        self.passed += number.numel()
        self.edge_to.scatter_reduce_(0, ends[0], number, "amin")
        ends = _where(self.edge_to.index_select(0, ends[0]) == number, *ends)
        seed = self.seed.index_select(0, ends[1])
        found = torch.bincount(seed, minlength=self.used.numel())
        position = _range(seed) + (self.used - found.cumsum(0) + found).index_select(0, seed)
        self.used += found
        kept = _where(position < self.count, *ends, seed, position)
        self.parent = self.position.index_select(0, kept[1])
        self.node, _, self.relation, self.edge, self.seed, self.position = kept
        self.type = self.sources.index_select(0, self.relation)

    def _ends(self, hop: int) -> Sequence[Tensor]:
        """Returns, for each edge from the tokens of a hop and in their order: the node that it
        leads to, the number of the token, that of the relation, and the edge's row."""
        nodes, schema = self.minibatch.reached_nodes, self.minibatch.schema
        known, degrees = [], torch.zeros_like(self.node)
        for number, one in sorted(self.minibatch.reached_edges.items()):
            if not one.edges_per_hop[hop]:
                continue
            target, source = schema.target_types[number], schema.source_types[number]
            begin, size = sum(nodes[target].nodes_per_hop[:hop]), nodes[target].nodes_per_hop[hop]
            token = self.token[self.first[target] + begin :][:size]
            ends = one.indptr[begin : begin + size + 1]
            token, start, degree = _where(token >= 0, token, ends[:-1], ends.diff())
            degrees.index_add_(0, token, degree)
            known.append((number, one.indices, self.first[source], token, start, degree))
        place = degrees.cumsum(0) - degrees  # where the next edge from each token goes
        ends = place.new_empty(4, int(degrees.sum()))
        for number, indices, first, token, start, degree in known:
            which, before = _range(degree).repeat_interleave(degree), degree.cumsum(0) - degree
            at = _range(which)
            to = at + (place[token] - before).index_select(0, which)
            row = at + (start - before).index_select(0, which)
            place.index_add_(0, token, degree)
            ends[0].scatter_(0, to, indices.index_select(0, row).long() + first)
            ends[1].scatter_(0, to, token.index_select(0, which))
            ends[2].scatter_(0, to, number)
            ends[3].scatter_(0, to, row)
        return ends.unbind()


#: Later than all edges.
_LAST = 1 << 62


def _range(like: Tensor) -> Tensor:
    return torch.arange(like.numel(), device=like.device)


def _where(kept: Tensor, *values: Tensor) -> Sequence[Tensor]:
    """Returns the values that are kept, of each tensor."""
    if bool(kept.all()):
        return values
    at = kept.nonzero().view(-1)
    return [one.index_select(0, at) for one in values]


@dataclass(frozen=True)
class TokenTimes:
    """The times that tokens have."""

    name: str  # the attribute
    # types, relations: the numbers of those whose nodes or edges have it.
    types: tuple[int, ...]
    relations: tuple[int, ...]

    def put(self, tokens: Tokens, seed_time: Tensor | None, of_nodes: TimesOf, of_edges: TimesOf) -> Tokens:
        """Returns tokens with times. ``seed_time``: [S] int64; None for the times of the seeds'
        nodes. ``of_nodes, of_edges``: return those of the batch's nodes of a type, and of its edges
        of a relation."""
        time = _times_at(tokens.type, tokens.node, {one: of_nodes(one) for one in self.types})
        seeds = time[:, 0] if seed_time is None else seed_time
        if self.relations:
            edges = {one: of_edges(one) for one in self.relations}
            time = torch.maximum(time, _times_at(tokens.relation, tokens.edge, edges))
        return tokens._replace(time=(seeds[:, None] - time).masked_fill_(time == _ALWAYS, 0))


def _times_at(number: Tensor, row: Tensor, times: Mapping[int, Tensor]) -> Tensor:
    """Returns the times of rows [S, K] by the numbers of their types; `_ALWAYS` without a time."""
    found = torch.full_like(row, _ALWAYS)
    for at, time in times.items():
        if last := time.numel():
            found = torch.where(number == at, time.reshape(-1)[row.clamp(0, last - 1)], found)
    return found
