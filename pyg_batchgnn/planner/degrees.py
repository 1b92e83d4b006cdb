"""Minibatches of a graph with known degrees, as if its edges joined nodes at random.

Every edge is assumed to lead to a node with a probability proportional to the node's degree. This
serves graphs that are too large to sample. It overstates the distinct nodes where neighbours share
neighbours.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from pyg_batchgnn.loader import ScheduleName
from pyg_batchgnn.planner.workload import MinibatchMeans, Numbers, Overlap, Overlaps, PlannerProbe, Workload
from pyg_batchgnn.sample import ALL_NEIGHBORS, Replacement, taken_probability


@dataclass(frozen=True, eq=False)
class Degrees:
    """How many nodes have each degree; in-degrees and out-degrees are taken to be equal."""

    degree: Numbers  # [c], the distinct degrees
    nodes: Numbers  # [c], the number of nodes with each

    @property
    def edges(self) -> float:
        """The number of directed edges."""
        return float((self.degree * self.nodes).sum())

    @classmethod
    def lognormal(cls, nodes: float, edges: float, spread: float) -> Degrees:
        """Returns log-normal degrees of at least 1. ``spread``: the standard deviation of the
        logarithm; the mean is exp(spread**2 / 2) times the median."""
        steps = np.linspace(-5.0, 5.0, 400)
        share = np.exp(-(steps**2) / 2)
        share /= share.sum()
        low, high = -20.0, float(np.log(edges / nodes)) + 1.0
        for _ in range(60):
            middle = (low + high) / 2
            mean = (np.maximum(np.exp(middle + spread * steps), 1.0) * share).sum()
            low, high = (middle, high) if mean < edges / nodes else (low, middle)
        return cls(np.maximum(np.exp(high + spread * steps), 1.0), share * nodes)


@dataclass(frozen=True, eq=False)
class DegreeOverlap(Overlap):
    """The number of distinct nodes of minibatches, estimated from degrees."""

    workload: Workload
    degrees: Degrees
    replacement: Replacement
    share: float = 1.0  # the share of the nodes that are counted, apart from seeds: those on other hosts
    own_seeds: bool = False  # whether the seeds are left out

    def distinct(self, together: float) -> float:
        held = float((self._held(together) * self.degrees.nodes).sum())
        seeds = together * self.workload.batch_size if self.own_seeds else 0.0
        return max(held - seeds, 0.0) * self.share

    def likely(self) -> tuple[Numbers, Numbers]:
        return self._held(1), self.degrees.nodes * self.share

    def _held(self, together: float) -> Numbers:
        """Returns [c], the probability that one of ``together`` minibatches has a node, by
        degree."""
        work, degrees = self.workload, self.degrees
        seeds = min(1.0, together * work.batch_size / work.nodes)
        missed = np.full(len(degrees.degree), 1 - seeds)
        biased = degrees.degree * degrees.nodes / max(degrees.edges, 1e-300)
        for hop, expanded in enumerate(hop_probabilities(work, degrees, self.replacement)[:-1]):
            taken = expanded * _taken_share(degrees.degree, work.fanouts[hop], self.replacement)
            # A seed node is one in a single minibatch of an epoch; other nodes may be in several.
            ever = together * taken if hop == 0 else 1 - (1 - taken) ** together
            missed = missed * (1 - np.minimum((biased * ever).sum(), 1.0)) ** degrees.degree
        return 1 - missed


@dataclass(frozen=True)
class PowerOverlap(Overlap):
    """The number of distinct nodes of minibatches, as a power of the number of minibatches through
    two known points. All nodes are equally likely.
    """

    one: float  # distinct nodes of one minibatch
    many: float  # distinct nodes of ``together`` minibatches
    together: float  # the number of minibatches for ``many``
    population: float  # the number of nodes

    def distinct(self, together: float) -> float:
        if together <= 0:
            return 0.0
        exponent = np.log(self.many / self.one) / np.log(self.together)
        return float(min(self.population, self.one * together**exponent))

    def likely(self) -> tuple[Numbers, Numbers]:
        return np.array([self.one / self.population]), np.array([self.population])


def _taken_share(degree: Numbers, fanout: int, replacement: Replacement) -> Numbers:
    share: Numbers = taken_probability(torch.from_numpy(degree), fanout, replacement).numpy()
    return share


def hop_probabilities(workload: Workload, degrees: Degrees, replacement: Replacement) -> list[Numbers]:
    """Returns [c] for the seeds and each hop, the probability that it has a node of each degree."""
    found = np.full(len(degrees.degree), min(1.0, workload.batch_size / workload.nodes))
    left, hops = 1 - found, [found]
    biased = degrees.degree * degrees.nodes / max(degrees.edges, 1e-300)
    for fanout in workload.fanouts:
        reached = (biased * found * _taken_share(degrees.degree, fanout, replacement)).sum()
        found = (1 - (1 - min(reached, 1.0)) ** degrees.degree) * left
        left = left - found
        hops.append(found)
    return hops


def probe_degrees(
    workload: Workload, degrees: Degrees, ranks: int, *, replacement: Replacement = Replacement.WITH
) -> PlannerProbe:
    """Estimates the sizes of minibatches from degrees alone, for the policy "random". Every rank
    has its own host, and owns and trains equally many seed nodes. Raises ValueError for LABOR."""
    if workload.labor is not None:
        raise ValueError(f"labor={workload.labor!r} needs the graph itself, to be sampled; use probe_graph")
    ends = [workload.training * rank // ranks for rank in range(ranks + 1)]
    seeds = tuple(last - first for first, last in pairwise(ends))
    full, inner = (
        _means(
            dataclasses.replace(workload, fanouts=workload.fanouts[:hops]),
            degrees,
            1 - 1 / ranks,
            replacement,
        )
        for hops in (len(workload.fanouts), len(workload.fanouts) - 1)
    )
    nodes, edges = -(-workload.nodes // ranks), -(-workload.edges // ranks)
    return PlannerProbe("random", ranks, ranks, seeds, nodes, edges, full, inner)


def _means(work: Workload, degrees: Degrees, away: float, replacement: Replacement) -> MinibatchMeans:
    """Returns the means over minibatches. ``away``: the share of nodes that other ranks own."""
    found = hop_probabilities(work, degrees, replacement)
    nodes = [float((part * degrees.nodes).sum()) for part in found]
    edges = []
    for part, fanout in zip(found, work.fanouts, strict=False):
        most = degrees.degree if fanout == ALL_NEIGHBORS else np.full(len(degrees.degree), float(fanout))
        taken = most if replacement is Replacement.WITH else np.minimum(most, degrees.degree)
        edges.append(float((part * degrees.nodes * taken).sum()))
    own = work.schedule is not ScheduleName.GLOBAL
    theirs = [0.0 if own and hop == 0 else away for hop in range(len(edges))]
    asked = tuple(share * count for share, count in zip(theirs, nodes, strict=False))
    answered = tuple(share * count for share, count in zip(theirs, edges, strict=True))
    whole, remote = (Overlaps((DegreeOverlap(work, degrees, replacement, *of),)) for of in ((), (away, own)))
    return MinibatchMeans(sum(nodes), sum(edges), asked, asked, answered, sum(nodes[:-1]), whole, remote)
