"""The in-neighbours of the nodes that a rank has read, of all relations together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.reading import ReadingSlice, along_edges

#: The edges that are copied at a time.
_EDGES = 1 << 17


@dataclass(frozen=True)
class TypedIds:
    """The ids of nodes of any types.

    Attributes:
        node: [n] int64 original ids.
        type: [n] int64, the numbers of their types.
    """

    node: Tensor
    type: Tensor


def reading_ids(part: ReadingSlice, node: Tensor, node_type: int) -> Tensor:
    """Returns ids of nodes of a type in the order of `ReadingSlice.book`: by rank, type and
    original id. In a graph of one type they are the original ids.

    Args:
        part: the nodes that this rank has read.
        node: [n] int32 or int64 original ids.
        node_type: the number of the type.
    """
    if part.schema.num_types == 1:
        return node
    bounds = part.bounds[node_type]
    rank = torch.searchsorted(bounds, node.to(torch.int64), right=True) - 1
    firsts = part.book.offsets[node_type : -1 : part.schema.num_types]
    return node + (firsts - bounds[:-1])[rank].to(node.dtype)


def original_ids(part: ReadingSlice, node: Tensor) -> TypedIds:
    """Returns the original ids and the types of `reading_ids`."""
    if part.schema.num_types == 1:
        return TypedIds(node, torch.zeros(node.numel(), dtype=torch.int64))
    kind, rank = part.book.type_of(node), part.book.owner(node)
    firsts = part.book.offsets[:-1].view(-1, part.schema.num_types)
    begins = torch.stack([bounds[:-1] for bounds in part.bounds], dim=1)
    return TypedIds(node - (firsts - begins)[rank, kind], kind)


def neighbours_of(part: ReadingSlice, node_type: int) -> InEdges:
    """Returns the in-neighbours of this rank's nodes of a type, under all relations into it.

    There is a row for every node that this rank has read; those of other types are empty. The
    sources are `reading_ids`, relation by relation. The only relation of a graph of one type is
    returned itself.
    """
    into = [part.relations[number] for number in part.schema.relations_into[node_type]]
    if part.schema.num_types == 1 and len(into) == 1:
        return into[0]
    own, ends = part.rows_of(node_type), torch.zeros(len(part.nodes_of(node_type)) + 1, dtype=torch.int64)
    for edges in into:
        ends += edges.indptr
    dtype = part.relations[0].indices.dtype if part.relations else torch.int64
    sources, place = torch.empty(int(ends[-1]), dtype=dtype), ends[:-1].clone()
    for number in part.schema.relations_into[node_type]:
        edges, source = part.relations[number], part.schema.source_types[number]
        shift = place - edges.indptr[:-1]
        for begin in range(0, edges.num_edges, _EDGES):
            piece = range(begin, min(begin + _EDGES, edges.num_edges))
            at = along_edges(edges, shift, piece) + torch.arange(piece.start, piece.stop)
            sources[at] = reading_ids(part, edges.indices[piece.start : piece.stop], source)
        place += edges.degrees
    indptr = torch.full((part.num_nodes + 1,), int(ends[-1]))
    indptr[: own.start] = 0
    indptr[own.start : own.stop + 1] = ends
    return InEdges(indptr, sources)
