"""The probability that a minibatch of each rank holds each node.

The probability that a node is found at hop h follows from those of hop h - 1. An in-edge of a node
that is expanded is taken with a probability that the degree and the fanout of its relation decide.
Edges are treated as independent of each other. Each hop is one exchange along the edges that join
parts, for all relations together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.data import Relation
from pyg_batchgnn.partition import Part
from pyg_batchgnn.sample import SamplingPlan, taken_probability

#: Numbers that a rank works on at once, which bounds memory: one column per rank.
_NUMBERS = 1 << 26
_HEADER = Header(MessageKind.LOOKUP)


@dataclass(frozen=True)
class SeedShare:
    """The nodes that minibatches are made of.

    Attributes:
        row: [s] int64, the rows of this rank's part that are seed nodes of an epoch, of any types.
            A row may be there several times.
        probability: the probability that a minibatch has a given one of them among its seeds.
        trainer: [s] int64, the rank whose minibatches have the node among their seeds; None if
            those of all ranks do. Ranks need different nodes if there are trainers.
    """

    row: Tensor
    probability: float
    trainer: Tensor | None

    def begin(self, nodes: int, ranks: Sequence[int]) -> Tensor:
        """Returns the probability that some ranks' minibatches have each node among their seeds.

        Args:
            nodes: the number of nodes of the part.
            ranks: consecutive ranks.

        Returns:
            [nodes, ranks] float32, or one column for all ranks.
        """
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
    """Yields the probability that some ranks' minibatches hold each node of this part.

    It is collective. Times and weights of edges are not looked at.

    Args:
        part: this rank's part.
        comm: the communicator of all ranks.
        plan: fanouts and replacement.
        seeds: this rank's seed nodes.

    Yields:
        Ranks, and one column for each: [n, ranks] float32, one row per node of this part, of any
            type. If all ranks draw from all seeds, one column serves all of them. Every rank is in
            one of these groups.
    """
    edges = _EdgesBySource(part, comm)
    targets = _Targets.of(part, plan)
    most = max(1, int(comm.max(max(part.num_nodes, edges.num_targets, edges.num_sources))))
    width = comm.size if seeds.trainer is None else max(1, min(comm.size, _NUMBERS // most))
    for first in range(0, comm.size, width):
        ranks = list(range(first, min(first + width, comm.size)))
        yield ranks, _propagated(seeds.begin(part.num_nodes, ranks), edges, targets, plan.num_hops)


def _propagated(found: Tensor, edges: _EdgesBySource, targets: Sequence[_Targets], hops: int) -> Tensor:
    """Returns the probabilities of being in the minibatch, [n, c], from those of being a seed."""
    left = 1 - found  # of not having been found yet
    for hop in range(hops):
        passed = torch.cat([found[:0], *(one.passed(found, hop) for one in targets)])
        escapes = passed.clamp_(max=1 - 1e-6).neg_().log1p_()
        found = -torch.expm1(edges.sums(escapes)) * left
        left = left - found
    return 1 - left


@dataclass(frozen=True, eq=False)
class _Targets:
    """The nodes of this part that one relation leads to.

    Attributes:
        rows: their rows among the nodes of the part.
        degree: [n_t] float32, the number of in-edges of each.
        plan: the plan.
        relation: the names of the relation.
    """

    rows: slice
    degree: Tensor
    plan: SamplingPlan
    relation: Relation

    @classmethod
    def of(cls, part: Part, plan: SamplingPlan) -> list[_Targets]:
        """Returns the targets of every relation."""
        ends = zip(part.schema.relations, part.schema.target_types, part.relations, strict=True)
        return [
            cls(part.rows_of(target), edges.degrees.to(torch.float32), plan, names)
            for names, target, edges in ends
        ]

    def passed(self, found: Tensor, hop: int) -> Tensor:
        """Returns the probability that a hop finds the source of a given in-edge of each target.

        Args:
            found: [n, c], the probability that a node of the part is expanded in this hop.
            hop: the number of the hop.

        Returns:
            [n_t, c].
        """
        fanout = self.plan.fanouts_of(self.relation)[hop]
        taken = taken_probability(self.degree, fanout, self.plan.replacement)
        return found[self.rows] * taken[:, None]


class _EdgesBySource:
    """The in-edges of this part's nodes by source, wherever the source is.

    It also knows from which of this part's nodes the edges of other parts leave. Targets are
    numbered relation by relation, so that one list holds the edges of all relations.

    Attributes:
        num_targets: the number of targets, each counted once per relation.
        num_sources: the number of distinct sources.
    """

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
        """Sums ``values`` over the targets of every node's out-edges, [n, c].

        It is collective and takes one round.

        Args:
            values: [targets, c], relation by relation.
        """
        sums = ops.aggregate(values, self._ptr, self._targets)
        received = self._comm.exchange(sums, self._counts, _HEADER).split()
        out = torch.zeros(self._nodes, values.size(1))
        for rows, message in zip(self._rows, received, strict=True):
            out[rows] += message
        return out
