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
    walk = _Walk(minibatch, count)
    for hop in range(len(minibatch.nodes[0].nodes_per_hop) - 1):
        walk.step(hop)
    return walk.tokens()


#: Two numbers of a token share a word of 64 bits, since writing in any order costs most: parent and
#: node, and hop, relation and edge. Shifts restore the signs, so that -1 of all is -1 of each.
_LOW, _MIDDLE = 32, 20
_SEED = (1 << _LOW + _MIDDLE) - 1  # hop 0, relation and edge -1


class _Walk:
    """Goes through a minibatch from its seeds, hop by hop, and writes the tokens into a table. Here
    the nodes of all types have one number each, type by type."""

    def __init__(self, minibatch: SampledMinibatch, count: int) -> None:
        self.minibatch, self.count, nodes = minibatch, count, minibatch.reached_nodes
        sizes, none = [one.node.numel() for one in nodes.values()], minibatch.nodes[0].node[:0]
        self.first = dict(zip(nodes, accumulate(sizes, initial=0), strict=False))
        self.numbers = torch.arange(max(sum(sizes), minibatch.num_edges), device=none.device)
        self.seeds = minibatch.batch_size
        #: The words of all tokens, and a last one for what is no token.
        self.ends, self.steps = none.new_full((2, self.seeds * count + 1), -1)
        #: The tokens of the last hop that may lead to others: their nodes, seeds and positions.
        self.node, self.type = none.new_empty(2, self.seeds)
        for number, one in nodes.items():
            assert one.example is not None, "the minibatch is disjoint"
            seed = one.example[: one.nodes_per_hop[0]]
            row = self.numbers[: len(seed)]
            self.ends[seed * count], self.steps[seed * count] = row - (1 << _LOW), _SEED
            self.node[seed], self.type[seed] = row + self.first[number], number
        self.seed, self.position = self.numbers[: self.seeds], torch.zeros_like(self.node)
        self.used = torch.ones_like(self.node)  # the tokens of each seed
        #: By node: its number among the tokens of its hop, and that of the first edge to it.
        self.token = none.new_full((sum(sizes),), -1)
        self.edge_to = none.new_full((sum(sizes),), torch.iinfo(torch.int64).max)
        self.edge_to[self.node] = -1
        self.passed = 0  # the edges of earlier hops

    def step(self, hop: int) -> None:
        """Goes from the tokens of a hop over their edges to those of the next one."""
        ends, steps = self._edges(hop)
        parent, node = ends >> _LOW, ends & (1 << _LOW) - 1
        number = self.numbers[: len(node)] + self.passed
        self.passed += len(node)
        # A node is a token by the first edge to it.
        self.edge_to.scatter_reduce_(0, node, number, "amin")
        is_first = self.edge_to.index_select(0, node) == number
        seed = self.seed.index_select(0, parent)
        found = torch.nn.functional.pad(is_first.cumsum(0), (1, 0))
        last = torch.bincount(seed, minlength=self.seeds).cumsum(0)
        before = found.index_select(0, torch.nn.functional.pad(last, (1, 0)))
        position = found[:-1] + (self.used - before[:-1]).index_select(0, seed)
        self.used += before.diff()
        is_token = is_first & (position < self.count)
        place = torch.where(is_token, seed * self.count + position, self.seeds * self.count)
        parent = self.position.index_select(0, parent)
        self.ends.scatter_(0, place, (parent << _LOW) + node)
        self.steps.scatter_(0, place, steps + (hop + 1 << _LOW + _MIDDLE))
        # Tokens of a seed that has all of them lead nowhere.
        is_token &= (self.used < self.count).index_select(0, seed)
        kept = is_token.nonzero().view(-1)
        self.node, self.seed, self.position = (one.index_select(0, kept) for one in (node, seed, position))

    def _edges(self, hop: int) -> Sequence[Tensor]:
        """Returns words for each edge from the tokens of a hop, in their order: the number of the
        token and the node that it leads to; the relation and the edge's row."""
        nodes, schema = self.minibatch.reached_nodes, self.minibatch.schema
        is_whole = len(self.node) == sum(one.nodes_per_hop[hop] for one in nodes.values())
        self.token.scatter_(0, self.node, self.numbers[: len(self.node)])
        known, degrees = [], torch.zeros_like(self.node)
        for number, one in sorted(self.minibatch.reached_edges.items()):
            if not one.edges_per_hop[hop]:
                continue
            target = schema.target_types[number]
            begin, size = sum(nodes[target].nodes_per_hop[:hop]), nodes[target].nodes_per_hop[hop]
            token = self.token[self.first[target] + begin :][:size]
            start, degree = one.indptr[begin : begin + size], one.indptr[begin : begin + size + 1].diff()
            if not is_whole:
                kept = (token >= 0).nonzero().view(-1)
                token, start, degree = (values.index_select(0, kept) for values in (token, start, degree))
            degrees.index_add_(0, token, degree)
            known.append((number, one.indices, token, start, degree))
        place = degrees.cumsum(0) - degrees  # of the next edge from each token
        words = place.new_empty(2, int(degrees.sum()))
        for number, indices, token, start, degree in known:
            which = self.numbers[: len(degree)].repeat_interleave(degree)
            at, before = self.numbers[: len(which)], degree.cumsum(0) - degree
            row = at + (start - before).index_select(0, which)
            node = indices.index_select(0, row) + self.first[schema.source_types[number]]
            to = at + (place.index_select(0, token) - before).index_select(0, which)
            words[0].scatter_(0, to, node + (token << _LOW).index_select(0, which))
            words[1].scatter_(0, to, row + (number << _LOW))
            place.index_add_(0, token, degree)
        return words.unbind()

    def tokens(self) -> Tokens:
        ends, steps, schema = self.ends[:-1], self.steps[:-1], self.minibatch.schema
        relation = steps << 64 - _LOW - _MIDDLE >> 64 - _MIDDLE
        sources = schema.source_types
        begins = ends.new_tensor([0, *(self.first.get(source, 0) for source in sources)])
        kind = ends.new_tensor([-1, *sources]).index_select(0, relation + 1)
        kind[self.numbers[: self.seeds] * self.count] = self.type
        row = (ends << 64 - _LOW >> 64 - _LOW) - begins.index_select(0, relation + 1)
        hop, edge = steps >> _LOW + _MIDDLE, steps << 64 - _LOW >> 64 - _LOW
        columns = steps >= 0, kind, row, hop, relation, edge, ends >> _LOW, torch.zeros_like(row)
        return Tokens(*(one.view(-1, self.count) for one in columns))


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
            found = torch.where(number == at, time.reshape(-1).take(row.clamp(0, last - 1)), found)
    return found
