"""A probe of the real graph: the sizes and the overlap of some sampled minibatches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn.planner.growth import growth_of
from pyg_batchgnn.planner.workload import MinibatchMeans, PlannerProbe, Workload
from pyg_batchgnn.sample import Layout, MacrobatchSampler, Replacement, SampledMinibatch, SamplingPlan
from pyg_batchgnn.store import CscGraph

#: The default number of minibatches that are sampled.
SAMPLES = 32


def probe_graph(
    workload: Workload,
    graph: CscGraph,
    training: Tensor,
    owner: Tensor,
    *,
    policy: str = "random",
    ranks: int,
    ranks_per_host: int = 1,
    replacement: Replacement = Replacement.WITH,
    samples: int = SAMPLES,
    threads: int | None = None,
) -> PlannerProbe:
    """Samples minibatches of the rank that has the most training nodes.

    Args:
        workload: what is trained.
        graph: the whole graph.
        training: [s] int64, the training nodes.
        owner: [N], the rank of each node.
        policy: the policy that made ``owner``.
        ranks: the number of ranks.
        ranks_per_host: the number of ranks that share a host's memory.
        replacement: whether sampling is with replacement.
        samples: the most minibatches that are sampled.
        threads: the most threads that sample.
    """
    seeds = torch.bincount(owner[training], minlength=ranks)
    busiest = int(seeds.argmax())
    own = training[owner[training] == busiest] if workload.own_seeds else training
    sampler = MacrobatchSampler(graph, SamplingPlan(workload.fanouts, replacement), 0, threads, Layout.CSC)
    sampled = sampler.sample(_seed_lists(own, workload.batch_size, samples), 0)
    # Nodes of other ranks, and nodes of other hosts.
    away = owner != busiest
    remote = owner // ranks_per_host != busiest // ranks_per_host
    hops = len(workload.fanouts)
    nodes = torch.bincount(owner, minlength=ranks)
    edges = torch.zeros(ranks, dtype=torch.int64)
    edges.index_add_(0, owner, graph.indptr.diff())
    return PlannerProbe(
        policy,
        ranks,
        -(-ranks // ranks_per_host),
        tuple(seeds.tolist()),
        int(nodes.max()),
        int(edges.max()),
        _means(sampled, hops, away, remote),
        _means(sampled, hops - 1, away, remote),
    )


def _seed_lists(own: Tensor, batch_size: int, samples: int) -> list[Tensor]:
    """Returns the seeds of a rank's shuffled minibatches.

    A smaller one only if there is no other.
    """
    order = torch.randperm(own.numel(), generator=torch.Generator().manual_seed(0))
    whole = max(1, min(samples, own.numel() // batch_size))
    return [part.contiguous() for part in own[order].to(torch.int64).split(batch_size)[:whole]]


def _means(sampled: Sequence[SampledMinibatch], hops: int, away: Tensor, remote: Tensor) -> MinibatchMeans:
    """Returns the means over the first hops of sampled minibatches."""
    times = torch.zeros(away.numel(), dtype=torch.int64)
    nodes = edges = expanded = room = 0.0
    asked, answered = torch.zeros(hops), torch.zeros(hops)
    for one in sampled:
        count, links = sum(one.nodes_per_hop[: hops + 1]), sum(one.edges_per_hop[:hops])
        before = sum(one.nodes_per_hop[:hops])
        node = one.node[:count]
        times[node.unique()] += 1
        nodes, edges = nodes + count, edges + links
        expanded, room = expanded + before, room + min(before + one.edges_per_hop[hops - 1], away.numel())
        degree = one.indptr.diff()
        first = 0
        for hop in range(hops):
            rows = torch.arange(first, first := first + one.nodes_per_hop[hop])
            theirs = away[node[rows]]
            asked[hop] += int(theirs.sum())
            answered[hop] += int(degree[rows][theirs].sum())
    number = max(len(sampled), 1)
    return MinibatchMeans(
        nodes / number,
        edges / number,
        tuple((asked / number).tolist()),
        tuple((answered / number).tolist()),
        expanded / number,
        room / number,
        growth_of(times.numpy(), number, float(times.numel())),
        growth_of(times[remote].numpy(), number, float(int(remote.sum()))),
    )
