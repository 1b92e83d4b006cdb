"""Sums, means and maxima over in-edges, and the edges sorted by source for their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_dense, check_ids, check_indptr, check_vector
from pyg_batchgnn.ops.known import known_bound, remember
from pyg_batchgnn.ops.library import kernels

REDUCTIONS = ("sum", "mean", "max")
#: The dtypes of stored rows. Results are never float16.
FLOATS = (torch.float32, torch.float64, torch.bfloat16)
TABLES = (*FLOATS, torch.float16)


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
    _check_scales(scales, reduce, self_input)
    held = x.size(0) if row is None else row.numel()
    own = held if self_input is None else self_input.size(0)
    targets = indptr.numel() - 1
    if edge is not None:
        if edge.numel() != indices.numel():
            raise ValueError(f"edge has {edge.numel()} entries for {indices.numel()} edges")
        check_ids("edge", edge, 0 if edge_weight is None else edge_weight.numel(), "edge weights")
    _check_size("edge_weight", edge_weight, indices.numel() if edge is None else 0)
    _check_size("source_scale", source_scale, held)
    _check_size("target_scale", target_scale, targets)
    if self_scale is not None and self_scale.numel() != 1:
        _check_size("self_scale", self_scale, min(own, targets))
    if self_input is not None:
        self_input = _rows_like("self_input", self_input, x)
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


def check_graph(
    x: Tensor, indptr: Tensor, indices: Tensor, row: Tensor | None, reduce: str, dtype: torch.dtype
) -> None:
    """Raises unless `aggregate` can read these rows along these edges."""
    if reduce not in REDUCTIONS:
        raise ValueError(f"reduce must be one of {', '.join(REDUCTIONS)}, got {reduce!r}")
    check_dense("x", x)
    if x.dim() != 2:
        raise ValueError(f"x must be [rows, columns], got {list(x.shape)}")
    if x.dtype not in TABLES:
        raise TypeError(f"x must be of a floating type, got {x.dtype}; convert it with .float()")
    if dtype not in FLOATS:
        raise TypeError(f"results are float32, float64 or bfloat16, not {dtype}")
    if x.dtype == torch.float64 and dtype != torch.float64:
        raise TypeError(f"x is float64 and the result {dtype}; convert x with .to({dtype})")
    check_vector("indices", indices)
    check_indptr("indptr", indptr, indices.numel())
    check_ids("indices", indices, x.size(0) if row is None else row.numel(), "sources")
    if row is not None:
        check_ids("row", row, x.size(0), "rows of x")
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError("rows that are read through row get no gradient; gather them first: x[row]")


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


def _rows_like(name: str, rows: Tensor, x: Tensor) -> Tensor:
    """Returns a matrix as wide as x and of its dtype, with contiguous columns."""
    check_dense(name, rows)
    if rows.dim() != 2 or rows.size(1) != x.size(1) or rows.dtype != x.dtype:
        raise ValueError(
            f"{name} must be like x, [M, {x.size(1)}] of {x.dtype}, got {list(rows.shape)} of {rows.dtype}"
        )
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def _check_scales(scales: dict[str, Tensor | None], reduce: str, self_input: Tensor | None) -> None:
    given = [name for name, scale in scales.items() if scale is not None]
    if reduce == "max" and (given or self_input is not None):
        raise ValueError(f"a maximum takes no weights, got {', '.join(given) or 'self_input'}")
    self_scale = scales["self_scale"]
    if self_input is not None and self_scale is not None and self_scale.requires_grad:
        raise ValueError("self_scale gets no gradient together with self_input; scale self_input beforehand")
    for name in ("source_scale", "target_scale"):
        scale = scales[name]
        if scale is not None and scale.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name} gets no gradient; give its product with edge_weight as edge_weight")


def _check_size(name: str, values: Tensor | None, least: int) -> None:
    if values is None:
        return
    check_dense(name, values)
    if values.dim() != 1 or values.numel() < least:
        raise ValueError(f"{name} must be a vector of {least} entries or more, got {list(values.shape)}")


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
