"""Sums over in-edges whose terms depend on the edge: attention, and messages of rows of edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn.ops.aggregate import check_by_source, check_graph, check_saved
from pyg_batchgnn.ops.checks import (
    check_dense,
    check_drop,
    check_indptr,
    check_nodes,
    dropout_scale,
    wide_dtype,
)
from pyg_batchgnn.ops.keys import part_key
from pyg_batchgnn.ops.library import fake, gradient, kernels, thread_count
from pyg_batchgnn.ops.linear import linear
from pyg_batchgnn.ops.quantized import QuantizedTensor, decode, stored


class Attention(NamedTuple):
    """The result of `attention`."""

    out: Tensor  # [D, heads * (K + L)], head by head
    # [slots, heads], the softmax before dropout, negative where leaky ReLU's argument was not > 0.
    coefficient: Tensor
    # [D, heads], the sums of the softmax after dropout: 1 without it, 0 without edges.
    total: Tensor


def attention(
    x: Tensor,
    indptr: Tensor,
    indices: Tensor,
    source_weight: Tensor,
    *,
    target_weight: Tensor | None = None,
    target_logits: Tensor | None = None,
    edge_logits: Tensor | None = None,
    edge_rows: Tensor | None = None,
    row: Tensor | None = None,
    node: Tensor | None = None,
    by_source: Sequence[Tensor] = (),
    by_head: bool = False,
    loops: int | None = None,
    negative_slope: float = 0.2,
    drop: float = 0.0,
    key: int = 0,
    out_dtype: torch.dtype | None = None,
) -> Attention:
    """Computes the attention of every target over its in-edges.

    These are equations 1 to 4 of Velickovic et al. (2018), before the product with the weight of
    each head. With a weight for each target they are equations 1 to 3 of Shi et al. (2021). For the
    edges e from source j to target i:

        v[e] = [x[j], edge_rows[e]]
        z[e, h] = source_weight[h] . v[e] + target_weight[h] . x[i]
                  + target_logits[i, h] + edge_logits[e, h]
        logit[e, h] = leaky_relu(z[e, h])
        out[i, h] = sum over e of dropout(softmax(logit))[e, h] * v[e]

    Source i and target i are the same node. A missing term is 0. Values of edges are in slots: the
    edges of each target in order and, if ``loops`` are added, its loop last. Sums are float32, or
    float64 if ``x`` is. Results are bitwise identical on any number of threads.

    Args:
        x: [>= N, K] float32, float64, bfloat16 or float16, columns contiguous. Codes of a
            `QuantizedTensor` are multiplied and summed, and the sums decoded; with ``by_head`` its
            rows are decoded first.
        indptr: [D + 1] int64, from 0 to E.
        indices: [E] int32 or int64 in [0, N).
        source_weight: [heads, K + L] float32, or float64 if ``x`` is; or [D, heads, K + L], one
            weight per target.
        target_weight: [heads, K] of the dtype of ``source_weight``, as are the logits and rows of
            edges.
        target_logits: [D, heads].
        edge_logits: [slots, heads].
        edge_rows: [slots, L].
        row: [>= N] int32 or int64 rows of ``x``. With it ``x`` gets no gradient.
        node: [>= D] int64, the original ids of the targets, for dropout; None for 0, 1, ...
        by_source: the result of `transpose` for ``x.size(0)`` sources; required if ``x`` needs a
            gradient.
        by_head: x has 2 * heads * K columns: the keys of all heads, which scores read, then their
            values, which are summed. It takes no ``target_weight``.
        loops: replaces self loops by one loop for each of the first ``loops`` targets. None takes
            the edges as they are.
        drop: the probability of dropping a coefficient, below 1.
        key: the key of dropout (`attention_key`). The column of a decision is slot * heads + head,
            slots counted within the target.
        out_dtype: float32, float64 or bfloat16; None for that of ``x`` (float32 for float16).
    """
    dtype = out_dtype or (torch.float32 if x.dtype == torch.float16 else x.dtype)
    targets, sources = indptr.numel() - 1, (x if row is None else row).size(0)
    _check_input(x, indptr, indices, row, node, by_source, dtype)
    _check_loops(loops, min(targets, sources))
    check_drop(drop)
    if target_weight is not None and targets > sources:
        raise ValueError(f"x has {sources} rows, but there are {targets} targets")
    slots = indices.numel() + (loops or 0)
    by_target = source_weight.dim() == 3
    heads = source_weight.size(-2) if source_weight.dim() > 1 else 0
    edge_columns = 0 if edge_rows is None or edge_rows.dim() != 2 else edge_rows.size(1)
    columns = x.size(1)
    if by_head:
        if target_weight is not None or not heads or columns % (2 * heads):
            raise ValueError(
                f"by_head takes keys and values of {heads} heads and no target_weight, got x with {columns} "
                f"columns"
            )
        columns //= 2 * heads
    weight_shape = (heads, columns + edge_columns)
    shapes: dict[str, tuple[Tensor | None, tuple[int, ...]]] = {
        "source_weight": (source_weight, (targets, *weight_shape) if by_target else weight_shape),
        "target_weight": (target_weight, (heads, columns)),
        "target_logits": (target_logits, (targets, heads)),
        "edge_logits": (edge_logits, (slots, heads)),
        "edge_rows": (edge_rows, (slots, edge_columns)),
    }
    for name, (tensor, shape) in shapes.items():
        _check_numbers(name, tensor, shape, wide_dtype(x.dtype))
    if isinstance(x, QuantizedTensor) and by_head:
        x, row = decode(x.codes, x.decoding, x.dtype, row), None
    if isinstance(x, QuantizedTensor):
        with torch.autocast("cpu", enabled=False):
            source_weight, target_weight, target_logits = _weights_of_codes(
                x.decoding, source_weight, target_weight, target_logits, targets
            )
    terms = source_weight, target_weight, target_logits, edge_logits, edge_rows
    found = kernels.attention(
        *(*stored(x), row, indptr, indices, *terms, None, None, node, list(by_source), by_head, _LINEAR),
        *(targets, -1 if loops is None else loops, negative_slope, drop, key, dtype, thread_count()),
    )
    return Attention(*found)


#: How coefficients are made (`Scores` in csrc/kernels/simd/attention.h).
_LINEAR, _ADDITIVE, _GIVEN, _MESSAGES = range(4)
#: Wider rows of edges are multiplied all at once, which is faster and writes a row for each edge.
_MOST_EDGE_COLUMNS = 16


def additive_attention(
    x: Tensor,
    indptr: Tensor,
    indices: Tensor,
    weight: Tensor,
    target_rows: Tensor,
    edge_rows: Tensor | None = None,
    edge_weight: Tensor | None = None,
    *,
    node: Tensor | None = None,
    by_source: Sequence[Tensor] = (),
    loops: int | None = None,
    negative_slope: float = 0.2,
    drop: float = 0.0,
    key: int = 0,
) -> Attention:
    """Computes the attention of Brody, Alon and Yahav (2022), equation 7, from rows that are
    already multiplied by the weights of sources and targets.

    For the edges e from source j to target i and head h, which has C columns of each row:

        s[e] = x[j] + target_rows[i] + edge_rows[e] @ edge_weight
        logit[e, h] = weight[h] . leaky_relu(s[e])[h]
        out[i, h] = sum over e of dropout(softmax(logit))[e, h] * x[j][h]

    s is not stored: the backward pass computes it again. Slots, dropout, bits and the other
    arguments are as in `attention`.

    Args:
        x: [N, heads * C] float32, float64 or bfloat16, columns contiguous.
        weight: [heads, C] float32, or float64 if ``x`` is, as are the next three.
        target_rows: [D, heads * C].
        edge_rows: [slots, L]; [slots, heads * C] without ``edge_weight``.
        edge_weight: [L, heads * C]. If L is above 16, the products of all edges are stored.
    """
    terms = (None, edge_rows, target_rows, edge_weight, node, by_source)
    numbers = (negative_slope, drop, key, x.dtype)
    return Attention(*_sums(x, None, indptr, indices, weight, _ADDITIVE, terms, loops, numbers))


def edge_sums(
    x: Tensor,
    indptr: Tensor,
    indices: Tensor,
    *,
    weight: Tensor | None = None,
    target_rows: Tensor | None = None,
    edge_rows: Tensor | None = None,
    edge_weight: Tensor | None = None,
    row: Tensor | None = None,
    by_source: Sequence[Tensor] = (),
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Sums ``relu(x[j] + target_rows[i] + edge_rows[e] @ edge_weight)`` over the in-edges e of each
    target i, [D, C] (Hu et al. 2020, equation A.1); or, with a weight, ``weight[e, h] * x[j]`` for
    every h, [D, H * C]. No message is stored.

    Args:
        x: [>= N, C], as in `attention`; codes of a `QuantizedTensor` are decoded first.
        weight: [E, H] float32, or float64 if ``x`` is.
        target_rows, edge_rows, edge_weight: as in `additive_attention` with one head. A vector that
            all targets share may be expanded to ``target_rows``.
        row, by_source, out_dtype: as in `attention`.
    """
    if isinstance(x, QuantizedTensor):
        x, row = decode(x.codes, x.decoding, x.dtype, row), None
    heads, scores = (1, _MESSAGES) if weight is None else (weight.size(-1), _GIVEN)
    nothing = torch.empty(heads, x.size(-1), dtype=wide_dtype(x.dtype))
    dtype = out_dtype or (torch.float32 if x.dtype == torch.float16 else x.dtype)
    terms = (weight, edge_rows, target_rows, edge_weight, None, by_source)
    return _sums(x, row, indptr, indices, nothing, scores, terms, None, (0.0, 0.0, 0, dtype))[0]


def _sums(
    x: Tensor,
    row: Tensor | None,
    indptr: Tensor,
    indices: Tensor,
    weight: Tensor,
    scores: int,
    terms: tuple[Any, ...],
    loops: int | None,
    numbers: tuple[float, float, int, torch.dtype],
) -> tuple[Tensor, Tensor, Tensor]:
    edge_logits, edge_rows, target_rows, edge_weight, node, by_source = terms
    targets, sources = indptr.numel() - 1, (x if row is None else row).size(0)
    _check_input(x, indptr, indices, row, node, by_source, numbers[-1])
    _check_loops(loops, min(targets, sources))
    check_drop(numbers[1])
    slots, columns, heads = indices.numel() + (loops or 0), x.size(1), weight.size(0)
    if edge_weight is not None and edge_rows is None:
        raise ValueError("edge_weight multiplies edge_rows, but they are not given")
    width = columns // max(heads, 1) if scores == _ADDITIVE else columns
    of_edges = columns if edge_weight is None else edge_weight.size(0)
    wide, whole = wide_dtype(x.dtype), (targets, columns)
    is_shared = target_rows is not None and (target_rows.stride(), target_rows.shape) == ((0, 1), whole)
    for name, tensor, shape in (
        ("weight", weight, (heads, width)),
        ("weight", edge_logits, (slots, heads)),
        ("edge_rows", edge_rows, (slots, of_edges)),
        ("edge_weight", edge_weight, (of_edges, columns)),
        ("target_rows", None if is_shared else target_rows, whole),
    ):
        _check_numbers(name, tensor, shape, wide)
    if edge_weight is not None and of_edges > _MOST_EDGE_COLUMNS:
        edge_rows, edge_weight = linear([edge_rows], [edge_weight.t()], out_dtype=wide), None
    return kernels.attention(
        *(x, None, row, indptr, indices, weight, None, None, edge_logits, edge_rows, target_rows),
        *(edge_weight, node, list(by_source), False, scores, targets, -1 if loops is None else loops),
        *(*numbers, thread_count()),
    )


def _weights_of_codes(
    decoding: Tensor,
    source_weight: Tensor,
    target_weight: Tensor | None,
    target_logits: Tensor | None,
    targets: int,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Returns weights and logits for codes that give the same as these for decoded rows: with x =
    code * scale + offset, w . x is (w * scale) . code + w . offset."""
    scale, offset = decoding
    own, of_edges = source_weight.split([scale.numel(), source_weight.size(-1) - scale.numel()], -1)
    constant = own @ offset
    if target_weight is not None:
        constant = constant + target_weight @ offset
        target_weight = target_weight * scale
    if target_logits is not None:
        constant = constant + target_logits
    constant = constant.expand(targets, -1).contiguous()
    return torch.cat([own * scale, of_edges], -1), target_weight, constant


def attention_weights(
    coefficient: Tensor,
    indptr: Tensor,
    *,
    node: Tensor | None = None,
    loops: int | None = None,
    drop: float = 0.0,
    key: int = 0,
) -> Tensor:
    """Returns [slots, heads], the softmax of `attention` after dropout, differentiable.
    ``coefficient``: [slots, heads], from `attention`. Other arguments as given to `attention`."""
    targets, edges = indptr.numel() - 1, coefficient.size(0) - (loops or 0)
    if coefficient.dim() != 2:
        raise ValueError(f"coefficient must be [slots, heads], got {list(coefficient.shape)}")
    if loops is not None and not 0 <= loops <= targets:
        raise ValueError(f"loops must be in [0, {targets}], the targets, got {loops}")
    check_indptr("indptr", indptr, edges)
    check_nodes(node, targets)
    check_drop(drop)
    weights = coefficient.abs()
    if drop == 0.0:
        return weights
    numbers = (-1 if loops is None else loops, coefficient.size(1), drop, key)
    keep = kernels.attention_keep(indptr, node, targets, *numbers)
    return weights * keep * dropout_scale(drop)


def attention_key(layer_key: int) -> int:
    """Returns the key for the dropout of attention weights from a layer's key."""
    return part_key(layer_key, "attention")


def _check_input(
    x: Tensor,
    indptr: Tensor,
    indices: Tensor,
    row: Tensor | None,
    node: Tensor | None,
    by_source: Sequence[Tensor],
    dtype: torch.dtype,
) -> None:
    check_graph(x, indptr, indices, row, "sum", dtype)
    if x.numel() and x.stride(1) != 1:
        raise ValueError(f"x must be a matrix, columns contiguous, got strides {x.stride()}")
    if dtype == torch.float64 and x.dtype != dtype:
        raise TypeError(f"x is {x.dtype} and the result {dtype}; convert x with .to({dtype})")
    check_nodes(node, indptr.numel() - 1)
    if not (x.requires_grad and torch.is_grad_enabled()):
        return
    if x.dtype == torch.float16:
        raise TypeError("float16 rows get no gradient; convert them with .float()")
    if len(by_source) != 3 or by_source[0].numel() != x.size(0) + 1:
        raise ValueError(f"x needs a gradient: give by_source=ops.transpose(indptr, indices, {x.size(0)})")
    check_by_source(by_source, x.size(0), indptr, indices)


def _check_loops(loops: int | None, most: int) -> None:
    if loops is not None and not 0 <= loops <= most:
        raise ValueError(f"loops must be in [0, {most}], the nodes that are sources and targets, got {loops}")


def _check_numbers(name: str, tensor: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if tensor is None:
        return
    check_dense(name, tensor)
    if tensor.dtype != dtype:
        raise TypeError(f"{name} must be {dtype}, got {tensor.dtype}; convert it with .to({dtype})")
    if tuple(tensor.shape) != shape or not tensor.is_contiguous():
        raise ValueError(
            f"{name} must be contiguous of shape {list(shape)}, got {list(tensor.shape)} with strides "
            f"{tensor.stride()}"
        )


# Gradients and shapes #############################################################################


@fake("attention")
def _fake_attention(
    x: Tensor, _decoding: Any, _row: Any, _indptr: Tensor, indices: Tensor, source_weight: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    scores, num_targets, num_loops, *_, out_dtype, _threads = rest[9:]
    heads, width = source_weight.shape[-2:]
    slots, softened = indices.size(0) + max(num_loops, 0), heads if scores <= _ADDITIVE else 0
    out = x.new_empty((num_targets, heads * width), dtype=out_dtype)
    return out, source_weight.new_empty((slots, softened)), source_weight.new_empty((num_targets, softened))


@fake("attention_grads")
def _fake_grads(
    _grad: Tensor, _grad_coefficient: Any, _grad_total: Any, coefficient: Tensor, x: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    source_weight, _, edge_rows, target_rows, edge_weight, _node, by_source, _, scores, *numbers = rest[4:]
    num_targets, (need_edge_logits, need_edge_rows, _threads) = numbers[0], numbers[-3:]
    (heads, width), slots = source_weight.shape[-2:], coefficient.size(0)
    edge_columns, softened = 0 if edge_rows is None else edge_rows.size(1), scores <= _ADDITIVE
    return (
        torch.empty_like(source_weight) if softened else source_weight.new_empty(0),
        source_weight.new_empty((heads, width - (0 if scores else edge_columns))),
        source_weight.new_empty((num_targets if softened else 0, heads)),
        source_weight.new_empty((slots if need_edge_logits else 0, heads)),
        source_weight.new_empty((slots if need_edge_rows else 0, edge_columns)),
        source_weight.new_empty((0 if target_rows is None else num_targets, x.size(1))),
        source_weight.new_empty((0 if edge_weight is None else edge_columns, x.size(1))),
        x.new_empty((x.size(0) if by_source else 0, x.size(1))),
    )


@fake("attention_keep")
def _fake_keep(indptr: Tensor, _node: Any, _targets: int, _loops: int, heads: int, *_: Any) -> Tensor:
    slots = torch.library.get_ctx().new_dynamic_size()
    return indptr.new_empty((slots, heads), dtype=torch.uint8)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, decoding, row, indptr, indices, source_weight, target_weight, *rest = inputs
    _, edge_logits, edge_rows, target_rows, edge_weight, node, by_source, *numbers = rest
    coefficient = edge_logits if numbers[1] == _GIVEN else output[1]
    weights = (source_weight, target_weight, edge_rows, target_rows, edge_weight)
    ctx.save_for_backward(coefficient, x, decoding, row, indptr, indices, *weights, node, *by_source)
    ctx.numbers = numbers
    ctx.set_materialize_grads(False)


@gradient("attention", _save)
def _backward(
    ctx: Any, grad: Tensor | None, grad_coefficient: Tensor | None, grad_total: Tensor | None
) -> tuple[Any, ...]:
    coefficient, x, decoding, row, indptr, indices, *rest = ctx.saved_tensors
    weights, node, by_source = rest[:5], rest[5], rest[6:]
    *numbers, out_dtype, threads = ctx.numbers
    needs = ctx.needs_input_grad
    check_saved(indptr, indices, row, x.size(0), by_source)
    if grad is None:
        heads, width = weights[0].shape[-2:]
        grad = x.new_zeros((indptr.numel() - 1, heads * width), dtype=out_dtype)
    # As the source weight, [heads, K], [D, heads], [slots, heads], [slots, L], as the rows of
    # targets and the weight of edges, [N, K]; without rows where they are not wanted.
    grads = (None if one is None else one.contiguous() for one in (grad, grad_coefficient, grad_total))
    *d_terms, d_x = kernels.attention_grads(
        *(*grads, coefficient, x, decoding, row, indptr, indices, *weights, node),
        *(by_source if needs[0] else [], *numbers, needs[8], needs[9], threads),
    )
    return (
        d_x if needs[0] else None,
        *[None] * 4,
        *(found if need else None for found, need in zip(d_terms, needs[5:12], strict=True)),
        None,
        [None] * len(by_source),
        *[None] * len(ctx.numbers),
    )
