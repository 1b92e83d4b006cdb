"""The probability that a minibatch of each rank holds each node.

The probability that a node is found at hop h follows from those of hop h - 1. An in-edge of a node
that is expanded is taken with a probability that the degree and the fanout decide. Edges are
treated as independent of each other. Each hop is one exchange along the edges that join parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.partition import Part
from pyg_batchgnn.sample import SamplingPlan, taken_probability

#: Numbers that a rank works on at once, which bounds memory: one column per rank.
_NUMBERS = 1 << 26
_HEADER = Header(MessageKind.LOOKUP)


@dataclass(frozen=True)
class SeedShare:
    """The nodes that minibatches are made of.

    Attributes:
        row: [s] int64, the rows of this rank's part that are seed nodes of an epoch.
        probability: the probability that a minibatch has a given one of them among its seeds.
        own: True if a rank's minibatches have seeds of its own part only. Ranks then need different
            nodes.
    """

    row: Tensor
    probability: float
    own: bool


def inclusion(
    part: Part, comm: Communicator, plan: SamplingPlan, seeds: SeedShare
) -> Iterator[tuple[list[int], Tensor]]:
    """Yields the probability that some ranks' minibatches hold each node of this part.

    It is collective.

    Args:
        part: this rank's part.
        comm: the communicator of all ranks.
        plan: fanouts and replacement.
        seeds: this rank's seed nodes.

    Yields:
        Ranks, and one column for each: [n, ranks] float32, one row per node of this part. If all
            ranks
        draw from all seeds, one column serves all of them. Every rank is in one of these groups.
    """
    edges = _EdgesBySource(part, comm)
    degree = part.in_edges.degrees.to(torch.float32)
    most = max(1, int(comm.max(max(part.num_nodes, edges.num_sources))))
    width = max(1, min(comm.size, _NUMBERS // most)) if seeds.own else comm.size
    for first in range(0, comm.size, width):
        ranks = list(range(first, min(first + width, comm.size)))
        begin = torch.zeros(part.num_nodes, len(ranks) if seeds.own else 1)
        if not seeds.own:
            begin[seeds.row] = seeds.probability
        elif comm.rank in ranks:
            begin[seeds.row, ranks.index(comm.rank)] = seeds.probability
        yield ranks, _propagated(begin, edges, degree, plan)


def _propagated(found: Tensor, edges: _EdgesBySource, degree: Tensor, plan: SamplingPlan) -> Tensor:
    """Returns the probabilities of being in the minibatch, [n, c], from those of being a seed."""
    left = 1 - found  # of not having been found yet
    for fanout in plan.fanouts:
        taken = taken_probability(degree, fanout, plan.replacement)
        escapes = torch.log1p(-(found * taken[:, None]).clamp(max=1 - 1e-6))
        found = -torch.expm1(edges.sums(escapes)) * left
        left = left - found
    return 1 - left


class _EdgesBySource:
    """The in-edges of this part's nodes by source, wherever the source is.

    It also knows from which of this part's nodes the edges of other parts leave.
    """

    def __init__(self, part: Part, comm: Communicator) -> None:
        source, (place,) = ops.unique_nodes([part.in_edges.indices.to(torch.int64)], part.book.num_nodes)
        self._ptr, self._targets, _ = ops.transpose(part.in_edges.indptr, place, source.numel())
        self._comm, self._nodes, self.num_sources = comm, part.num_nodes, source.numel()
        ends = torch.searchsorted(source, part.book.offsets)
        self._counts: list[int] = ends.diff().tolist()
        asked = comm.exchange(source, self._counts, _HEADER)
        self._rows = [rows - part.first for rows in asked.split()]

    def sums(self, values: Tensor) -> Tensor:
        """Sums ``values``, [n, c], over the destinations of every node's out-edges.

        It is collective and takes one round.
        """
        sums = ops.aggregate(values, self._ptr, self._targets)
        received = self._comm.exchange(sums, self._counts, _HEADER).split()
        out = torch.zeros(self._nodes, values.size(1))
        for rows, message in zip(self._rows, received, strict=True):
            out[rows] += message
        return out
