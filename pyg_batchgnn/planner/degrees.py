"""Minibatches of a graph with known degrees, as if its edges joined nodes at random.

Every edge is assumed to lead to a node with a probability proportional to the node's degree. This
serves graphs that are too large to sample. It overstates the distinct nodes where neighbours share
neighbours.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np
import torch

from pyg_batchgnn.loader import ScheduleName
from pyg_batchgnn.planner.workload import MinibatchMeans, Numbers, Overlaps, PlannerProbe, Workload
from pyg_batchgnn.sample import Replacement, taken_probability


@dataclass(frozen=True, eq=False)
class Degrees:
    """The number of nodes of each degree. In-degrees and out-degrees are equal.

    Attributes:
        degree: [c], the distinct degrees.
        nodes: [c], the number of nodes that have each degree.
    """

    degree: Numbers
    nodes: Numbers

    @property
    def edges(self) -> float:
        """The number of directed edges."""
        return float((self.degree * self.nodes).sum())

    @classmethod
    def lognormal(cls, nodes: float, edges: float, spread: float) -> Degrees:
        """Returns degrees of at least 1 that have a log-normal distribution.

        Args:
            nodes, edges: N and (directed) E.
            spread: the standard deviation of the logarithm. The mean is exp(spread**2 / 2) times
                the median.
        """
        wanted, low, high = edges / nodes, -20.0, np.log(edges / nodes) + 1.0
        for _ in range(60):
            middle = (low + high) / 2
            degree, share = _around(middle, spread)
            low, high = (middle, high) if (degree * share).sum() < wanted else (low, middle)
        degree, share = _around(high, spread)
        return cls(degree, share * nodes)


def _around(centre: float, spread: float) -> tuple[Numbers, Numbers]:
    """Returns degrees, evenly spaced in their logarithm, and the share of nodes that have each."""
    steps = np.linspace(-5.0, 5.0, 400)
    share = np.exp(-(steps**2) / 2)
    return np.maximum(np.exp(centre + spread * steps), 1.0), share / share.sum()


@dataclass(frozen=True, eq=False)
class DegreeOverlap:
    """The distinct nodes of minibatches (`Overlap`), from the degrees."""

    workload: Workload  # nodes and training nodes, fanouts, minibatch size
    degrees: Degrees  # the graph's degrees
    replacement: Replacement  # whether sampling is with replacement
    share: float = 1.0  # the share of the nodes that are counted, apart from seeds: those on other hosts
    own_seeds: bool = False  # whether the seeds are left out

    def distinct(self, together: float) -> float:
        held = float((self._held(together) * self.degrees.nodes).sum())
        seeds = together * self.workload.batch_size if self.own_seeds else 0.0
        return max(held - seeds, 0.0) * self.share

    def missed(self, together: float, kept: float) -> float:
        likely, nodes = self._held(together), self.degrees.nodes * self.share
        order = np.argsort(-likely)
        before = np.concatenate([[0.0], nodes[order].cumsum()[:-1]])
        left = nodes[order] - np.clip(kept - before, 0.0, nodes[order])
        whole = float((likely * nodes).sum())
        return self.distinct(together) * float((left * likely[order]).sum()) / max(whole, 1e-300)

    def likely(self) -> tuple[Numbers, Numbers]:
        """Returns the probability that a minibatch holds a node of each degree, and the nodes."""
        return self._held(1), self.degrees.nodes * self.share

    def _held(self, together: float) -> Numbers:
        """Returns the probability [c] that a node is in one of ``together`` minibatches."""
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
class PowerOverlap:
    """The distinct nodes of minibatches (`Overlap`), from two known numbers.

    They grow as a power of the number of minibatches.

    Attributes:
        one: distinct nodes of one minibatch.
        many: distinct nodes of ``together`` minibatches.
        together: the number of minibatches that ``many`` is for.
        population: the number of nodes.
    """

    one: float
    many: float
    together: float
    population: float

    def distinct(self, together: float) -> float:
        if together <= 0:
            return 0.0
        exponent = np.log(self.many / self.one) / np.log(self.together)
        return float(min(self.population, self.one * together**exponent))

    def missed(self, together: float, kept: float) -> float:
        """Returns the number as if all nodes were equally likely."""
        return self.distinct(together) * max(1 - kept / self.population, 0.0)

    def likely(self) -> tuple[Numbers, Numbers]:
        """Returns one probability, that of all nodes."""
        return np.array([self.one / self.population]), np.array([self.population])


def _taken_share(degree: Numbers, fanout: int, replacement: Replacement) -> Numbers:
    """Returns `taken_probability` of NumPy's numbers."""
    share: Numbers = taken_probability(torch.from_numpy(degree), fanout, replacement).numpy()
    return share


def hop_probabilities(workload: Workload, degrees: Degrees, replacement: Replacement) -> list[Numbers]:
    """Returns the probabilities [c] that a minibatch finds a node as a seed, at hop 0, 1, ..."""
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
    """Returns the sizes of minibatches under the policy "random", from degrees alone.

    Every rank has a host of its own, and owns equally many seed nodes, so it trains its own with
    the balanced schedule.
    """
    seeds = [
        workload.training * (rank + 1) // ranks - workload.training * rank // ranks for rank in range(ranks)
    ]
    depths = [
        _means(workload, degrees, hops, 1 - 1 / ranks, replacement)
        for hops in (len(workload.fanouts), len(workload.fanouts) - 1)
    ]
    return PlannerProbe(
        *("random", ranks, ranks, tuple(seeds), -(-workload.nodes // ranks), -(-workload.edges // ranks)),
        *depths,
    )


def _means(
    workload: Workload, degrees: Degrees, hops: int, away: float, replacement: Replacement
) -> MinibatchMeans:
    """Returns the means over minibatches of the first ``hops`` hops."""
    work = Workload(**{**vars(workload), "fanouts": workload.fanouts[:hops]})
    found = hop_probabilities(work, degrees, replacement)
    nodes = [float((part * degrees.nodes).sum()) for part in found]
    edges = []
    for part, fanout in zip(found, work.fanouts, strict=False):
        most = degrees.degree if fanout < 0 else np.full(len(degrees.degree), float(fanout))
        picks = most if replacement is Replacement.WITH else np.minimum(most, degrees.degree)
        edges.append(float((part * degrees.nodes * picks).sum()))
    count, links, expanded = sum(nodes), sum(edges), sum(nodes[:-1])
    own = workload.schedule is not ScheduleName.GLOBAL
    theirs = [0.0 if own and hop == 0 else away for hop in range(hops)]
    asked = tuple(map(operator.mul, theirs, nodes[:-1]))
    return MinibatchMeans(
        count,
        links,
        asked,
        asked,
        tuple(map(operator.mul, theirs, edges)),
        expanded,
        min(expanded + sum(edges[-1:]), float(workload.nodes)),
        Overlaps((DegreeOverlap(work, degrees, replacement),)),
        Overlaps((DegreeOverlap(work, degrees, replacement, away, own),)),
    )
