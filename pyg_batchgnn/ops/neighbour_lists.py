"""Operators that make the adjacency lists of undirected graphs, for the multilevel partitioner."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from pyg_batchgnn.ops.checks import check_indptr, check_range, check_vector
from pyg_batchgnn.ops.library import kernels


class MergedLists(NamedTuple):
    """The adjacency lists in which each neighbour occurs once.

    Attributes:
        indptr: [n + 1] int64.
        ids: [e], ascending in each list.
        weight: [e] int32; empty where all edges weigh ``uniform``.
        uniform: the weight of every edge, 0 where they differ.
    """

    indptr: Tensor
    ids: Tensor
    weight: Tensor
    uniform: int


def append_neighbours(
    rows: Tensor, first: int, cursor: Tensor, ids: Tensor, weight: Tensor | None = None
) -> None:
    """Appends edges to the adjacency lists of the nodes from ``first`` on.

    Args:
        rows: [n, 2] or, with weights, [n, 3] int32 or int64: node, neighbour and weight.
        first: the node of the first list.
        cursor: [nodes] int64, the position of the next edge of each list; advanced.
        ids: [e] int32 or int64 neighbours, written to.
        weight: [e] int32, written to.

    Raises:
        IndexError: an edge does not belong to these lists, or there is no place for it.
    """
    columns = 2 if weight is None else 3
    if rows.dim() != 2 or rows.size(1) != columns or not rows.is_contiguous():
        raise ValueError(f"rows must be contiguous of shape [n, {columns}], got {[*rows.shape]}")
    check_vector("rows", rows.view(-1))
    check_vector("cursor", cursor, (torch.int64,))
    check_range("cursor", cursor, ids.numel() + 1, "places")
    check_vector("ids", ids)
    written = (cursor, ids) if weight is None else (cursor, ids, weight)
    if weight is not None:
        check_vector("weight", weight, (torch.int32,))
        if weight.numel() != ids.numel():
            raise ValueError(f"{weight.numel()} weights for {ids.numel()} neighbours")
    increment_version(written)
    if not kernels.append_neighbours_(rows, first, cursor, ids, weight):
        raise IndexError(f"an edge has no place in the {cursor.numel()} lists from node {first} on")


def merge_neighbours(
    indptr: Tensor, ids: Tensor, weight: Tensor | None = None, first: int = 0
) -> MergedLists:
    """Merges the edges of each list to the same neighbour, and drops those to the node itself.

    Args:
        indptr: [n + 1] int64.
        ids: [e] int32 or int64 neighbours; sorted in place.
        weight: [e] int32; 1 each if it is None. Sums end at 2**31 - 1.
        first: the node of the first list.
    """
    check_vector("ids", ids)
    check_indptr("indptr", indptr, ids.numel())
    written = [ids]
    if weight is not None:
        check_vector("weight", weight, (torch.int32,))
        if weight.numel() != ids.numel():
            raise ValueError(f"{weight.numel()} weights for {ids.numel()} neighbours")
        written.append(weight)
    increment_version(written)
    return MergedLists(*kernels.merge_neighbours(indptr, ids, weight, first))


def number_ghosts(ids: Tensor, own: range, total: int) -> tuple[Tensor, Tensor]:
    """Numbers nodes: own nodes first, then the others, the ghosts, in ascending order.

    Args:
        ids: [e] int32 or int64 ids in [0, total).
        own: the ids of the own nodes.
        total: the number of nodes of all processes.

    Returns:
        The ids of the ghosts, ascending; and [e] int32, the number of each entry.
    """
    check_vector("ids", ids)
    check_range("ids", ids, max(total, 1))
    local = torch.empty(ids.numel(), dtype=torch.int32)
    return kernels.number_ghosts_(ids, own.start, len(own), total, local), local
