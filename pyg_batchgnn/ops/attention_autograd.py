"""The shapes of the results of attention, and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_batchgnn.ops.library import fake, gradient, kernels


class AttentionGrads(NamedTuple):
    """The gradients of `attention`.

    Attributes:
        source_weight: [heads, K].
        target_weight: [heads, K].
        target_logits: [D, heads].
        edge_logits: [slots, heads]; [0, heads] where it is not wanted.
        x: [N, K]; [0, K] where it is not wanted.
    """

    source_weight: Tensor
    target_weight: Tensor
    target_logits: Tensor
    edge_logits: Tensor
    x: Tensor


@fake("attention")
def _fake_attention(
    x: Tensor,
    _row: Tensor | None,
    _indptr: Tensor,
    indices: Tensor,
    source_weight: Tensor,
    _target_weight: Tensor | None,
    _target_logits: Tensor | None,
    _edge_logits: Tensor | None,
    _node: Tensor | None,
    _by_source: Sequence[Tensor],
    num_targets: int,
    num_loops: int,
    _negative_slope: float,
    _drop: float,
    _key: int,
    out_dtype: torch.dtype,
    _threads: int,
) -> tuple[Tensor, Tensor]:
    heads, columns = source_weight.shape
    slots = indices.size(0) + max(num_loops, 0)
    out = x.new_empty((num_targets, heads * columns), dtype=out_dtype)
    return out, source_weight.new_empty((slots, heads))


@fake("attention_grads")
def _fake_grads(
    _grad: Tensor,
    _grad_coefficient: Tensor | None,
    coefficient: Tensor,
    x: Tensor,
    _row: Tensor | None,
    _indptr: Tensor,
    _indices: Tensor,
    source_weight: Tensor,
    _target_weight: Tensor | None,
    _node: Tensor | None,
    by_source: Sequence[Tensor],
    num_targets: int,
    _num_loops: int,
    _negative_slope: float,
    _drop: float,
    _key: int,
    need_edge_logits: bool,
    _threads: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    heads = source_weight.size(0)
    return (
        torch.empty_like(source_weight),
        torch.empty_like(source_weight),
        source_weight.new_empty((num_targets, heads)),
        source_weight.new_empty((coefficient.size(0) if need_edge_logits else 0, heads)),
        x.new_empty((x.size(0) if by_source else 0, x.size(1))),
    )


@fake("attention_keep")
def _fake_keep(
    indptr: Tensor, _node: Tensor | None, _targets: int, _loops: int, heads: int, *_: Any
) -> Tensor:
    slots = torch.library.get_ctx().new_dynamic_size()
    return indptr.new_empty((slots, heads), dtype=torch.uint8)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, row, indptr, indices, source_weight, target_weight, _, _, node, by_source, *numbers = inputs
    ctx.save_for_backward(output[1], x, row, indptr, indices, source_weight, target_weight, node, *by_source)
    ctx.numbers = numbers
    ctx.set_materialize_grads(False)


@gradient("attention", _save)
def _backward(ctx: Any, grad: Tensor | None, grad_coefficient: Tensor | None) -> tuple[Any, ...]:
    coefficient, x, row, indptr, indices, source_weight, target_weight, node, *by_source = ctx.saved_tensors
    targets, loops, negative_slope, drop, key, out_dtype, threads = ctx.numbers
    needs = ctx.needs_input_grad
    if grad is None:
        grad = x.new_zeros((targets, source_weight.numel()), dtype=out_dtype)
    found = AttentionGrads(
        *kernels.attention_grads(
            grad.contiguous(),
            None if grad_coefficient is None else grad_coefficient.contiguous(),
            coefficient,
            x,
            row,
            indptr,
            indices,
            source_weight,
            target_weight,
            node,
            by_source if needs[0] else [],
            targets,
            loops,
            negative_slope,
            drop,
            key,
            needs[7],
            threads,
        )
    )
    return (
        found.x if needs[0] else None,
        *(None, None, None),
        found.source_weight if needs[4] else None,
        found.target_weight if needs[5] else None,
        found.target_logits if needs[6] else None,
        found.edge_logits if needs[7] else None,
        None,
        [None] * len(by_source),
        *([None] * len(ctx.numbers)),
    )
