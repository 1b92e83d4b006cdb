"""A probe of the real graph: the sizes and the overlap of some sampled minibatches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn.data import Schema
from pyg_batchgnn.loader import ScheduleName
from pyg_batchgnn.planner.growth import growth_of
from pyg_batchgnn.planner.seeds import busiest_rank, seed_trainers
from pyg_batchgnn.planner.workload import MinibatchMeans, Overlaps, PlannerProbe, Workload
from pyg_batchgnn.sample import Layout, MacrobatchSampler, Replacement, SampledMinibatch, SamplingPlan, Seeds
from pyg_batchgnn.store import TypedGraph

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
    threads: int | None = None,
) -> PlannerProbe:
    """Samples minibatches of the rank that has the most work.

    Args:
        workload: what is trained.
        graph: the whole graph.
        training: [s] int64, the training nodes, of the type that the workload names.
        owner: by node type, [N_t], the rank of each node.
        policy: the policy that made ``owner``.
        ranks: the number of ranks.
        ranks_per_host: the number of ranks that share a host's memory.
        replacement: whether sampling is with replacement.
        samples: the most minibatches that are sampled.
        threads: the most threads that sample.
    """
    hosts = [rank // ranks_per_host for rank in range(ranks)]
    seed_owner = owner[workload.seed_type][training]
    trainer = seed_trainers(workload.schedule, seed_owner, hosts)
    seeds, busiest = torch.bincount(trainer, minlength=ranks), busiest_rank(seed_owner, trainer, hosts)
    own = training if workload.schedule is ScheduleName.GLOBAL else training[trainer == busiest]
    sampler = MacrobatchSampler(graph, SamplingPlan(workload.fanouts, replacement), 0, threads, Layout.CSC)
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
    """Returns the seeds of a rank's shuffled minibatches.

    A smaller one only if there is no other.
    """
    order = torch.randperm(own.numel(), generator=torch.Generator().manual_seed(0))
    whole = max(1, min(samples, own.numel() // batch_size))
    return [part.contiguous() for part in own[order].to(torch.int64).split(batch_size)[:whole]]


def _means(
    sampled: Sequence[SampledMinibatch], hops: int, away: Sequence[Tensor], remote: Sequence[Tensor]
) -> MinibatchMeans:
    """Returns the means over the first hops of sampled minibatches.

    Args:
        sampled: the minibatches.
        hops: the number of hops.
        away, remote: by node type, [N_t], whether a node is another rank's or another host's.
    """
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
