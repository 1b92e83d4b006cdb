"""The package's own memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.ops.library import kernels


def advise_huge_pages(tensor: Tensor) -> None:
    """Asks the system to back a CPU tensor's memory by huge pages. Contents and address stay as they are."""
    kernels.advise_huge_pages(tensor.detach())


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A tensor of arbitrary contents over memory that is kept and used again: the steady state takes no page
    faults, as fresh memory does."""
    return kernels.empty_bytes(math.prod(shape) * dtype.itemsize).view(dtype).view(tuple(shape))


@dataclass(frozen=True)
class MemoryStats:
    """The package's own memory, in bytes: blocks in use, blocks kept for reuse, the peak of both since
    `reset_peak`, and how often the system was asked for a block since the process began."""

    live: int
    cached: int
    peak: int
    system_calls: int


def memory_stats() -> MemoryStats:
    """What the package's operators hold (tensors they returned and scratch memory), not what torch holds."""
    return MemoryStats(*kernels.memory_stats())


def reset_peak() -> None:
    """Lets `MemoryStats.peak` start anew from what is held now."""
    kernels.reset_memory_peak()


def empty_cache() -> None:
    """Gives kept blocks and scratch memory back to the system. Tensors that somebody holds stay valid."""
    kernels.empty_cache()
