"""Sums, means and maxima over in-edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import (
    FLOATS,
    TABLES,
    check_dense,
    check_ids,
    check_indptr,
    check_vector,
    id_dtype,
    remember,
    wide_dtype,
)
from pyg_batchgnn.ops.library import fake, first_order, gradient, kernels, thread_count
from pyg_batchgnn.ops.memory import empty
from pyg_batchgnn.ops.quantized import stored

#: Aggregations of neighbours, each with the operator of its gradient, which reads rows and results;
#: None for sums of weighted rows. "max" is PyG's ``MaxAggregation``, and so on: layers take these.
REDUCTIONS = {"sum": None, "mean": None, "max": "aggregate_max_grads"}
#: Those that take weights and other factors, and that layers read from an aggregation cache.
SUMS = tuple(name for name, operator in REDUCTIONS.items() if operator is None)


def aggregate(
    x: Tensor,
    indptr: Tensor,
    indices: Tensor,
    *,
    row: Tensor | None = None,
    edge_weight: Tensor | None = None,
    source_scale: Tensor | None = None,
    target_scale: Tensor | None = None,
    self_scale: Tensor | None = None,
    onto: Tensor | None = None,
    by_source: Sequence[Tensor] = (),
    reduce: str = "sum",
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Aggregates the rows of the sources of every target's in-edges.

        out[i] = target_scale[i] * sum of edge_weight[e] * source_scale[s] * x[row[s]]
                 + self_scale[i] * x[row[i]]

    The sum is over the in-edges e of target i, with s = indices[e]. A missing factor is 1, and a
    missing ``row`` the identity. Without ``self_scale`` there is no self part. Sums are taken in
    the order of the edges, in float32, or float64 if ``out_dtype`` is: bitwise identical on any
    number of threads. "mean" divides by the number of in-edges. Targets without in-edges get 0.
    Differentiable in ``x``, ``edge_weight`` and ``self_scale``.

    >>> x, indices = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([1, 2, 0])
    >>> aggregate(x, torch.tensor([0, 2, 3]), indices, reduce="mean").flatten()  # two targets
    tensor([3., 1.])

    Args:
        x: [>= N, F] float32, float64, bfloat16 or float16; columns contiguous. Codes of a
            `QuantizedTensor` are summed as they are, and the sums decoded.
        indptr: [D + 1] int64, from 0 to E.
        indices: [E] int32 or int64 in [0, N).
        row: [>= N] int32 or int64 rows of ``x``. With it ``x`` gets no gradient.
        edge_weight: [E]. Sums and means alone take this and the arguments to ``self_scale``.
        source_scale, target_scale: [>= N] and [D]; constant.
        self_scale: [D], or [1] for all.
        onto: [D, F] of the result's dtype, constant, is added, in the place of ``self_scale``.
        by_source: the result of `transpose`; computed if it is empty and a gradient needs it.
        reduce: "sum", "mean" or "max".
        out_dtype: float32, float64 or bfloat16; None for that of ``x`` (float32 for float16).

    Returns:
        [D, F].
    """
    dtype = out_dtype or (torch.float32 if x.dtype == torch.float16 else x.dtype)
    check_graph(x, indptr, indices, row, reduce, dtype)
    sizes = (indices.numel(), x.size(0) if row is None else row.numel(), indptr.numel() - 1)
    scales = {"edge_weight": edge_weight, "source_scale": source_scale, "target_scale": target_scale}
    scales["self_scale"] = self_scale
    _check_factors({name: one for name, one in scales.items() if one is not None}, reduce, *sizes)
    form = (sizes[2], x.size(1)), dtype, False, None
    if onto is not None and (tuple(onto.shape), onto.dtype, onto.requires_grad, self_scale) != form:
        raise ValueError(f"onto must be {dtype} {list(form[0])}, constant, without self_scale")
    if by_source:
        check_by_source(by_source, x.size(0), indptr, indices)
    elif torch.is_grad_enabled() and x.requires_grad:
        by_source = transposed(indptr, indices, x.size(0))
    rows = x if x.stride(-1) == 1 else x.contiguous()
    options = {"row": row, "by_source": by_source, "reduce": reduce, "self_input": onto, **scales}
    return _launch(rows, indptr, indices, out_dtype=dtype, **options)  # type: ignore[arg-type]


def _launch(
    rows: Tensor,
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
    out_dtype: torch.dtype,
) -> Tensor:
    # Trusts its arguments: `aggregate` has checked them, or kernels made them.
    edge_weight, source_scale, target_scale, self_scale = (
        None if one is None else one.to(wide_dtype(out_dtype)).contiguous()
        for one in (edge_weight, source_scale, target_scale, self_scale)
    )
    x, decoding = stored(rows)
    return kernels.aggregate(
        *(x, decoding, indptr, indices, row, edge_weight, edge, source_scale, target_scale),
        *(None if self_input is None else stored(self_input)[0], self_scale, list(by_source)),
        *(indptr.numel() - 1, reduce, out_dtype, thread_count()),
    )


# Sums and the rows of the targets #################################################################


class WithTargets(NamedTuple):
    """The result of `aggregate_with_targets`."""

    out: Tensor  # [D, F], the reduced in-edges
    targets: Tensor  # [T, F] of the dtype of ``x``, its first rows. They share the memory of ``x``.


class _AggregateWithTargets(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        indptr: Tensor,
        indices: Tensor,
        by_source: Sequence[Tensor],
        reduce: str,
        out_dtype: torch.dtype,
        targets: int,
    ) -> tuple[Tensor, Tensor]:
        ctx.rows, ctx.x_dtype, ctx.reduce = x.size(0), x.dtype, reduce
        ctx.save_for_backward(indptr, indices, *by_source)
        ctx.set_materialize_grads(False)
        return aggregate(x, indptr, indices, reduce=reduce, out_dtype=out_dtype), x[:targets]

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor | None, grad_own: Tensor | None) -> tuple[Tensor | None, ...]:
        indptr, indices, *by_source = ctx.saved_tensors
        check_saved(indptr, indices, None, ctx.rows, by_source)
        if grad is None or by_source[1].numel() == 0:
            if grad is not None and grad_own is None:
                grad_own = grad.new_zeros(0, grad.size(1))
            return (None if grad_own is None else padded(grad_own, ctx.rows), *[None] * 6)
        own = None if grad_own is None else grad_own.to(grad.dtype).contiguous()
        result = source_gradient(
            grad.contiguous(), indptr, by_source, ctx.x_dtype, self_input=own, mean=ctx.reduce == "mean"
        )
        return (result, *[None] * 6)


def aggregate_with_targets(
    x: Tensor,
    indptr: Tensor,
    indices: Tensor,
    *,
    by_source: Sequence[Tensor] = (),
    reduce: str = "sum",
    out_dtype: torch.dtype | None = None,
    targets: int | None = None,
) -> WithTargets:
    """As `aggregate`, and returns the first rows ``x[:T]`` as well. Their gradient is added to that
    of the sum in the pass that writes it; a slice of ``x`` would take two passes more.

    Args:
        targets: T, the number of rows to return; None for the number of targets. With all rows of
            ``x`` the next relation reads them, and the gradients of both are added in one pass.
    """
    targets = indptr.numel() - 1 if targets is None else targets
    dtype = out_dtype or x.dtype
    if targets > x.size(0):
        raise ValueError(f"x has {x.size(0)} rows, but there are {targets} targets")
    if reduce not in SUMS or not (torch.is_grad_enabled() and x.requires_grad):
        out = aggregate(x, indptr, indices, by_source=by_source, reduce=reduce, out_dtype=dtype)
        return WithTargets(out, x if targets == x.size(0) else x[:targets])
    if by_source:
        check_by_source(by_source, x.size(0), indptr, indices)
    by_source = tuple(by_source or transpose(indptr, indices, x.size(0)))
    return WithTargets(*_AggregateWithTargets.apply(x, indptr, indices, by_source, reduce, dtype, targets))


def first_rows(x: Tensor, rows: int) -> Tensor:
    """Returns ``x[:rows]``, a view."""
    if rows == x.size(0) or not (torch.is_grad_enabled() and x.requires_grad):
        return x[:rows]
    result: Tensor = _FirstRows.apply(x, rows)
    return result


def padded(grad: Tensor, rows: int) -> Tensor:
    """Returns the gradient of the first rows followed by zeros, [rows, C]."""
    if len(grad) == rows:
        return grad
    out = empty((rows, grad.size(1)), grad.dtype)
    out[: len(grad)] = grad
    out[len(grad) :].zero_()
    return out


class _FirstRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: int) -> Tensor:
        ctx.rows = x.size(0)
        return x[:rows]

    @staticmethod
    @first_order
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return padded(grads[0], ctx.rows), None


# Edges by source ##################################################################################


class BySource(NamedTuple):
    """The edges of a layer in a stable order by source."""

    ptr: Tensor  # [num_sources + 1] int64
    targets: Tensor  # [E] int32, the edges' targets
    edge: Tensor  # [E] of `id_dtype`, the position of each edge in the order by target


def transpose(indptr: Tensor, indices: Tensor, num_sources: int) -> BySource:
    """Sorts the edges of a CSC graph, [D + 1] int64 and [E] int32 or int64, by source."""
    check_indptr("indptr", indptr, indices.numel())
    check_ids("indices", indices, num_sources, "sources")
    return transposed(indptr, indices, num_sources)


def transposed(indptr: Tensor, indices: Tensor, num_sources: int) -> BySource:
    """As `transpose`, for checked arrays."""
    targets = indptr.numel() - 1
    found = BySource(*kernels.transpose(indptr, indices, targets, num_sources, thread_count()))
    remember(found.ptr, indices.numel() + 1, ascends=True)
    remember(found.targets, targets)
    remember(found.edge, indices.numel())
    return found


def check_by_source(by_source: Sequence[Tensor], sources: int, indptr: Tensor, indices: Tensor) -> None:
    """Raises TypeError, ValueError or IndexError unless ``by_source`` fits the checked edges."""
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


# Checks ###########################################################################################


def check_graph(
    x: Tensor, indptr: Tensor, indices: Tensor, row: Tensor | None, reduce: str, dtype: torch.dtype
) -> None:
    """Raises TypeError, ValueError or IndexError for rows or edges that `aggregate` refuses."""
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
    _check_edges(indptr, indices, row, x.size(0))
    if row is not None and x.requires_grad and torch.is_grad_enabled():
        raise ValueError("rows that are read through row get no gradient; gather them first: x[row]")


def check_saved(
    indptr: Tensor, indices: Tensor, row: Tensor | None, rows: int, by_source: Sequence[Tensor]
) -> None:
    """Raises in a backward pass unless the saved edges are still in range: writes through ``.data``
    and NumPy are not noticed elsewhere."""
    if type(indices) is Tensor:  # else torch traces the pass
        _check_edges(indptr, indices, row, rows)
        if by_source:
            check_by_source(by_source, rows, indptr, indices)


def _check_edges(indptr: Tensor, indices: Tensor, row: Tensor | None, rows: int) -> None:
    check_indptr("indptr", indptr, indices.numel())
    check_ids("indices", indices, rows if row is None else row.numel(), "sources")
    if row is not None:
        check_ids("row", row, rows, "rows of x")


def _check_factors(scales: Mapping[str, Tensor], reduce: str, edges: int, sources: int, targets: int) -> None:
    if scales and reduce not in SUMS:
        raise ValueError(f"{reduce!r} takes no weights, got {', '.join(scales)}; {' and '.join(SUMS)} do")
    least = {"edge_weight": edges, "source_scale": sources, "target_scale": targets}
    least["self_scale"] = min(sources, targets)
    for name, scale in scales.items():
        if name in ("source_scale", "target_scale") and scale.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name} gets no gradient; give its product with edge_weight as edge_weight")
        if name == "self_scale" and scale.numel() == 1:
            continue
        check_dense(name, scale)
        if scale.dim() != 1 or scale.numel() < least[name]:
            raise ValueError(
                f"{name} must be a vector of {least[name]} entries or more, got {list(scale.shape)}"
            )


# Gradients and shapes #############################################################################

# The gradient of the rows is an aggregation again, along the edges sorted by source.


def source_gradient(
    grad: Tensor,
    indptr: Tensor,
    by_source: Sequence[Tensor],
    out_dtype: torch.dtype,
    *,
    edge_weight: Tensor | None = None,
    source_scale: Tensor | None = None,
    target_scale: Tensor | None = None,
    self_input: Tensor | None = None,
    self_scale: Tensor | None = None,
    mean: bool = False,
) -> Tensor:
    """Returns the gradient of x, [N, F]: the same sum with the roles of sources and targets
    exchanged. ``self_input``: another gradient of the first rows, which is added."""
    ptr, targets, place = by_source
    wide = wide_dtype(grad.dtype)
    if mean:
        degree = inverse_degrees(indptr, indptr.numel() - 1, 0, False, wide)
        target_scale = degree if target_scale is None else degree * target_scale
    # In a graph of two node types a target that is not a source has no row for its own part.
    result = _launch(
        grad,
        ptr,
        targets,
        edge_weight=edge_weight,
        edge=None if edge_weight is None else place,
        source_scale=target_scale,
        target_scale=source_scale,
        self_input=self_input,
        self_scale=self_scale,
        out_dtype=wide if torch.float16 == out_dtype or wide == torch.float64 else out_dtype,
    )
    return result if result.dtype == out_dtype else result.to(out_dtype)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, decoding, indptr, indices, row, edge_weight, _, source_scale, target_scale, _, self_scale = inputs[:11]
    by_source, _, ctx.reduce, _, _ = inputs[11:]
    ctx.x_dtype, ctx.sources = x.dtype, x.size(0)
    weights = edge_weight is not None and edge_weight.requires_grad
    selves = self_scale is not None and self_scale.requires_grad
    ctx.need_weights = (weights, selves)
    of_sum = ctx.reduce in SUMS
    kept_x, kept_out = x if weights or selves or not of_sum else None, None if of_sum else output
    ctx.save_for_backward(
        indptr, indices, row, edge_weight, source_scale, target_scale, self_scale, kept_x, kept_out,
        decoding, *by_source,
    )  # fmt: skip


@gradient("aggregate", _setup)
def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    saved = ctx.saved_tensors  # once: torch.utils.checkpoint returns them only once
    indptr, indices, row, edge_weight, source_scale, target_scale, self_scale, x, out = saved[:9]
    decoding, *by_source = saved[9:]
    no_lists = [None] * len(by_source)
    grad = grad.contiguous()
    grad_x = grad_edge = grad_self = None
    check_saved(indptr, indices, row, ctx.sources, by_source)
    if ctx.needs_input_grad[0]:
        by_source = by_source or transposed(indptr, indices, ctx.sources)
        if name := REDUCTIONS[ctx.reduce]:
            operator = getattr(kernels, name)
            grad_x = operator(grad, out, x, indptr, indices, by_source[0], by_source[1], thread_count())
        else:
            scales = {"source_scale": source_scale, "target_scale": target_scale, "self_scale": self_scale}
            grad_x = source_gradient(
                grad, indptr, by_source, ctx.x_dtype,
                edge_weight=edge_weight, mean=ctx.reduce == "mean", **scales,
            )  # fmt: skip
    if any(ctx.need_weights):
        need_edge, need_self = ctx.need_weights
        grad_edge, grad_self = kernels.aggregate_weight_grads(
            grad, x, decoding, indptr, indices, row, source_scale, target_scale, ctx.reduce == "mean",
            need_edge, self_scale.numel() if need_self else 0, thread_count(),
        )  # fmt: skip
        grad_edge = grad_edge if need_edge else None
        grad_self = grad_self.view_as(self_scale) if need_self else None
    return (grad_x, *[None] * 4, grad_edge, *[None] * 4, grad_self, no_lists, *[None] * 4)


def inverse_degrees(indptr: Tensor, num_nodes: int, loops: int, root: bool, dtype: torch.dtype) -> Tensor:
    """As `degree_scale`, for a checked ``indptr``."""
    degrees = torch.nn.functional.pad(indptr.diff(), (0, num_nodes - indptr.numel() + 1)) + loops
    scale = degrees.to(dtype)
    scale = scale.sqrt_() if root else scale
    return scale.reciprocal_().masked_fill_(degrees == 0, 0.0)


@fake("aggregate")
def _fake_aggregate(x: Tensor, *rest: Any) -> Tensor:
    num_targets, _reduce, out_dtype, _threads = rest[-4:]
    return x.new_empty((num_targets, x.size(1)), dtype=out_dtype)


@fake("aggregate_weight_grads")
def _fake_weight_grads(grad: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    indices: Tensor = rest[3]
    need_edge, self_size, _threads = rest[-3:]
    sizes, dtype = (indices.numel() if need_edge else 0, self_size), wide_dtype(grad.dtype)
    return grad.new_empty(sizes[0], dtype=dtype), grad.new_empty(sizes[1], dtype=dtype)


@fake("aggregate_max_grads")
def _fake_max_grads(_grad: Tensor, _out: Tensor, x: Tensor, *_rest: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@fake("transpose")
def _fake_transpose(
    indptr: Tensor, indices: Tensor, _num_targets: int, num_sources: int, _threads: int
) -> tuple[Tensor, Tensor, Tensor]:
    edges = indices.numel()
    ptr, targets = indptr.new_empty(num_sources + 1), indices.new_empty(edges, dtype=torch.int32)
    return ptr, targets, indices.new_empty(edges, dtype=id_dtype(edges))
