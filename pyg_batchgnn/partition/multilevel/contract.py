"""The graph of clusters over ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.partition.bounded import rows_per_round
from pyg_batchgnn.partition.move import group_by_range, pull, send
from pyg_batchgnn.partition.multilevel.cluster import Clusters
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph


@dataclass(frozen=True, eq=False)
class CoarseLevel:
    """A coarse graph and the way back to the finer one.

    Attributes:
        graph: the coarse graph.
        node: [m], the distinct coarse nodes of this rank's finer nodes.
        row: [n] int32, the row in ``node`` of each of this rank's finer nodes.
    """

    graph: RankGraph
    node: Tensor
    row: Tensor

    def project(self, values: Tensor) -> Tensor:
        """Returns values of own coarse nodes for this rank's finer nodes, [n]. Collective."""
        graph = self.graph
        return pull(graph.comm, graph.remote(values), self.node)[self.row.to(torch.int64)]


def contract(graph: RankGraph, clusters: Clusters) -> CoarseLevel:
    """Returns the graph whose nodes are the clusters. Collective."""
    comm, nodes = graph.comm, graph.lists.num_nodes
    names, row = ops.number_ghosts(clusters.label[:nodes].contiguous(), range(0), graph.total)
    used = torch.zeros(nodes, dtype=torch.bool)
    used[send(comm, names, graph.group(names)).rows.to(torch.int64) - graph.first] = True
    counts = comm.all_gather(used.sum().view(1), MessageKind.PARTITION).rows
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    number = (used.cumsum(0) - 1 + bounds[comm.rank]).to(graph.id_dtype)
    coarse = pull(comm, graph.remote(number), names)
    lists = _gather_lists(graph, graph.with_ghosts(coarse[row.to(torch.int64)]), bounds)
    return CoarseLevel(RankGraph.of(comm, bounds, lists, clusters.weight[used]), coarse, row)


def _gather_lists(graph: RankGraph, coarse: Tensor, bounds: Tensor) -> ops.MergedLists:
    """Returns the lists of this rank's coarse nodes. Collective.

    Args:
        graph: the finer graph.
        coarse: [n + ghosts], the coarse nodes of its nodes.
        bounds: [ranks + 1] int64, where each rank's range of coarse nodes begins.
    """
    comm, first = graph.comm, int(bounds[graph.comm.rank])
    size, pieces = int(bounds[comm.rank + 1]) - first, list[Tensor]()
    for rows in _edges_of_clusters(graph, coarse, int(bounds[-1])):
        pieces.append(send(comm, rows, group_by_range(rows[:, 0].contiguous(), bounds)).rows)
    indptr = torch.zeros(size + 1, dtype=torch.int64)
    for rows in pieces:
        ops.count_values(rows[:, 0].contiguous(), first, indptr[1:])
    torch.cumsum(indptr, 0, out=indptr)
    ids = torch.empty(int(indptr[-1]), dtype=graph.id_dtype)
    weight, cursor = torch.empty(ids.numel(), dtype=torch.int32), indptr[:-1].clone()
    while pieces:
        ops.append_neighbours(pieces.pop(), first, cursor, ids, weight)
    return ops.merge_neighbours(indptr, ids, weight, first)


def _edges_of_clusters(graph: RankGraph, coarse: Tensor, total: int) -> Iterator[Tensor]:
    """Yields the edges between clusters that this rank knows, [x, 3] each: coarse node, other
    coarse node, weight. As many pieces on every rank. Collective."""
    names, local = ops.number_ghosts(coarse, range(0), total)
    own = local[: graph.lists.num_nodes].contiguous()
    order, counts = ops.group_by_owner(own, names.numel())
    start, ends = torch.zeros(2, names.numel() + 1, dtype=torch.int64)
    torch.cumsum(counts, 0, out=start[1:])
    ends[1:].index_add_(0, own.to(torch.int64), graph.lists.indptr.diff())
    ends = ends.cumsum(0)
    most = rows_per_round(3 * coarse.dtype.itemsize, graph.comm.size)
    pieces = graph.comm.max(-(-graph.lists.num_edges // most))
    marks = int(ends[-1]) * torch.arange(pieces + 1) // max(pieces, 1)
    cuts = torch.searchsorted(ends, marks).tolist()
    cuts[0], cuts[-1] = 0, names.numel()
    for piece in range(pieces):
        clusters = range(cuts[piece], cuts[piece + 1])
        edges = ops.contract_clusters(graph.lists, local, start, order, clusters)
        rows = torch.empty(edges.shape, dtype=coarse.dtype)
        rows[:, :2] = names[edges[:, :2].to(torch.int64)]
        rows[:, 2] = edges[:, 2]
        yield rows
