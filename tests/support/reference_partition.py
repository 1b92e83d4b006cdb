"""The obvious partitioner: the whole graph in memory, any owners. What the real one must equal."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pyg_batchgnn.data import EDGES, NODES
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition import Part, PartitionBook, directory_slice


def book_of(owner: Tensor, parts: int) -> PartitionBook:
    sizes = torch.bincount(owner, minlength=parts)
    return PartitionBook([0, *sizes.cumsum(0).tolist()])


def internal_ids(owner: Tensor) -> Tensor:
    """[N] the internal id of every original id: by part, then by original id."""
    ids = torch.empty_like(owner)
    ids[torch.argsort(owner, stable=True)] = torch.arange(owner.numel())
    return ids


def split_graph(
    edge_index: Tensor,
    owner: Tensor,
    parts: int,
    number: int,
    tables: Mapping[str, Tensor] | None = None,
    edge_tables: Mapping[str, Tensor] | None = None,
    splits: Mapping[str, Tensor] | None = None,
) -> Part:
    """Returns part ``number`` of a graph.

    Args:
        edge_index: [2, E] sources above destinations; the position is the edge's id.
        owner: [N] the part of every node.
        parts: how many there are.
        number: which one to make.
        tables, edge_tables: attributes of all nodes, of all edges.
        splits: original ids by name.
    """
    book, ids = book_of(owner, parts), internal_ids(owner)
    node = (owner == number).nonzero().view(-1)
    edge = (owner[edge_index[1]] == number).nonzero().view(-1)
    edge = edge[torch.argsort(edge_index[1, edge], stable=True)]
    degrees = torch.bincount(edge_index[1], minlength=owner.numel())[node]
    own = directory_slice(owner.numel(), parts, number)
    kept = {name: index[owner[index] == number].sort().values for name, index in (splits or {}).items()}
    return Part(
        book=book,
        number=number,
        node=node,
        in_edges=InEdges(
            torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)]),
            ids[edge_index[0, edge]].to(book.id_dtype),
            edge,
        ),
        num_edges=edge_index.shape[1],
        directory=ids[own.start : own.stop].to(book.id_dtype),
        attributes={
            NODES: {name: table[node] for name, table in (tables or {}).items()},
            EDGES: {name: table[edge] for name, table in (edge_tables or {}).items()},
        },
        splits={name: torch.searchsorted(node, index) for name, index in kept.items()},
    )
