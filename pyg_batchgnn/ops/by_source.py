"""The edges of a layer sorted by source, for the gradients of their sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_ids, check_indptr, check_vector
from pyg_batchgnn.ops.known import remember
from pyg_batchgnn.ops.library import kernels


class BySource(NamedTuple):
    """The edges of a layer in a stable order by source.

    Attributes:
        ptr: [num_sources + 1] int64.
        targets: [E] int32, the edges' targets.
        edge: [E] of `id_dtype`, the position of each edge in the order by target.
    """

    ptr: Tensor
    targets: Tensor
    edge: Tensor


def transpose(indptr: Tensor, indices: Tensor, num_sources: int, threads: int | None = None) -> BySource:
    """Sorts the edges of a CSC graph by source.

    Args:
        indptr: [D + 1] int64, from 0 to E.
        indices: [E] int32 or int64 in [0, num_sources).
        num_sources: the number of sources, N.
        threads: the largest number of threads; torch's own number where None.
    """
    check_indptr("indptr", indptr, indices.numel())
    check_ids("indices", indices, num_sources, "sources")
    targets = indptr.numel() - 1
    found = BySource(
        *kernels.transpose(indptr, indices, targets, num_sources, threads or torch.get_num_threads())
    )
    remember(found.ptr, indices.numel() + 1, ascends=True)
    remember(found.targets, targets)
    remember(found.edge, indices.numel())
    return found


def check_by_source(by_source: Sequence[Tensor], sources: int, indptr: Tensor, indices: Tensor) -> None:
    """Raises unless ``by_source`` is empty or fits the checked edges, as `transpose` returns it."""
    if not by_source:
        return
    edges = indices.numel()
    if len(by_source) != 3 or any(part.numel() != edges for part in by_source[1:]):
        raise ValueError(
            f"by_source must be what transpose returned for these {edges} edges, got tensors of "
            f"{[part.numel() for part in by_source]} entries"
        )
    ptr, targets, edge = by_source
    if ptr.numel() != sources + 1:
        raise ValueError(
            f"by_source is of {ptr.numel() - 1} sources, but x has {sources} rows; give "
            f"ops.transpose(indptr, indices, {sources})"
        )
    check_indptr("by_source[0]", ptr, edges)
    check_vector("by_source[1]", targets, (torch.int32,))
    check_ids("by_source[1]", targets, indptr.numel() - 1, "targets")
    check_ids("by_source[2]", edge, edges, "edges")
