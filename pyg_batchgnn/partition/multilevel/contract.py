"""The graph of clusters, spread over ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.ops import MergedLists, WeightedGraph, fold_key
from pyg_batchgnn.partition.move import add_rows, group_by_range, pull, rows_per_round, send
from pyg_batchgnn.partition.multilevel.rank_graph import Ghosts, RankGraph
from pyg_batchgnn.partition.release import release_memory


@dataclass(frozen=True, eq=False)
class CoarseLevel:
    """A coarse graph, and the way back to the finer one."""

    graph: RankGraph  # the coarse graph
    nodes: Ghosts  # the distinct coarse nodes of this rank's finer nodes
    row: Tensor  # [n] int32, for each finer node the row in ``nodes``

    def project(self, values: Tensor) -> Tensor:
        """Returns [n], the coarse nodes' values for this rank's finer nodes. Collective."""
        return self.nodes.pull(self.graph.comm, values)[self.row.to(torch.int64)]


def contract(graph: RankGraph, clusters: Clusters) -> CoarseLevel:
    """Returns the graph whose nodes are the clusters. Collective. On each rank it has at most half
    as many entries as the finer graph, or a million: the lightest edges are dropped."""
    comm, nodes = graph.comm, graph.lists.num_nodes
    names, row = ops.number_ghosts(clusters.label[:nodes].contiguous(), range(0), graph.total)
    found, _ = Ghosts.of(comm, names, graph.bounds, torch.empty(0, dtype=torch.int64))
    needed, used = found.needed.to(torch.int64), torch.zeros(nodes, dtype=torch.bool)
    used[needed] = True
    counts = comm.all_gather(used.sum().view(1), MessageKind.PARTITION).rows
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    number = used.cumsum(0) - 1
    coarse = found.pull(comm, (number + bounds[comm.rank]).to(graph.id_dtype))
    coarse_nodes = replace(found, ids=coarse, needed=number[needed].to(torch.int32))
    del needed, number
    lists = gather_lists(graph, graph.with_ghosts(coarse[row.to(torch.int64)]), bounds)
    return CoarseLevel(RankGraph.of(comm, bounds, lists, clusters.weight[used]), coarse_nodes, row)


PASSES = 3  # how often every node is visited
#: A round takes the nodes of 1 / PIECES of a rank's edges, or of EDGES edges. Each neighbour may be
#: in a cluster of its own, so a round may take a hundred bytes per edge.
PIECES, EDGES = 16, 1 << 20


@dataclass(frozen=True, eq=False)
class Clusters:
    label: Tensor  # [n + ghosts], the cluster of each node: a node's id
    weight: Tensor  # [n, k] int32, the weights of the clusters with own nodes' ids


def find_clusters(graph: RankGraph, limit: Tensor, key: int) -> Clusters:
    """Returns clusters within limits, by size-constrained label propagation (Meyerhenke, Sanders
    and Schulz 2017). Collective. ``limit``: [k] int64, the largest weights of a cluster of several
    nodes.

    A cluster has the id of a node, whose rank knows the cluster's weights. In each round every rank
    moves some of its nodes. It may add to a cluster an equal share of the room that is left, so
    that no cluster outgrows its limit, whatever other ranks do.
    """
    found = Clusters(graph.ids(), graph.lists.node_weight.clone())
    pieces = _pieces(graph)
    for number in range(PASSES):
        for nodes in pieces:
            _move(graph, found, limit, nodes, fold_key(key, number), together=number == PASSES - 1)
    return found


def _pieces(graph: RankGraph) -> list[range]:
    """Cuts own nodes into ranges of similar edge counts, the same number on every rank."""
    indptr, edges = graph.lists.indptr, graph.lists.num_edges
    count = max(-(-every // max(EDGES, every // PIECES)) for every in graph.entries)
    marks = edges * torch.arange(count + 1) // max(count, 1)
    at = torch.searchsorted(indptr, marks).tolist()
    at[0], at[-1] = 0, graph.lists.num_nodes
    return [range(*ends) for ends in pairwise(at)] if count else [range(graph.lists.num_nodes)]


def _move(
    graph: RankGraph, found: Clusters, limit: Tensor, nodes: range, key: int, *, together: bool
) -> None:
    lists, others = _lists_of(graph, nodes)
    label = torch.cat([found.label[nodes.start : nodes.stop], found.label.index_select(0, others)])
    names, local = ops.number_ghosts(label, range(0), graph.total)
    before = local[: len(nodes)].clone()
    # This rank's share of the room of each cluster, [x, k]. In place: there are many clusters.
    room = pull(graph.comm, graph.remote(found.weight), names, most=graph.total).to(torch.int64)
    room.neg_().add_(limit).div_(graph.comm.size, rounding_mode="floor")
    first = graph.first + nodes.start
    ops.cluster_nodes(lists, local, room, key=ops.to_signed(key), first=first, together=together)
    del room
    now = local[: len(nodes)]
    found.label[nodes.start : nodes.stop] = names[now]
    changed, grown = _growth(before, now, lists.node_weight, names.numel())
    names = names[changed]
    rows, counts = graph.group(names).sorted(torch.cat([names[:, None], grown.to(names.dtype)], dim=1))
    told = graph.refresh_and_tell(found.label, [one.flatten() for one in rows.split(counts)])
    changes = torch.cat(told).view(-1, rows.size(1))
    at = changes[:, 0].to(torch.int64) - graph.first
    add_rows(found.weight, at, changes[:, 1:].to(torch.int32))


def _growth(before: Tensor, now: Tensor, weight: Tensor, clusters: int) -> tuple[Tensor, Tensor]:
    """Returns the clusters that nodes left or joined, and how much each grew, [x, k] int32.
    ``before``, ``now``: [n] int32, the cluster of each node, in [0, clusters)."""
    moved = (before != now).nonzero().flatten()
    moving = weight[moved]
    changed, row = ops.number_ghosts(torch.cat([before[moved], now[moved]]), range(0), clusters)
    grown = torch.zeros(changed.numel(), weight.size(1), dtype=torch.int32)
    left, joined = row.view(2, len(moved))
    add_rows(grown, joined, moving)
    add_rows(grown, left, moving.neg_())
    return changed, grown


def _lists_of(graph: RankGraph, nodes: range) -> tuple[WeightedGraph, Tensor]:
    """Returns the lists of some of this rank's nodes as a graph, and its ghosts: all other nodes in
    these lists, by their index in ``graph``."""
    lists = graph.lists
    if len(nodes) == lists.num_nodes:
        return lists, torch.arange(len(nodes), lists.num_all, dtype=torch.int32)
    begin, end = lists.indptr[[nodes.start, nodes.stop]].tolist()
    others, local = ops.number_ghosts(lists.indices[begin:end], nodes, lists.num_all)
    weight = None if lists.edge_weight is None else lists.edge_weight[begin:end]
    indptr = lists.indptr[nodes.start : nodes.stop + 1] - begin
    own = lists.node_weight[nodes.start : nodes.stop]
    return WeightedGraph(indptr, local, own, weight, others.numel()), others


FEWEST = 1 << 20  # A rank keeps at most half as many entries as in the finer graph, or this many.
_COPIES = 4  # The copies of a chunk at one time: sent, received, merged and kept.
_MUCH = 1 << 20  # After a chunk of more bytes, free memory goes back to the system.


@dataclass(frozen=True, eq=False)
class _Chunks:
    """The coarse nodes in chunks, each with some nodes of every rank."""

    count: int  # how many chunks
    begins: Tensor  # [ranks * count + 1], the first node of each chunk, by rank and chunk

    def of(self, node: Tensor) -> Tensor:
        at = torch.searchsorted(self.begins.to(node.dtype), node, right=True, out_int32=True) - 1
        return at % self.count

    def own(self, rank: int) -> list[range]:
        begins = self.begins[rank * self.count : (rank + 1) * self.count + 1].tolist()
        return [range(*ends) for ends in pairwise(begins)]


def gather_lists(graph: RankGraph, coarse: Tensor, bounds: Tensor) -> ops.MergedLists:
    """Returns the lists of this rank's coarse nodes. Collective. ``bounds``: [ranks + 1] int64,
    where each rank's coarse nodes begin."""
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
    """Cuts every rank's coarse nodes where equally many finer entries lie between; into one chunk
    if all edges fit one round. Collective."""
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
    indptr = torch.zeros(len(own) + 1, dtype=torch.int64)
    ops.count_values(rows[:, 0].contiguous(), own.start, indptr[1:])
    torch.cumsum(indptr, 0, out=indptr)
    ids, weight = torch.empty(len(rows), dtype=rows.dtype), torch.empty(len(rows), dtype=torch.int32)
    ops.append_neighbours(rows, own.start, indptr[:-1].clone(), ids, weight)
    return ops.merge_neighbours(indptr, ids, weight, own.start)


#: Edges have classes: by weight up to _HEAVY, then by _SHADES shades, a hash of the two ends, so
#: that both ends of an edge find the same class.
_HEAVY, _SHADES = 256, 256
_EDGES = 1 << 16  # edges whose classes are found at a time


class HeaviestEdges:
    """Collects the lists of consecutive nodes, and keeps the heaviest edges, so that coarse graphs
    fit where finer ones did; DistDGL reduces them so, too (Zheng et al. 2020). If there are more
    edges than ``limit``, the lightest are dropped, from the lists of both ends."""

    def __init__(self, first: int, limit: int | None) -> None:
        self.limit, self.least = limit, 0
        self._next = first
        self._firsts, self._pieces = list[int](), list[MergedLists]()
        self._counts = torch.zeros(_HEAVY * _SHADES, dtype=torch.int64)

    def add(self, lists: MergedLists) -> None:
        if lists.uniform:
            lists = lists._replace(weight=torch.full_like(lists.ids, lists.uniform, dtype=torch.int32))
        first, self._next = self._next, self._next + lists.indptr.numel() - 1
        if self.limit is None:
            self._pieces.append(lists)
            return
        if self.least > 0:
            lists = _from_class(lists, first, self.least)
        for edges in _pieces_of(lists):
            self._counts += torch.bincount(_classes(lists, first, edges), minlength=self._counts.numel())
        self._firsts.append(first)
        self._pieces.append(lists)
        if sum(piece.ids.numel() for piece in self._pieces) > self.limit + self.limit // 8:
            self._drop(self._needed(self.limit))

    def finish(self, comm: Communicator) -> MergedLists:
        """Returns all edges of the weight classes that every rank could keep. Collective."""
        if self.limit is not None:
            self._drop(comm.max(max(self.least, self._needed(self.limit))))
        pieces, self._pieces = self._pieces, []
        degrees = [piece.indptr.diff() for piece in pieces]
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), *degrees]).cumsum(0)
        ids, weights = [piece.ids for piece in pieces], [piece.weight for piece in pieces]
        del pieces
        joined = torch.cat(ids)
        del ids
        release_memory()
        weight = torch.cat(weights)
        del weights
        release_memory()
        uniform = int(weight[0]) if len(weight) and bool((weight == weight[0]).all()) else 0
        return MergedLists(indptr, joined, weight, uniform)

    def _needed(self, limit: int) -> int:
        """Returns the lowest class from which on all edges are within the limit."""
        above = self._counts.flip(0).cumsum(0).flip(0)
        return int((above > limit).sum())

    def _drop(self, least: int) -> None:
        if least > self.least:
            self.least = least
            self._counts[:least] = 0
            for at, piece in enumerate(self._pieces):
                self._pieces[at] = _from_class(piece, self._firsts[at], least)
                if at % 8 == 0:  # free memory goes back to the system
                    release_memory()  # or the old pieces would stay beside the new ones


def _pieces_of(lists: MergedLists) -> list[range]:
    edges = lists.ids.numel()
    return [range(begin, min(begin + _EDGES, edges)) for begin in range(0, edges, _EDGES)]


def _classes(lists: MergedLists, first: int, edges: range) -> Tensor:
    """Returns [x] int64, the class of each of some edges: the heavier, the higher."""
    at = torch.arange(edges.start, edges.stop)
    node = torch.searchsorted(lists.indptr, at, right=True) - 1 + first
    other = lists.ids[edges.start : edges.stop].to(torch.int64)
    shade = fold_key(torch.minimum(node, other), torch.maximum(node, other)) & (_SHADES - 1)
    return (lists.weight[edges.start : edges.stop].to(torch.int64).clamp(max=_HEAVY) - 1) * _SHADES + shade


def _from_class(lists: MergedLists, first: int, least: int) -> MergedLists:
    if not lists.ids.numel():
        return lists
    kept = torch.cat([_classes(lists, first, edges) >= least for edges in _pieces_of(lists)])
    before = torch.cat([torch.zeros(1, dtype=torch.int64), kept.cumsum(0)])
    return MergedLists(before[lists.indptr], lists.ids[kept], lists.weight[kept], 0)
