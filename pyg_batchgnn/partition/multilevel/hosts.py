"""Two levels: a graph is cut for the hosts first, then each host's share for its ranks.

So few edges join hosts, where rows travel. Ranks of one host read each other's rows in shared
memory.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.ops import MergedLists, WeightedGraph, fold_key
from pyg_batchgnn.partition.goal import Goal
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph
from pyg_batchgnn.partition.release import release_memory

#: The edges that are looked at together.
_EDGES = 1 << 20

#: Cuts a graph by a goal and a key: [n] int32, the parts of this rank's nodes. Collective.
Cut = Callable[[RankGraph, Goal, int], Tensor]


def cut_by_hosts(graph: RankGraph, goal: Goal, hosts: int, key: int, cut: Cut) -> Tensor:
    """Returns the parts of this rank's nodes, [n] int32. Collective.

    Hosts get parts in order, as many each. A host may exceed the mean by half of what a part may,
    so that the cut inside it has room as well.

    Args:
        graph: the graph.
        goal: the parts of all hosts together.
        hosts: the number of hosts; divides the number of parts.
        key: the key of the random choices.
        cut: the way in which a graph is cut.
    """
    if hosts == 1 or hosts == goal.parts:
        return cut(graph, goal, key)
    host = cut(graph, Goal.of(hosts, goal.total, goal.slack.sqrt()), fold_key(key, hosts))
    each, part = goal.parts // hosts, torch.empty_like(host)
    for number in range(hosts):
        own = host == number
        inside = _graph_of(graph, own)
        release_memory()
        total = inside.lists.node_weight.sum(0, dtype=torch.int64)
        graph.comm.all_reduce(total, MessageKind.PARTITION)
        found = cut(inside, Goal.within(each, total, goal.limit), fold_key(key, hosts + 1 + number))
        part[own] = found + number * each
        del inside
        release_memory()
    return part


def hosts_of_parts(comm: Communicator, parts: int) -> int:
    """Returns the number of hosts that get parts in order, as many each.

    It is the number of the ranks' hosts if there is a part per rank. It is 1 where the ranks are
    spread in another way.
    """
    hosts = len(set(comm.hosts))
    even = parts == comm.size and parts % hosts == 0
    first = [comm.hosts.index(host) for host in dict.fromkeys(comm.hosts)]
    together = even and comm.hosts == [comm.hosts[at] for at in first for _ in range(parts // hosts)]
    return hosts if together else 1


def _graph_of(graph: RankGraph, own: Tensor) -> RankGraph:
    """Returns the graph of some nodes, [n] bool. Collective."""
    comm, lists = graph.comm, graph.lists
    counts = comm.all_gather(own.sum().view(1), MessageKind.PARTITION).rows
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    number = torch.where(own, own.cumsum(0) - 1 + bounds[comm.rank], -1).to(graph.id_dtype)
    found = _lists_among(lists, own, graph.with_ghosts(number))
    return RankGraph.of(comm, bounds, found, lists.node_weight[own])


def _lists_among(lists: WeightedGraph, own: Tensor, number: Tensor) -> MergedLists:
    """Returns the lists of some nodes, [n] bool, with the neighbours that have a new number.

    Args:
        lists: the lists of all own nodes.
        own: which of the nodes.
        number: [n + ghosts], the new number of each node, -1 for those left out.
    """
    degrees, ids, weights = list[Tensor](), list[Tensor](), list[Tensor]()
    marks = torch.arange(0, lists.num_edges + _EDGES, _EDGES)
    cuts = torch.searchsorted(lists.indptr, marks).clamp(max=lists.num_nodes).tolist()
    for rows in (slice(*ends) for ends in pairwise([0, *cuts[1:-1], lists.num_nodes])):
        degree = lists.indptr[rows.start : rows.stop + 1].diff()
        edges = slice(*lists.indptr[[rows.start, rows.stop]].tolist())
        there = number[lists.indices[edges]]
        kept = (there >= 0) & own[rows].repeat_interleave(degree)
        row = torch.arange(len(degree)).repeat_interleave(degree)[kept]
        degrees.append(torch.bincount(row, minlength=len(degree))[own[rows]])
        ids.append(there[kept])
        if lists.edge_weight is not None:
            weights.append(lists.edge_weight[edges][kept])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cat(degrees).cumsum(0)])
    joined = torch.cat(ids)
    del ids
    if lists.edge_weight is None:
        return MergedLists(indptr, joined, torch.empty(0, dtype=torch.int32), 1)
    return MergedLists(indptr, joined, torch.cat(weights), 0)
