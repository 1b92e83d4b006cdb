"""Shapes and dtypes of what aggregation's operators return, for tracing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def _aggregate(x: Tensor, *rest: Any) -> Tensor:
    num_targets, _reduce, out_dtype, _threads = rest[-4:]
    return x.new_empty((num_targets, x.size(1)), dtype=out_dtype)


def _weight_grads(grad: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    indices: Tensor = rest[2]
    need_edge, self_size, _threads = rest[-3:]
    dtype = torch.float64 if grad.dtype == torch.float64 else torch.float32
    edges = indices.numel() if need_edge else 0
    return grad.new_empty((edges,), dtype=dtype), grad.new_empty((self_size,), dtype=dtype)


def _max_grads(_grad: Tensor, _out: Tensor, x: Tensor, *_rest: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _transpose(
    indptr: Tensor, indices: Tensor, _num_targets: int, num_sources: int, _threads: int
) -> tuple[Tensor, Tensor, Tensor]:
    edges = indices.numel()
    return (
        indptr.new_empty((num_sources + 1,)),
        indices.new_empty((edges,), dtype=torch.int32),
        indices.new_empty((edges,), dtype=torch.int32 if edges < 1 << 31 else torch.int64),
    )


def _degree_scale(indptr: Tensor, num_nodes: int, _loops: int, _root: bool, dtype: torch.dtype) -> Tensor:
    return indptr.new_empty((num_nodes,), dtype=dtype)


torch.library.register_fake("pyg_batchgnn::aggregate", _aggregate)
torch.library.register_fake("pyg_batchgnn::aggregate_weight_grads", _weight_grads)
torch.library.register_fake("pyg_batchgnn::aggregate_max_grads", _max_grads)
torch.library.register_fake("pyg_batchgnn::transpose", _transpose)
torch.library.register_fake("pyg_batchgnn::degree_scale", _degree_scale)
