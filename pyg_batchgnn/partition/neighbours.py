"""The in-neighbours of the nodes that a rank has read, of all relations together."""

from __future__ import annotations

import torch

from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.reading import ReadingSlice, along_edges

#: The edges that are copied at a time.
_EDGES = 1 << 17


def neighbours_of(part: ReadingSlice, node_type: int) -> InEdges:
    """Returns the in-neighbours of this rank's nodes of a type, under all relations into it.

    There is a row for every node that this rank has read; those of other types are empty. The
    sources are joint ids, relation by relation. The only relation of a graph of one type is
    returned itself.
    """
    into = [part.relations[number] for number in part.schema.relations_into[node_type]]
    if part.schema.num_types == 1 and len(into) == 1:
        return into[0]
    own, ends = part.rows_of(node_type), torch.zeros(len(part.nodes_of(node_type)) + 1, dtype=torch.int64)
    for edges in into:
        ends += edges.indptr
    sources, place = torch.empty(int(ends[-1]), dtype=part.in_edges.indices.dtype), ends[:-1].clone()
    for number in part.schema.relations_into[node_type]:
        edges = part.relations[number]
        shift = place - edges.indptr[:-1]
        for begin in range(0, edges.num_edges, _EDGES):
            piece = range(begin, min(begin + _EDGES, edges.num_edges))
            at = along_edges(edges, shift, piece) + torch.arange(piece.start, piece.stop)
            sources[at] = edges.indices[piece.start : piece.stop]
        place += edges.degrees
    indptr = torch.full((part.num_nodes + 1,), int(ends[-1]))
    indptr[: own.start] = 0
    indptr[own.start : own.stop + 1] = ends
    return InEdges(indptr, sources)
