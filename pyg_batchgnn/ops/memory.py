"""The memory that the package keeps and reuses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_dense
from pyg_batchgnn.ops.library import kernels


def advise_huge_pages(tensor: Tensor) -> None:
    """Asks the system to use huge pages for the memory of a CPU tensor. Contents and address do not
    change."""
    check_dense("tensor", tensor)
    if not tensor.is_contiguous():
        raise ValueError(f"tensor is not contiguous (strides {tensor.stride()}); call .contiguous()")
    kernels.advise_huge_pages(tensor.detach())


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Returns an uninitialised tensor over memory that is reused, which avoids the page faults of
    fresh memory."""
    if any(size < 0 for size in shape):
        raise ValueError(f"sizes must not be negative, got {list(shape)}")
    view = kernels.empty_bytes(math.prod(shape) * dtype.itemsize).view(dtype).view(tuple(shape))
    # Autograd adds to a gradient in place only if no other tensor shares its memory, not even the
    # one that a view is of. Torch's storages in Python would share it as well.
    return torch.empty(0, dtype=dtype).set_(view)


@dataclass(frozen=True)
class MemoryStats:
    """The memory of the package's operators.

    Attributes:
        live: bytes of blocks in use.
        cached: bytes of blocks that are kept for reuse.
        peak: the largest sum of both, in bytes, since `reset_peak`.
        system_calls: how often the system was asked for a block since the process began.
    """

    live: int
    cached: int
    peak: int
    system_calls: int


def memory_stats() -> MemoryStats:
    """Returns the memory of the tensors that operators returned and of their scratch space.

    The memory of torch is not part of it.
    """
    return MemoryStats(*kernels.memory_stats())


def reset_peak() -> None:
    """Resets `MemoryStats.peak` to the memory that is held now."""
    kernels.reset_memory_peak()


def empty_cache() -> None:
    """Returns cached blocks and scratch memory to the system. Tensors that are in use stay
    valid."""
    kernels.empty_cache()
