"""The adjacency lists of the graph of clusters, gathered from all ranks in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.partition.bounded import rows_per_round
from pyg_batchgnn.partition.move import group_by_range, send
from pyg_batchgnn.partition.multilevel.heaviest import HeaviestEdges
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph
from pyg_batchgnn.partition.release import release_memory

#: A rank keeps at most half as many entries as it has in the finer graph, or this many.
FEWEST = 1 << 20
#: The copies of a chunk that there are at a time: sent, received, merged and kept.
_COPIES = 4
#: After a chunk of more bytes than this, free memory goes back to the system.
_MUCH = 1 << 20


@dataclass(frozen=True, eq=False)
class _Chunks:
    """The coarse nodes in chunks, each of which has some of every rank's nodes.

    Attributes:
        count: the number of chunks.
        begins: [ranks * count + 1], the first node of every rank's chunks, by rank and chunk.
    """

    count: int
    begins: Tensor

    def of(self, node: Tensor) -> Tensor:
        """Returns the chunks of nodes, [n] int32."""
        at = torch.searchsorted(self.begins.to(node.dtype), node, right=True, out_int32=True) - 1
        return at % self.count

    def own(self, rank: int) -> list[range]:
        """Returns the nodes of a rank's chunks."""
        begins = self.begins[rank * self.count : (rank + 1) * self.count + 1].tolist()
        return [range(*ends) for ends in pairwise(begins)]


def gather_lists(graph: RankGraph, coarse: Tensor, bounds: Tensor) -> ops.MergedLists:
    """Returns the lists of this rank's coarse nodes. Collective.

    Args:
        graph: the finer graph.
        coarse: [n + ghosts], the coarse nodes of its nodes.
        bounds: [ranks + 1] int64, where each rank's range of coarse nodes begins.
    """
    comm = graph.comm
    chunks = _cut_into_chunks(graph, coarse, bounds)
    most = max(FEWEST, graph.lists.num_edges // 2)
    # Where no rank can exceed its limit, none counts its edges.
    kept = HeaviestEdges(int(bounds[comm.rank]), most if graph.total_entries > FEWEST else None)
    known = _ClusterEdges(graph, coarse, chunks, int(bounds[-1]))
    for number, own in enumerate(chunks.own(comm.rank)):
        rows = known.rows(number)
        found = send(comm, rows, group_by_range(rows[:, 0].contiguous(), bounds)).rows
        kept.add(_merge(found, own))
        if found.nbytes > _MUCH:
            del rows, found
            release_memory()
    return kept.finish(comm)


def _cut_into_chunks(graph: RankGraph, coarse: Tensor, bounds: Tensor) -> _Chunks:
    """Cuts every rank's coarse nodes where the same number of finer entries lies between. There is
    one chunk where all edges of all ranks fit one round. Collective."""
    comm, own = graph.comm, coarse[: graph.lists.num_nodes]
    edge_bytes = 3 * coarse.dtype.itemsize
    if graph.total_entries <= rows_per_round(edge_bytes, 1):
        return _Chunks(1, bounds)
    names, row = ops.number_ghosts(own.contiguous(), range(0), int(bounds[-1]))
    degree = torch.zeros(names.numel(), dtype=torch.int64)
    degree.index_add_(0, row.to(torch.int64), graph.lists.indptr.diff())
    told = torch.stack([names, degree.to(names.dtype)], dim=1)
    found = send(comm, told, group_by_range(names, bounds)).rows.to(torch.int64)
    first, last = bounds[comm.rank : comm.rank + 2].tolist()
    entries = torch.zeros(last - first + 1, dtype=torch.int64)
    entries[1:].index_add_(0, found[:, 0] - first, found[:, 1])
    ends = entries.cumsum(0)
    most = comm.size * rows_per_round(_COPIES * edge_bytes, comm.size)
    count = comm.max(max(1, -(-int(ends[-1]) // most)))
    marks = int(ends[-1]) * torch.arange(count) // count
    begins = torch.searchsorted(ends, marks).clamp(max=last - first) + first
    begins[0] = first
    every = comm.all_gather(begins, MessageKind.PARTITION).rows
    return _Chunks(count, torch.cat([every, bounds[-1:]]))


class _ClusterEdges:
    """The edges between clusters that this rank knows, by chunk."""

    def __init__(self, graph: RankGraph, coarse: Tensor, chunks: _Chunks, total: int) -> None:
        names, local = ops.number_ghosts(coarse, range(0), total)
        by_chunk, counts = ops.group_by_owner(chunks.of(names), chunks.count)
        self._ends = [0, *counts.cumsum(0).tolist()]
        if by_chunk is not None:
            place = torch.empty_like(by_chunk)
            place[by_chunk.to(torch.int64)] = torch.arange(len(by_chunk), dtype=by_chunk.dtype)
            names, local = names[by_chunk], place[local]
        self._graph, self._names, self._label = graph.lists, names, local
        self._member, sizes = ops.group_by_owner(local[: graph.lists.num_nodes].contiguous(), names.numel())
        self._start = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])

    def rows(self, chunk: int) -> Tensor:
        """Returns the edges of a chunk, [x, 3]: coarse node, other coarse node, weight."""
        clusters = range(*self._ends[chunk : chunk + 2])
        edges = ops.contract_clusters(self._graph, self._label, self._start, self._member, clusters)
        rows = torch.empty(edges.shape, dtype=self._names.dtype)
        rows[:, :2] = self._names[edges[:, :2]]
        rows[:, 2] = edges[:, 2]
        return rows


def _merge(rows: Tensor, own: range) -> ops.MergedLists:
    """Returns the lists of the nodes ``own`` of which ``rows`` has all edges."""
    indptr = torch.zeros(len(own) + 1, dtype=torch.int64)
    ops.count_values(rows[:, 0].contiguous(), own.start, indptr[1:])
    torch.cumsum(indptr, 0, out=indptr)
    ids, weight = torch.empty(len(rows), dtype=rows.dtype), torch.empty(len(rows), dtype=torch.int32)
    ops.append_neighbours(rows, own.start, indptr[:-1].clone(), ids, weight)
    return ops.merge_neighbours(indptr, ids, weight, own.start)
