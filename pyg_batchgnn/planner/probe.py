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
from pyg_batchgnn.planner.workload import MinibatchMeans, Numbers, Overlap, Overlaps, PlannerProbe, Workload
from pyg_batchgnn.sample import Layout, MacrobatchSampler, Replacement, SampledMinibatch, SamplingPlan, Seeds
from pyg_batchgnn.store import TypedGraph
from pyg_batchgnn.types import Schema

#: The number of probabilities on the estimate's grid, and of its rounds.
_GRID, _ROUNDS = 60, 400


@dataclass(frozen=True, eq=False)
class Growth(Overlap):
    """How the number of distinct nodes grows with the number of minibatches (BatchGNN, appendix A).
    For k of the m sampled minibatches it is known, beyond it is estimated from the probability of
    each node to be in a minibatch."""

    counts: tuple[float, ...]  # [m], the nodes that were in exactly 1, 2, ..., m sampled minibatches
    population: float  # the number of nodes that can be in a minibatch, at least the sum of counts

    @cached_property
    def mixture(self) -> tuple[Numbers, Numbers]:
        """The maximum-likelihood mixture of binomials: probabilities, descending, and nodes with
        each."""
        m = len(self.counts)
        grid = np.concatenate([[1.0], np.geomspace(1 / (4 * m * 16), 1 - 1 / (8 * m), _GRID)[::-1], [0.0]])
        counts = np.array([max(self.population - sum(self.counts), 0.0), *self.counts])
        chance = _binomial(m, grid)
        weight = np.full(len(grid), counts.sum() / len(grid))
        for _ in range(_ROUNDS):
            weight = weight * (chance.T @ (counts / np.maximum(chance @ weight, 1e-300)))
        return grid, weight

    def distinct(self, together: float) -> float:
        low, m, seen = int(together), len(self.counts), sum(self.counts)
        if low != together:  # interpolated between whole numbers
            share = together - low
            return (1 - share) * self.distinct(low) + share * self.distinct(low + 1)
        if low > m:  # by the mixture, shifted to give exactly what was seen at m
            return min(self.population, seen + self._by_mixture(low) - self._by_mixture(m))
        missed, total = 1.0, 0.0
        for j, nodes in enumerate(self.counts, 1):  # a node in j samples is missed by C(m-j, low) choices
            missed = missed * max(m - low - j + 1, 0) / (m - j + 1)
            total += nodes * (1 - missed)
        return total

    def _by_mixture(self, k: float) -> float:
        grid, weight = self.mixture
        return float((weight * (1 - (1 - grid) ** k)).sum())

    def likely(self) -> tuple[Numbers, Numbers]:
        return self.mixture


def _binomial(m: int, grid: Numbers) -> Numbers:
    """Returns [m + 1, p], the probability of j successes in m trials, for each p of ``grid``."""
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
    """Returns the growth. ``times``: [n], in how many samples each node was."""
    histogram = np.bincount(times.astype(np.int64), minlength=samples + 1)[1:]
    return Growth(tuple(float(count) for count in histogram), population)


def owners_of(dataset: Dataset, policy: str, ranks: int, comm: Communicator) -> list[Tensor]:
    """Returns the rank that owns each node, [N_t] int64 by node type. ``policy``: a policy's name,
    or the folder of a saved partition with one part per rank. ``comm``: of this process alone."""
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
    """Returns [s] int64, the rank that trains each seed node, from the rank that owns it. For the
    schedule "global", where it changes with the epoch, it is the owner."""
    if schedule is not ScheduleName.BALANCED:
        return owner
    counts, trainer = torch.bincount(owner, minlength=len(hosts)).tolist(), owner.clone()
    for rank in range(len(hosts)):
        trainer[owner == rank] = balanced_trainers(counts, hosts, rank)
    return trainer


def busiest_rank(owner: Tensor, trainer: Tensor, hosts: Sequence[int]) -> int:
    """Returns the rank with the most work. Ranks within 1 of the largest number of seed nodes
    compete: most seed nodes owned by other hosts, then by other ranks, then in all."""
    host, ranks = torch.tensor(hosts), len(hosts)
    counts = [
        torch.bincount(trainer[of], minlength=ranks).tolist()
        for of in (host[owner] != host[trainer], owner != trainer, owner >= 0)
    ]
    able = [rank for rank in range(ranks) if counts[-1][rank] >= max(counts[-1]) - 1]
    return max(able, key=lambda rank: [count[rank] for count in counts])


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
    """Samples minibatches of the rank with the most work, and returns their mean sizes.

    Args:
        training: [s] int64, the training nodes, of the type that the workload names.
        owner: by node type, [N_t], the rank of each node.
        policy: the policy that made ``owner``.
        ranks_per_host: the number of ranks that share a host's memory.
        replacement: whether neighbours may be picked more than once.
        samples: the largest number of minibatches to sample.
    """
    hosts = [rank // ranks_per_host for rank in range(ranks)]
    seed_owner = owner[workload.seed_type][training]
    trainer = seed_trainers(workload.schedule, seed_owner, hosts)
    seeds, busiest = torch.bincount(trainer, minlength=ranks), busiest_rank(seed_owner, trainer, hosts)
    own = training if workload.schedule is ScheduleName.GLOBAL else training[trainer == busiest]
    plan = SamplingPlan(workload.fanouts, replacement, labor=workload.labor)
    sampler = MacrobatchSampler(graph, plan, layout=Layout.CSC)
    order = torch.randperm(own.numel(), generator=torch.Generator().manual_seed(0))
    # A smaller one only if it is the only one.
    whole = max(1, min(samples, own.numel() // workload.batch_size))
    seeds_of = seeds_of_type(
        graph.schema, workload.seed_type, own[order].long().split(workload.batch_size)[:whole]
    )
    sampled = sampler.sample(seeds_of, 0)
    # Nodes of other ranks, and nodes of other hosts.
    away = [of_type != busiest for of_type in owner]
    remote = [of_type // ranks_per_host != busiest // ranks_per_host for of_type in owner]
    nodes = sum((torch.bincount(of_type, minlength=ranks) for of_type in owner), torch.zeros(ranks).long())
    edges = torch.zeros(ranks, dtype=torch.int64)
    for target, one in zip(graph.schema.target_types, graph.relations, strict=True):
        edges.index_add_(0, owner[target], one.degrees)
    full, inner = (
        _means(sampled, hops, away, remote) for hops in (len(workload.fanouts), len(workload.fanouts) - 1)
    )
    part = int(nodes.max()), int(edges.max())
    return PlannerProbe(policy, ranks, hosts[-1] + 1, tuple(seeds.tolist()), *part, full, inner)


def seeds_of_type(schema: Schema, node_type: int, lists: Sequence[Tensor]) -> list[Seeds]:
    """Returns the seeds of minibatches from lists of nodes of one type."""
    return [Seeds.of(schema, {schema.node_types[node_type]: ids}) for ids in lists]


def _means(
    sampled: Sequence[SampledMinibatch], hops: int, away: Sequence[Tensor], remote: Sequence[Tensor]
) -> MinibatchMeans:
    """Returns the means over minibatches, of their first ``hops`` hops. ``away``, ``remote``: by
    node type, [N_t] bool, True for nodes of another rank, or another host."""
    times = [torch.zeros(of_type.numel(), dtype=torch.int64) for of_type in away]
    sums, asked = np.zeros(3), np.zeros((3, hops))
    for one in sampled:
        for counts, nodes in zip(times, one.nodes, strict=True):
            counts[nodes.node[: sum(nodes.nodes_per_hop[: hops + 1])].unique()] += 1
        edges = sum(sum(of.edges_per_hop[:hops]) for of in one.edges)
        sums += [sum(sum(of.nodes_per_hop[:k]) for of in one.nodes) for k in (hops + 1, hops)] + [edges]
        asked += _asked(one, hops, away)
    number = max(len(sampled), 1)
    found, expanded, links = (sums / number).tolist()
    distinct = [growth_of(one.numpy(), number, float(one.numel())) for one in times]
    others = [
        growth_of(one[far].numpy(), number, float(int(far.sum())))
        for one, far in zip(times, remote, strict=True)
    ]
    rows, sections, answered = (tuple(row) for row in (asked / number).tolist())
    overlaps = Overlaps(tuple(distinct)), Overlaps(tuple(others))
    return MinibatchMeans(found, links, rows, sections, answered, expanded, *overlaps)


def _asked(one: SampledMinibatch, hops: int, away: Sequence[Tensor]) -> Numbers:
    """Returns [3, hops]: the nodes of other ranks with in-edges, the same counted once for each
    relation into their type, and their in-edges."""
    found = np.zeros((3, hops))
    for number, nodes in one.reached_nodes.items():
        into, theirs, first = one.schema.relations_into[number], away[number][nodes.node], 0
        for hop in range(hops if into else 0):
            last = first + nodes.nodes_per_hop[hop]
            others = theirs[first:last]
            asked = int(others.sum())
            answered = sum(int(one.edges[of].indptr[first : last + 1].diff()[others].sum()) for of in into)
            found[:, hop] += (asked, asked * len(into), answered)
            first = last
    return found
