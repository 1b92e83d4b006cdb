"""Graphs without their self loops, and the scales of degrees that count them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_indptr, check_vector
from pyg_batchgnn.ops.known import known_bound, remember
from pyg_batchgnn.ops.library import kernels


def degree_scale(
    indptr: Tensor, num_nodes: int, *, loops: int, root: bool, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Returns 1 / d for each node, or 1 / sqrt(d) with ``root``; 0 where d is 0.

    d is the number of the node's in-edges plus ``loops``.

    Args:
        indptr: [D + 1] int64; nodes from D on have no in-edges.
        num_nodes: N >= D.
        loops: added to every degree, as self loops would be.
        root: returns the square root of the reciprocal.
        dtype: float32 or float64.

    Returns:
        [N].
    """
    check_indptr("indptr", indptr, int(indptr[-1]) if indptr.numel() else 0)
    if num_nodes < indptr.numel() - 1:
        raise ValueError(f"num_nodes is {num_nodes}, but indptr has {indptr.numel() - 1} targets")
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"scales are float32 or float64, not {dtype}")
    return kernels.degree_scale(indptr, num_nodes, loops, root, dtype)


class LoopFree(NamedTuple):
    """A graph without its self loops.

    Attributes:
        indptr: [D + 1] int64.
        indices: [E'] int32.
        kept: [E'] int64, the former position of each edge.
    """

    indptr: Tensor
    indices: Tensor
    kept: Tensor


def drop_self_loops(indptr: Tensor, indices: Tensor) -> LoopFree | None:
    """Returns a CSC graph without its self loops, or None if it has none."""
    check_vector("indices", indices)
    check_indptr("indptr", indptr, indices.numel())
    if kernels.count_self_loops(indptr, indices) == 0:
        return None
    found = LoopFree(*kernels.drop_self_loops(indptr, indices))
    remember(found.indptr, found.indices.numel() + 1, ascends=True)
    remember(found.kept, indices.numel())
    known = known_bound(indices)
    if known is not None:
        remember(found.indices, known)
    return found
