"""What is to be trained, as numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyg_batchgnn import ops


class Overlap(Protocol):
    """How distinct nodes add up."""

    def distinct(self, together: float) -> float:
        """Expected distinct nodes of so many minibatches."""

    def missed(self, together: float, kept: float) -> float:
        """Those of them that are not among the ``kept`` likeliest nodes."""


@dataclass(frozen=True)
class Workload:
    """A graph and how it is sampled.

    Attributes:
        name: of the graph.
        nodes, edges: N and (directed) E of the whole graph.
        features: bytes of a node's input features.
        attributes: bytes of the other attributes of a node that are fetched (label, masks).
        training: training nodes.
        fanouts: neighbours a hop, nearest the seeds first.
        batch_size: seed nodes a minibatch.
        drop_last: whether a last, smaller minibatch is left out.
        own_seeds: whether ranks train their own nodes (schedule local).
        parameters: numbers that the model learns, whose gradients are exchanged.
    """

    name: str
    nodes: int
    edges: int
    features: int
    attributes: int
    training: int
    fanouts: tuple[int, ...]
    batch_size: int = 1024
    drop_last: bool = False
    own_seeds: bool = True
    parameters: int = 0

    @property
    def id_bytes(self) -> int:
        """Of a node's id on the wire and in memory."""
        return ops.id_dtype(self.nodes).itemsize

    @property
    def edge_bytes(self) -> int:
        """Of an edge's id in memory."""
        return ops.id_dtype(self.edges).itemsize

    def minibatches(self, counts: Sequence[int]) -> int:
        """Of every rank in an epoch, from the seed nodes that each rank has (`LocalSchedule`), or from those
        of all ranks (`GlobalSchedule`)."""
        cut = math.floor if self.drop_last else math.ceil
        if self.own_seeds:
            return max((cut(count / self.batch_size) for count in counts), default=0)
        return cut(cut(sum(counts) / self.batch_size) / len(counts))

    def seeds_of(self, counts: Sequence[int]) -> list[list[int]]:
        """Seed nodes of every minibatch of every rank, as the schedules deal them."""
        steps, size = self.minibatches(counts), self.batch_size
        if not self.own_seeds:
            every = sum(counts)
            sizes = [min(size, max(every - at * size, 0)) for at in range(steps * len(counts))]
            return [sizes[rank :: len(counts)] for rank in range(len(counts))]
        cut = math.floor if self.drop_last else math.ceil
        return [
            [min(size, count - at * size) for at in range(steps)]
            if cut(count / size) == steps
            else [count // steps + (at < count % steps) for at in range(steps)]
            for count in counts
        ]

    def fullness(self, counts: Sequence[int]) -> float:
        """Mean seed nodes of a minibatch of all ranks, as a share of the batch size."""
        steps = self.minibatches(counts) * len(counts)
        return min(1.0, sum(counts) / (steps * self.batch_size)) if steps else 0.0


@dataclass(frozen=True, eq=False)
class MinibatchMeans:
    """What minibatches of so many hops are like; means over those of one rank, a minibatch.

    Attributes:
        nodes, edges: in it.
        asked: by hop, nodes of other ranks whose in-edges it needs.
        answered: by hop, in-edges of these.
        expanded: nodes whose in-edges are in it.
        room: nodes that it has room for while it is sampled: one for every edge of the last hop.
        distinct: growth of the nodes when minibatches are fetched together.
        remote: the same of nodes of other hosts.
    """

    nodes: float
    edges: float
    asked: tuple[float, ...]
    answered: tuple[float, ...]
    expanded: float
    room: float
    distinct: Overlap
    remote: Overlap


@dataclass(frozen=True, eq=False)
class PlannerProbe:
    """What was found out about minibatches of one partitioning.

    Attributes:
        policy: who owns which node.
        ranks, hosts: how many.
        seeds: of every rank.
        part_nodes, part_edges: of the rank with the most.
        full: minibatches of all hops.
        inner: the same without the last hop: what is left with the aggregation cache.
    """

    policy: str
    ranks: int
    hosts: int
    seeds: tuple[int, ...]
    part_nodes: int
    part_edges: int
    full: MinibatchMeans
    inner: MinibatchMeans
