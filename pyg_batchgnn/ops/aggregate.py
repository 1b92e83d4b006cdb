"""Sums, means and maxima over in-edges."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_batchgnn.ops.aggregate_checks import check_graph, check_scales, check_size, rows_like
from pyg_batchgnn.ops.by_source import check_by_source, transpose
from pyg_batchgnn.ops.checks import check_ids
from pyg_batchgnn.ops.library import kernels


def aggregate(
    x: Tensor,
    indptr: Tensor,
    indices: Tensor,
    *,
    row: Tensor | None = None,
    edge_weight: Tensor | None = None,
    edge: Tensor | None = None,
    source_scale: Tensor | None = None,
    target_scale: Tensor | None = None,
    self_input: Tensor | None = None,
    self_scale: Tensor | None = None,
    by_source: Sequence[Tensor] = (),
    reduce: str = "sum",
    out_dtype: torch.dtype | None = None,
    threads: int | None = None,
) -> Tensor:
    """Reduces the rows of the in-edges of every target.

    Differentiable in ``x``, ``edge_weight`` and ``self_scale``.

        out[i] = target_scale[i] * sum of edge_weight[edge[e]] * source_scale[s] * x[row[s]]
                 + self_scale[i] * x[row[i]]

    over the in-edges e of target i, with s = indices[e]. A missing factor counts as one, and a
    missing ``row`` or ``edge`` as the identity. Without ``self_input`` and ``self_scale`` there is
    no self part. Sums are taken in the order of the edges, in float32, or in float64 if
    ``out_dtype`` is. The result has the same bits on any number of threads. "mean" divides the sum
    by the number of in-edges. Targets without in-edges get 0 in every reduction.

    Args:
        x: [>= N, F] float32, float64, bfloat16 or float16; columns contiguous.
        indptr: [D + 1] int64, from 0 to E.
        indices: [E] int32 or int64 in [0, N).
        row: [>= N] int32 or int64 rows of ``x``. With it ``x`` gets no gradient.
        edge_weight: one number per edge, read at ``edge``. "max" takes neither this nor the
            arguments from here to ``self_scale``.
        edge: [E] int32 or int64.
        source_scale: [>= N]; constant.
        target_scale: [D]; constant.
        self_input: [M, F] like ``x``. The self part of the rows below M reads it instead of ``x``;
            constant.
        self_scale: [D], or [1] for all; 1 where only ``self_input`` is given. It is constant if
            ``self_input`` is given.
        by_source: the result of `transpose`; computed if it is empty and a gradient needs it.
        reduce: "sum", "mean" or "max".
        out_dtype: float32, float64 or bfloat16; that of ``x`` where None (float32 for float16).
        threads: the largest number of threads; torch's own number where None.

    Returns:
        [D, F].
    """
    dtype = out_dtype or (torch.float32 if x.dtype == torch.float16 else x.dtype)
    check_graph(x, indptr, indices, row, reduce, dtype)
    check_by_source(by_source, x.size(0), indptr, indices)
    scales = {
        "edge_weight": edge_weight,
        "source_scale": source_scale,
        "target_scale": target_scale,
        "self_scale": self_scale,
    }
    check_scales(scales, reduce, self_input)
    held = x.size(0) if row is None else row.numel()
    own = held if self_input is None else self_input.size(0)
    targets = indptr.numel() - 1
    if edge is not None:
        if edge.numel() != indices.numel():
            raise ValueError(f"edge has {edge.numel()} entries for {indices.numel()} edges")
        check_ids("edge", edge, 0 if edge_weight is None else edge_weight.numel(), "edge weights")
    check_size("edge_weight", edge_weight, indices.numel() if edge is None else 0)
    check_size("source_scale", source_scale, held)
    check_size("target_scale", target_scale, targets)
    if self_scale is not None and self_scale.numel() != 1:
        check_size("self_scale", self_scale, min(own, targets))
    if self_input is not None:
        self_input = rows_like("self_input", self_input, x)
    if torch.is_grad_enabled() and x.requires_grad and not by_source:
        by_source = transpose(indptr, indices, x.size(0), threads)
    return launch(
        x if x.stride(-1) == 1 else x.contiguous(),
        indptr,
        indices,
        row=row,
        edge=edge,
        self_input=self_input,
        by_source=by_source,
        reduce=reduce,
        out_dtype=dtype,
        threads=threads or torch.get_num_threads(),
        **scales,
    )


def launch(
    x: Tensor,
    indptr: Tensor,
    indices: Tensor,
    *,
    row: Tensor | None = None,
    edge_weight: Tensor | None,
    edge: Tensor | None,
    source_scale: Tensor | None,
    target_scale: Tensor | None,
    self_input: Tensor | None,
    self_scale: Tensor | None,
    by_source: Sequence[Tensor] = (),
    reduce: str = "sum",
    out_dtype: torch.dtype,
    threads: int,
) -> Tensor:
    """Calls the operator ``aggregate`` with checked arguments."""
    wide = torch.float64 if out_dtype == torch.float64 else torch.float32

    def widened(scale: Tensor | None) -> Tensor | None:
        return None if scale is None else scale.to(wide).contiguous()

    return kernels.aggregate(
        x,
        indptr,
        indices,
        row,
        widened(edge_weight),
        edge,
        widened(source_scale),
        widened(target_scale),
        self_input,
        widened(self_scale),
        list(by_source),
        indptr.numel() - 1,
        reduce,
        out_dtype,
        threads,
    )
