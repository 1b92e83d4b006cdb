"""A rank's share of an undirected graph with weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.ops import MergedLists, WeightedGraph
from pyg_batchgnn.partition.move import Grouping, Remote, group_by_range, own_rounds, send
from pyg_batchgnn.partition.reading import ReadingSlice, along_edges
from pyg_batchgnn.partition.release import release_memory


@dataclass(frozen=True, eq=False)
class Ghosts:
    """Rows of other ranks that this rank has copies of, such as neighbours of own nodes."""

    ids: Tensor  # [ghosts], ascending
    owned: list[int]  # how many of them each rank owns
    needed: Tensor  # [m] int32, own rows that other ranks have as ghosts, by rank
    counts: list[int]  # how many of these each rank has

    @classmethod
    def of(cls, comm: Communicator, ids: Tensor, bounds: Tensor, told: Tensor) -> tuple[Ghosts, Tensor]:
        """Tells the owners of the ghosts ``ids`` who needs them, and every rank the numbers
        ``told`` [x] int64, in one exchange. Collective. Returns the ghosts, and what each rank
        told, [ranks, x]. ``bounds``: [ranks + 1] int64, where each rank's ids begin."""
        owned, own = group_by_range(ids, bounds), told.view(ids.dtype)
        both = _joined(*owned.sorted(ids), [own] * comm.size)
        came = comm.exchange(*both, MessageKind.PARTITION).split()
        del both  # large graphs have many ghosts
        counts = [len(rows) - len(own) for rows in came]
        asked = torch.cat([rows[:size] for rows, size in zip(came, counts, strict=True)])
        needed = (asked - bounds[comm.rank]).to(torch.int32)
        every = torch.cat([rows[size:] for rows, size in zip(came, counts, strict=True)])
        return cls(ids, owned.counts, needed, counts), every.view(torch.int64).view(comm.size, len(told))

    def pull(self, comm: Communicator, own: Tensor) -> Tensor:
        """Returns [ghosts, ...], the values of the ghosts. Collective. ``own``: by own row."""
        # Indexing would copy the numbers of the rows to int64.
        wanted = own.index_select(0, self.needed)
        return comm.exchange(wanted, self.counts, MessageKind.PARTITION).rows

    def refresh_and_tell(self, comm: Communicator, values: Tensor, told: Sequence[Tensor]) -> list[Tensor]:
        """Overwrites the ghosts' values by their owners', and sends other numbers along.
        Collective. ``values``: [n + ghosts], own nodes first. ``told``: numbers for each rank, of
        the same dtype. Returns what each rank told this one."""
        own = len(values) - self.ids.numel()
        wanted = values[:own].index_select(0, self.needed)
        sent, counts = _joined(wanted, self.counts, told)
        del wanted  # large graphs have many ghosts
        came = comm.exchange(sent, counts, MessageKind.PARTITION).split()
        torch.cat([rows[:size] for rows, size in zip(came, self.owned, strict=True)], out=values[own:])
        return [rows[size:] for rows, size in zip(came, self.owned, strict=True)]


def _joined(rows: Tensor, counts: list[int], told: Sequence[Tensor]) -> tuple[Tensor, list[int]]:
    """Returns what an exchange sends if each rank gets its rows, then the numbers ``told``."""
    sent = torch.cat([one for both in zip(rows.split(counts), told, strict=True) for one in both])
    return sent, [count + len(one) for count, one in zip(counts, told, strict=True)]


@dataclass(frozen=True, eq=False)
class RankGraph:
    """A rank's share of an undirected graph with weights. Each rank has a range of the nodes."""

    comm: Communicator  # of all ranks
    bounds: Tensor  # [ranks + 1] int64, where each rank's nodes begin
    lists: WeightedGraph  # the neighbours of the rank's nodes
    ghosts: Ghosts  # neighbours on other ranks
    entries: list[int]  # by rank: entries in its lists
    id_dtype: torch.dtype

    @classmethod
    def of(cls, comm: Communicator, bounds: Tensor, merged: MergedLists, node_weight: Tensor) -> RankGraph:
        """Makes a graph of lists with ids of the whole graph. Collective."""
        own = range(*bounds[comm.rank : comm.rank + 2].tolist())
        ids, local = ops.number_ghosts(merged.ids, own, int(bounds[-1]))
        entries = merged.ids.numel()
        told = torch.tensor([merged.uniform if entries else -1, entries])
        ghosts, found = Ghosts.of(comm, ids, bounds, told)
        uniform, every = found.t().tolist()
        lists = WeightedGraph(merged.indptr, local, node_weight, _edge_weight(merged, uniform), ids.numel())
        return cls(comm, bounds, lists, ghosts, every, merged.ids.dtype)

    @property
    def first(self) -> int:
        return int(self.bounds[self.comm.rank])

    @property
    def total(self) -> int:
        return int(self.bounds[-1])

    @property
    def total_entries(self) -> int:
        """The entries in the lists of all ranks."""
        return sum(self.entries)

    def group(self, node: Tensor) -> Grouping:
        return group_by_range(node, self.bounds)

    def own_ids(self) -> Tensor:
        return torch.arange(self.first, self.first + self.lists.num_nodes, dtype=self.id_dtype)

    def ids(self) -> Tensor:
        return torch.cat([self.own_ids(), self.ghosts.ids])

    def with_ghosts(self, own: Tensor) -> Tensor:
        """Returns [n + ghosts, ...], values of own nodes, then of ghosts. Collective."""
        values = torch.empty(self.lists.num_all, *own.shape[1:], dtype=own.dtype)
        values[: len(own)] = own
        values[len(own) :] = self.ghosts.pull(self.comm, own)
        return values

    def refresh_and_tell(self, values: Tensor, told: Sequence[Tensor]) -> list[Tensor]:
        return self.ghosts.refresh_and_tell(self.comm, values, told)

    def remote(self, table: Tensor) -> Remote:
        return Remote(
            self.group,
            lambda node: table.index_select(0, node.sub_(self.first)),
            tuple(table.shape[1:]),
            table.dtype,
        )


def _edge_weight(merged: MergedLists, uniform: Sequence[int]) -> Tensor | None:
    """Returns the weights of the edges; None if all weigh the same on all ranks. ``uniform``: by
    rank, the weight of all its edges; 0: they differ, -1: none."""
    found = set(uniform) - {-1}
    if 0 not in found and len(found) <= 1:
        return None
    if merged.uniform:
        return torch.full((merged.ids.numel(),), merged.uniform, dtype=torch.int32)
    return merged.weight


def gather_graph(graph: RankGraph, on: range) -> WeightedGraph:
    """Returns the whole graph on the ranks ``on``, an empty one on the others. Collective."""
    lists, comm = graph.lists, graph.comm
    if comm.size == 1:
        return lists
    ids = graph.ids().to(torch.int32)[lists.indices.to(torch.int64)]
    weights = [] if lists.edge_weight is None else [lists.edge_weight]
    # All are int32: the degrees, the ids of the neighbours, and the weights.
    own = torch.cat([lists.indptr.diff().to(torch.int32), ids, lists.node_weight.flatten(), *weights])
    del ids
    sent = [own if rank in on else own[:0] for rank in range(comm.size)]
    came = comm.exchange(sent, None, MessageKind.PARTITION).split()
    del own, sent
    loads, each = lists.node_weight.size(1), len(weights)
    sizes = [
        [nodes, edges, nodes * loads, *[edges] * each] if comm.rank in on else [0] * (3 + each)
        for nodes, edges in zip(graph.bounds.diff().tolist(), graph.entries, strict=True)
    ]
    fields = zip(*(rows.split(of) for rows, of in zip(came, sizes, strict=True)), strict=True)
    degree, ids, node_weight, *weights = (torch.cat(of_ranks) for of_ranks in fields)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    return WeightedGraph(indptr, ids, node_weight.view(-1, loads), weights[0] if weights else None)


def symmetric_graph(comm: Communicator, part: ReadingSlice, node_weight: Tensor) -> RankGraph:
    """Returns a data set's undirected graph. Collective. Edges of any direction and relation make
    two nodes neighbours. The weight counts them, so that the weight of a cut is the number of
    stored edges cut. ``node_weight``: [n, k] int32."""
    bounds, own = part.book.part_offsets, part.book.nodes_of(part.rank)
    indptr = torch.zeros(len(own) + 1, dtype=torch.int64)
    for source, target in _pieces(comm, part):
        found = send(comm, source, group_by_range(source, bounds)).rows
        ops.count_values(found, own.start, indptr[1:])
        ops.count_values(target, own.start, indptr[1:])
    torch.cumsum(indptr, 0, out=indptr)
    ids = _neighbours(comm, part, indptr)
    release_memory()
    merged = ops.merge_neighbours(indptr, ids, first=own.start)
    del indptr, ids
    release_memory()
    return RankGraph.of(comm, bounds, merged, node_weight)


def _neighbours(comm: Communicator, part: ReadingSlice, indptr: Tensor) -> Tensor:
    """Returns [e], the other ends of all edges of this rank's nodes, by node. Collective."""
    bounds, own = part.book.part_offsets, part.book.nodes_of(part.rank)
    ids = torch.empty(int(indptr[-1]), dtype=ops.id_dtype(part.book.num_nodes))
    ops.advise_huge_pages(ids)  # written to at random
    cursor = indptr[:-1].clone()
    for source, target in _pieces(comm, part):
        away = torch.stack([source, target], dim=1)
        found = send(comm, away, group_by_range(source, bounds)).rows
        ops.append_neighbours(found, own.start, cursor, ids)
        ops.append_neighbours(away.flip(1).contiguous(), own.start, cursor, ids)
    return ids


def _pieces(comm: Communicator, part: ReadingSlice) -> Iterator[tuple[Tensor, Tensor]]:
    edges, own = part.in_edges, part.book.nodes_of(part.rank)
    dtype = edges.indices.dtype
    target = part.by_list(torch.arange(own.start, own.stop, dtype=dtype))
    for piece in own_rounds(comm, edges.num_edges, 2 * dtype.itemsize, part.total_edges):
        yield edges.indices[piece.start : piece.stop], along_edges(edges, target, piece)
