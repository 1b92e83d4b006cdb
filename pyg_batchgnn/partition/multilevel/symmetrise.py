"""The undirected graph of a data set: all relations together, parallel edges merged into
weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.partition.bounded import own_rounds
from pyg_batchgnn.partition.move import group_by_range, send
from pyg_batchgnn.partition.multilevel.rank_graph import RankGraph
from pyg_batchgnn.partition.reading import ReadingSlice, along_edges
from pyg_batchgnn.partition.release import release_memory


class _Ends(NamedTuple):
    """The ends of edges, by joint ids."""

    source: Tensor
    target: Tensor


def symmetric_graph(comm: Communicator, part: ReadingSlice, node_weight: Tensor) -> RankGraph:
    """Returns the undirected graph. Collective.

    Two nodes are neighbours where an edge joins them in any direction and relation. The weight is
    the number of these edges, so that the weight of a cut is the number of stored edges cut.

    Args:
        comm: the communicator of all ranks.
        part: the nodes that this rank has read, and their in-edges.
        node_weight: [n, k] int32, the weights of these nodes.
    """
    bounds, own = part.book.part_offsets, part.book.nodes_of(part.rank)
    indptr = torch.zeros(len(own) + 1, dtype=torch.int64)
    for ends in _pieces(comm, part):
        found = send(comm, ends.source, group_by_range(ends.source, bounds)).rows
        ops.count_values(found, own.start, indptr[1:])
        ops.count_values(ends.target, own.start, indptr[1:])
    torch.cumsum(indptr, 0, out=indptr)
    ids = _neighbours(comm, part, indptr)
    release_memory()
    merged = ops.merge_neighbours(indptr, ids, first=own.start)
    del indptr, ids
    release_memory()
    return RankGraph.of(comm, bounds, merged, node_weight)


def _neighbours(comm: Communicator, part: ReadingSlice, indptr: Tensor) -> Tensor:
    """Returns the other ends of all edges of this rank's nodes, [e], by node. Collective.

    Args:
        comm: the communicator of all ranks.
        part: the nodes that this rank has read.
        indptr: [n + 1], where each node's edges begin.
    """
    bounds, own = part.book.part_offsets, part.book.nodes_of(part.rank)
    ids = torch.empty(int(indptr[-1]), dtype=ops.id_dtype(part.book.num_nodes))
    ops.advise_huge_pages(ids)  # written to at random
    cursor = indptr[:-1].clone()
    for ends in _pieces(comm, part):
        away = torch.stack([ends.source, ends.target], dim=1)
        found = send(comm, away, group_by_range(ends.source, bounds)).rows
        ops.append_neighbours(found, own.start, cursor, ids)
        ops.append_neighbours(away.flip(1).contiguous(), own.start, cursor, ids)
    return ids


def _pieces(comm: Communicator, part: ReadingSlice) -> Iterator[_Ends]:
    """Yields the ends of this rank's in-edges in rounds, as many on every rank. Collective."""
    edges, own = part.in_edges, part.book.nodes_of(part.rank)
    dtype = edges.indices.dtype
    target = part.by_list(torch.arange(own.start, own.stop, dtype=dtype))
    for piece in own_rounds(comm, edges.num_edges, 2 * dtype.itemsize, part.total_edges):
        yield _Ends(edges.indices[piece.start : piece.stop], along_edges(edges, target, piece))
