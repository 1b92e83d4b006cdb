"""Tokens: the sample of each seed as a row of K nodes, for graph transformers.

The tokens of all seeds of a disjoint minibatch are found together: a few passes over the edges of
each hop count, scan and fill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.types import SampledMinibatch

#: The time of what has none: before all others.
_ALWAYS, _LAST = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max
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
    seeds, hops = minibatch.batch_size, len(minibatch.nodes[0].nodes_per_hop) - 1
    # Nodes have numbers here, type by type.
    first = np.cumsum([0, *(one.node.numel() for one in minibatch.nodes)])
    source_type = np.array(minibatch.schema.source_types, dtype=np.int64)
    table, token = np.full((6, seeds * count), -1), np.full(first[-1], -1)
    node, kind = np.empty((2, seeds), dtype=np.int64)
    for number, one in minibatch.reached_nodes.items():
        assert one.example is not None, "the minibatch is disjoint"
        own = one.example[: one.nodes_per_hop[0]].numpy()
        node[own], kind[own] = first[number] + np.arange(len(own)), number
    seed, position, used = np.arange(seeds), np.zeros_like(node), np.ones_like(node)
    relation = edge = parent = np.full(seeds, -1)
    edge_to, passed = torch.full((int(first[-1]),), _LAST), 0  # by node, the first edge that leads to it
    edge_to[torch.from_numpy(node)] = -1
    for hop in range(hops + 1):
        place, row = seed * count + position, node - first[kind]
        for column, values in zip(table, (kind, row, hop, relation, edge, parent), strict=True):
            column[place] = values
        if hop == hops:
            break
        # Those of a seed that has all of its tokens lead nowhere.
        node, seed, position = _where(used[seed] < count, node, seed, position)
        token[node] = np.arange(len(node))
        node, origin, relation, edge = _edges(minibatch, hop, first, token, len(node))
        passing = np.arange(passed, passed + len(node))
        passed += len(node)
        edge_to.scatter_reduce_(0, torch.from_numpy(node), torch.from_numpy(passing), "amin")
        is_first = edge_to.numpy()[node] == passing
        node, origin, relation, edge = _where(is_first, node, origin, relation, edge)
        seed, parent = seed[origin], position[origin]
        found = np.bincount(seed, minlength=seeds)
        position = np.arange(len(seed)) + (used - np.cumsum(found) + found)[seed]
        used += found
        node, seed, position, parent, relation, edge = _where(
            position < count, node, seed, position, parent, relation, edge
        )
        kind = source_type[relation]
    columns = [torch.from_numpy(column).view(seeds, count) for column in table]
    return Tokens._make([columns[1] >= 0, *columns, torch.zeros_like(columns[0])])


def _edges(minibatch: SampledMinibatch, hop: int, first: Any, token: Any, count: int) -> Any:
    """Returns, for each edge from the ``count`` tokens of a hop, in their order: the node that it
    leads to, the number of the token, the relation, and the edge's row."""
    schema, known, degrees = minibatch.schema, [], np.zeros(count, dtype=np.int64)
    for number, one in sorted(minibatch.reached_edges.items()):
        if not one.edges_per_hop[hop]:
            continue
        target = schema.target_types[number]
        per_hop = minibatch.nodes[target].nodes_per_hop
        begin, end = sum(per_hop[:hop]), sum(per_hop[: hop + 1])
        own, ends = token[first[target] + begin : first[target] + end], one.indptr[begin : end + 1].numpy()
        own, start, degree = _where(own >= 0, own, ends[:-1], np.diff(ends))
        degrees[own] += degree
        known.append((number, own, start, degree))
    place = np.cumsum(degrees) - degrees  # of the next edge from each token
    ends, relations, rows = np.empty((3, degrees.sum()), dtype=np.int64)
    for number, own, start, degree in known:
        before, at = np.cumsum(degree) - degree, np.arange(degree.sum())
        to, row = np.repeat(place[own] - before, degree) + at, np.repeat(start - before, degree) + at
        node = minibatch.edges[number].indices.numpy()[row] + first[schema.source_types[number]]
        ends[to], relations[to], rows[to] = node, number, row
        place[own] += degree
    return ends, np.repeat(np.arange(count), degrees), relations, rows


def _where(kept: Any, *values: Any) -> Any:
    return values if kept.all() else [one.compress(kept) for one in values]


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
