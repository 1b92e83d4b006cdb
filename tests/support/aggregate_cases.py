"""Random graphs, and sums over their in-edges by gather, weigh and scatter."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn import ops
from tests.support.accuracy import distance


def graph(targets: int, sources: int, degree: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Returns indptr and indices with degrees from 0 to ``degree`` and parallel edges."""
    generator = torch.Generator().manual_seed(seed)
    degrees = torch.randint(degree + 1, (targets,), generator=generator)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    indices = torch.randint(max(sources, 1), (int(indptr[-1]),), generator=generator)
    return indptr, indices.int()


def obvious(
    x: Tensor,
    indptr: Tensor,
    indices: Tensor,
    reduce: str = "sum",
    edge_weight: Tensor | None = None,
    source_scale: Tensor | None = None,
    target_scale: Tensor | None = None,
    self_scale: Tensor | None = None,
) -> Tensor:
    targets = indptr.numel() - 1
    target = torch.repeat_interleave(torch.arange(targets), indptr.diff())
    source = indices.long()
    message = x[source]
    if edge_weight is not None:
        message = message * edge_weight[:, None]
    if source_scale is not None:
        message = message * source_scale[source, None]
    empty = x.new_zeros(targets, x.size(1))
    if reduce not in ops.SUMS:
        at = target[:, None].expand_as(message)
        return empty.scatter_reduce(0, at, message, f"a{reduce}", include_self=False)
    out = empty.index_add(0, target, message)
    if reduce == "mean":
        out = out / indptr.diff().clamp(min=1)[:, None]
    if target_scale is not None:
        out = out * target_scale[:, None]
    return out if self_scale is None else out + self_scale.expand(targets)[:, None] * x[:targets]


def assert_near(found: Tensor, wanted: Tensor, tolerance: float) -> None:
    assert distance(found, wanted, 1e-3) <= tolerance
