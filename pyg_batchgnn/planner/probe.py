"""A probe of the real graph: the sizes and the overlap of some sampled minibatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset
from pyg_batchgnn.loader import ScheduleName, balanced_trainers
from pyg_batchgnn.partition import load_partition, partition_parts, random_owner, read_partition_meta
from pyg_batchgnn.planner.workload import MinibatchMeans, Numbers, Overlaps, PlannerProbe, Workload
from pyg_batchgnn.sample import Layout, MacrobatchSampler, Replacement, SampledMinibatch, SamplingPlan, Seeds
from pyg_batchgnn.store import TypedGraph
from pyg_batchgnn.types import Schema

# The number of distinct nodes of minibatches that are fetched together (BatchGNN, appendix A).
#
# The probe counts how many nodes were in exactly j of m sampled minibatches. From these counts
# follow the distinct nodes of any k <= m minibatches, without further assumptions. For more
# minibatches, the probability that a node is in a minibatch is estimated.


#: The number of probabilities on the estimate's grid, and of its rounds.
_GRID, _ROUNDS = 60, 400


@dataclass(frozen=True, eq=False)
class Growth:
    """The growth of the number of distinct nodes with the number of minibatches."""

    #: [m], the number of nodes that were in exactly 1, 2, ..., m of m sampled minibatches. They may
    #: be means.
    counts: tuple[float, ...]
    population: float  # the number of nodes that can be in a minibatch, at least the sum of ``counts``

    @property
    def samples(self) -> int:
        """The number m of sampled minibatches."""
        return len(self.counts)

    @property
    def seen(self) -> float:
        """The number of distinct nodes of all samples together."""
        return sum(self.counts)

    @cached_property
    def mixture(self) -> tuple[Numbers, Numbers]:
        """The mixture of binomials with the maximum likelihood: probabilities, the largest first,
        and the number of nodes that have each."""
        m = self.samples
        grid = np.concatenate([[1.0], np.geomspace(1 / (4 * m * 16), 1 - 1 / (8 * m), _GRID)[::-1], [0.0]])
        unseen = max(self.population - self.seen, 0.0)
        counts = np.array([unseen, *self.counts])
        chance = _binomial(m, grid)
        weight = np.full(len(grid), counts.sum() / len(grid))
        for _ in range(_ROUNDS):
            expected = chance @ weight
            weight = weight * (chance.T @ (counts / np.maximum(expected, 1e-300)))
        return grid, weight

    def distinct(self, together: float) -> float:
        """Returns the expected number of distinct nodes, interpolated between whole numbers."""
        low = int(together)
        if low != together:
            share = together - low
            return (1 - share) * self.distinct(low) + share * self.distinct(low + 1)
        if low <= self.samples:
            return self._rarefied(low)
        # by the mixture, shifted to give exactly what was seen at m
        return min(self.population, self.seen + self._by_mixture(low) - self._by_mixture(self.samples))

    def _rarefied(self, k: int) -> float:
        """Returns the mean over all choices of k samples."""
        m, missed, total = self.samples, 1.0, 0.0
        for j, nodes in enumerate(self.counts, 1):
            missed = missed * max(m - k - j + 1, 0) / (m - j + 1)
            total += nodes * (1 - missed)
        return total

    def _by_mixture(self, k: float) -> float:
        grid, weight = self.mixture
        return float((weight * (1 - (1 - grid) ** k)).sum())

    def likely(self) -> tuple[Numbers, Numbers]:
        """Returns the probabilities [c] that a minibatch holds a node, and the number of nodes [c]
        that have each."""
        return self.mixture

    def missed(self, together: float, kept: float) -> float:
        """Returns the expected number of distinct nodes outside the ``kept`` most likely ones."""
        if kept <= 0:
            return self.distinct(together)
        grid, weight = self.mixture
        before = np.concatenate([[0.0], weight.cumsum()[:-1]])
        left = weight - np.clip(kept - before, 0.0, weight)
        share = (left * (1 - (1 - grid) ** together)).sum() / max(self._by_mixture(together), 1e-300)
        return self.distinct(together) * float(share)


def _binomial(m: int, grid: Numbers) -> Numbers:
    """Returns the probabilities [m + 1, p] of j successes in m trials, computed in logarithms."""
    j = np.arange(m + 1)[:, None]
    steps = np.log(np.arange(1, m + 1))
    factorial = np.concatenate([[0.0], steps.cumsum()])
    choose = factorial[m] - factorial[j] - factorial[m - j]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = (
            choose + np.where(j > 0, j * np.log(grid), 0.0) + np.where(j < m, (m - j) * np.log1p(-grid), 0.0)
        )
    return np.exp(logs)


def growth_of(times: Numbers, samples: int, population: float) -> Growth:
    """Returns the growth, given in how many samples each node was."""
    histogram = np.bincount(times.astype(np.int64), minlength=samples + 1)[1:]
    return Growth(tuple(float(count) for count in histogram), population)


def owners_of(dataset: Dataset, policy: str, ranks: int, comm: Communicator) -> list[Tensor]:
    """Returns the rank that owns each node, by node type, [N_t] int64.

    Args:
        policy: a policy's name, or the folder of a saved partition with one part per rank.
        comm: a communicator of this process alone.

    Raises:
        ValueError: the saved partition is of another graph or has another number of parts.
    """
    nodes = [(one.name if dataset.schema.num_types > 1 else None, one.num_nodes) for one in dataset.node_sets]
    if policy == "random" and ranks == 1:
        return [torch.zeros(count, dtype=torch.int64) for _, count in nodes]
    if policy == "random":
        return [random_owner(torch.arange(count), ranks, 0, name).to(torch.int64) for name, count in nodes]
    if Path(policy).is_dir():
        return _saved(dataset, policy, ranks, comm)
    owner = [torch.empty(count, dtype=torch.int64) for _, count in nodes]
    bare = dataset.without_attributes()
    for part in partition_parts(bare, policy, ranks, comm=comm):
        for number, of_type in enumerate(owner):
            of_type[part.original_ids(number)] = part.number
    return owner


def _saved(dataset: Dataset, folder: str, ranks: int, comm: Communicator) -> list[Tensor]:
    book = read_partition_meta(Path(folder)).book
    if book.parts != ranks:
        raise ValueError(
            f"{folder} has {book.parts} parts, not one for each of {ranks} ranks; partition anew"
        )
    counts = [one.num_nodes for one in dataset.node_sets]
    if book.sizes.sum(0).tolist() != counts:
        raise ValueError(
            f"{folder} has {book.sizes.sum(0).tolist()} nodes by type, but {dataset.name} has {counts}; give "
            "a partition of the same graph"
        )
    whole = load_partition(folder, comm)
    owner = []
    for number, count in enumerate(counts):  # within a type, nodes are in the order of the saved parts
        of_type = torch.empty(count, dtype=torch.int64)
        of_type[whole.original_ids(number)] = torch.arange(ranks).repeat_interleave(book.sizes[:, number])
        owner.append(of_type)
    return owner


def seed_trainers(schedule: ScheduleName, owner: Tensor, hosts: Sequence[int]) -> Tensor:
    """Returns the rank that trains each seed node, [s] int64."""
    if schedule is not ScheduleName.BALANCED:
        return owner
    counts, trainer = torch.bincount(owner, minlength=len(hosts)).tolist(), owner.clone()
    for rank in range(len(hosts)):
        trainer[owner == rank] = balanced_trainers(counts, hosts, rank)
    return trainer


def busiest_rank(owner: Tensor, trainer: Tensor, hosts: Sequence[int]) -> int:
    """Returns the rank that has the most work. Of the ranks whose number of seed nodes is within 1
    of the largest, it is the one that trains the most seed nodes of other hosts."""
    ranks, host = len(hosts), torch.tensor(hosts)
    seeds = torch.bincount(trainer, minlength=ranks)
    remote = torch.bincount(trainer[host[owner] != host[trainer]], minlength=ranks)
    away = torch.bincount(trainer[owner != trainer], minlength=ranks)
    most = int(seeds.max())
    return max(
        (rank for rank in range(ranks) if int(seeds[rank]) >= most - 1),
        key=lambda rank: (int(remote[rank]), int(away[rank]), int(seeds[rank])),
    )


#: The default number of minibatches that are sampled.
SAMPLES = 32


def probe_graph(
    workload: Workload,
    graph: TypedGraph,
    training: Tensor,
    owner: Sequence[Tensor],
    *,
    policy: str = "random",
    ranks: int,
    ranks_per_host: int = 1,
    replacement: Replacement = Replacement.WITH,
    samples: int = SAMPLES,
) -> PlannerProbe:
    """Samples minibatches of the rank that has the most work.

    Args:
        training: [s] int64, the training nodes, of the type that the workload names.
        owner: by node type, [N_t], the rank of each node.
        policy: the policy that made ``owner``.
        ranks_per_host: the number of ranks that share a host's memory.
        replacement: whether sampling is with replacement.
        samples: the most minibatches that are sampled.
    """
    hosts = [rank // ranks_per_host for rank in range(ranks)]
    seed_owner = owner[workload.seed_type][training]
    trainer = seed_trainers(workload.schedule, seed_owner, hosts)
    seeds, busiest = torch.bincount(trainer, minlength=ranks), busiest_rank(seed_owner, trainer, hosts)
    own = training if workload.schedule is ScheduleName.GLOBAL else training[trainer == busiest]
    sampler = MacrobatchSampler(graph, SamplingPlan(workload.fanouts, replacement), layout=Layout.CSC)
    lists = _seed_lists(own, workload.batch_size, samples)
    sampled = sampler.sample(seeds_of_type(graph.schema, workload.seed_type, lists), 0)
    # Nodes of other ranks, and nodes of other hosts.
    away = [of_type != busiest for of_type in owner]
    remote = [of_type // ranks_per_host != busiest // ranks_per_host for of_type in owner]
    hops = len(workload.fanouts)
    nodes = sum(torch.bincount(of_type, minlength=ranks) for of_type in owner)
    edges = torch.zeros(ranks, dtype=torch.int64)
    for target, one in zip(graph.schema.target_types, graph.relations, strict=True):
        edges.index_add_(0, owner[target], one.degrees)
    return PlannerProbe(
        policy,
        ranks,
        hosts[-1] + 1,
        tuple(seeds.tolist()),
        int(torch.as_tensor(nodes).max()),
        int(edges.max()),
        _means(sampled, hops, away, remote),
        _means(sampled, hops - 1, away, remote),
    )


def seeds_of_type(schema: Schema, node_type: int, lists: Sequence[Tensor]) -> list[Seeds]:
    """Returns the seeds of minibatches whose seeds are of one type."""
    name = schema.node_types[node_type]
    return [Seeds.of(schema, {name: ids}) for ids in lists]


def _seed_lists(own: Tensor, batch_size: int, samples: int) -> list[Tensor]:
    """Returns the seeds of a rank's shuffled minibatches, a smaller one only if it is the only
    one."""
    order = torch.randperm(own.numel(), generator=torch.Generator().manual_seed(0))
    whole = max(1, min(samples, own.numel() // batch_size))
    return [part.contiguous() for part in own[order].to(torch.int64).split(batch_size)[:whole]]


def _means(
    sampled: Sequence[SampledMinibatch], hops: int, away: Sequence[Tensor], remote: Sequence[Tensor]
) -> MinibatchMeans:
    """Returns the means over the first hops of sampled minibatches."""
    times = [torch.zeros(of_type.numel(), dtype=torch.int64) for of_type in away]
    population = sum(of_type.numel() for of_type in away)
    sizes, relayed = _zeros(4), _zeros(3, hops)
    for one in sampled:
        for counts, nodes in zip(times, one.nodes, strict=True):
            counts[nodes.node[: sum(nodes.nodes_per_hop[: hops + 1])].unique()] += 1
        sizes += _sizes(one, hops, population)
        relayed += _relayed(one, hops, away)
    number = max(len(sampled), 1)
    asked, sections, answered = (tuple(row) for row in (relayed / number).tolist())
    nodes, edges, expanded, room = (sizes / number).tolist()
    distinct = [growth_of(one.numpy(), number, float(one.numel())) for one in times]
    others = [
        growth_of(one[far].numpy(), number, float(int(far.sum())))
        for one, far in zip(times, remote, strict=True)
    ]
    return MinibatchMeans(
        nodes,
        edges,
        asked,
        sections,
        answered,
        expanded,
        room,
        Overlaps(tuple(distinct)),
        Overlaps(tuple(others)),
    )


def _sizes(one: SampledMinibatch, hops: int, population: int) -> Tensor:
    """Returns the nodes, the edges, the expanded nodes and the room of a minibatch, [4]."""
    nodes = sum(sum(of_type.nodes_per_hop[: hops + 1]) for of_type in one.nodes)
    edges = sum(sum(edges.edges_per_hop[:hops]) for edges in one.edges)
    expanded = sum(sum(of_type.nodes_per_hop[:hops]) for of_type in one.nodes)
    last = sum(sum(edges.edges_per_hop[:hops][-1:]) for edges in one.edges)
    return torch.tensor([nodes, edges, expanded, min(expanded + last, population)], dtype=torch.float64)


def _relayed(one: SampledMinibatch, hops: int, away: Sequence[Tensor]) -> Tensor:
    """Returns the nodes that are asked for, the sections' nodes and the edges of each hop."""
    found, schema = _zeros(3, hops), one.schema
    for number, nodes in one.reached_nodes.items():
        into, first = schema.relations_into[number], 0
        theirs = away[number][nodes.node]
        for hop in range(hops):
            rows = slice(first, first := first + nodes.nodes_per_hop[hop])
            others = theirs[rows]
            asked = int(others.sum()) if into else 0
            found[0, hop] += asked
            found[1, hop] += asked * len(into)
            for relation in into:
                indptr = one.edges[relation].indptr[rows.start : rows.stop + 1]
                found[2, hop] += int(indptr.diff()[others].sum())
    return found


def _zeros(*shape: int) -> Tensor:
    return torch.zeros(*shape, dtype=torch.float64)
