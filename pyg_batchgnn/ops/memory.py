"""The memory that the package keeps and reuses."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import machine
from pyg_batchgnn.ops.checks import check_dense, check_vector
from pyg_batchgnn.ops.library import kernels


def advise_huge_pages(tensor: Tensor) -> None:
    """Asks the system for huge pages under a CPU tensor, whose values do not change.

    >>> advise_huge_pages(data.x)
    """
    check_dense("tensor", tensor)
    if not tensor.is_contiguous():
        raise ValueError(f"tensor is not contiguous (strides {tensor.stride()}); call .contiguous()")
    kernels.advise_huge_pages(tensor.detach())


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Returns an uninitialised tensor in memory that the package reuses, without page faults."""
    if any(size < 0 for size in shape):
        raise ValueError(f"sizes must not be negative, got {list(shape)}")
    view = kernels.empty_bytes(math.prod(shape) * dtype.itemsize).view(dtype).view(tuple(shape))
    # Autograd adds to a gradient in place only if no other tensor shares its memory, not even the
    # one that a view is of. Torch's storages in Python would share it as well.
    return torch.empty(0, dtype=dtype).set_(view)


@dataclass(frozen=True)
class MemoryStats:
    """The memory of the package's operators."""

    live: int  # bytes of blocks in use
    cached: int  # bytes of blocks that are kept for reuse
    peak: int  # the largest sum of both, in bytes, since `reset_peak`
    system_calls: int  # how often the system was asked for a block since the process began


def memory_stats() -> MemoryStats:
    """Returns the memory of operators' results and scratch space, torch's own left out.

    >>> empty_cache()  # returns what no tensor uses
    >>> memory_stats().cached
    0
    """
    return MemoryStats(*kernels.memory_stats())


def reset_peak() -> None:
    """Sets `MemoryStats.peak` to the memory in use now."""
    kernels.reset_memory_peak()


def empty_cache() -> None:
    """Returns cached blocks and scratch memory to the system. Tensors in use stay valid."""
    kernels.empty_cache()


# Turns ############################################################################################


class Turns:
    """A barrier of several processes through shared memory.

    Args:
        own: [1] int32, in memory that the other processes map, too. Only this process writes it.
        others: [1] int32 each, the words of the other processes.
    """

    def __init__(self, own: Tensor, others: Sequence[Tensor]) -> None:
        for word in (own, *others):
            check_vector("word", word, (torch.int32,))
            if len(word) != 1 or word.data_ptr() % word.itemsize:
                raise ValueError(
                    f"word must be one aligned int32, not {len(word)} numbers at {word.data_ptr():#x}"
                )
        self._own, self._others = own, list(others)

    def announce(self, turn: int) -> None:
        """Announces a turn, any number that ascends. Processes that see it also see all earlier
        writes. The word holds its lowest 32 bits."""
        kernels.announce_turn_(self._own, turn)

    def wait(self, turn: int, seconds: float) -> bool:
        """Waits until every other process has announced this turn or a later one; returns whether
        all have. The wait takes no processor time, lets other threads run, and ends early at a
        signal. No process may be 2^31 turns from ``turn``."""
        return bool(kernels.wait_for_turns(self._others, turn, seconds))


# Amounts ##########################################################################################


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def parse_bytes(text: str) -> int:
    """Returns the number of bytes of a text such as 2GiB, 500MB or 100B. Raises ValueError for
    another text, or a number but 0 without a unit."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(([kmgt]i?)?b?)\s*", text.lower())
    if match is None:
        raise ValueError(f"{text!r} is not a number of bytes; write it like 2GiB, 500MB or 100B")
    amount = float(match[1])
    if amount and not match[2]:
        raise ValueError(f"{text!r} is an amount of memory without a unit; write it like 2GiB, 500MB or 100B")
    return int(amount * {**_UNITS, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}[match[3] or ""])


def number_of_bytes(amount: int | str | None) -> int | None:
    """Returns a number of bytes, which may be a text for `parse_bytes`; None stays None."""
    return parse_bytes(amount) if isinstance(amount, str) else amount


def check_budget(budget: int | str | None) -> int | None:
    """As `number_of_bytes`. Raises ValueError unless the budget is positive."""
    found = number_of_bytes(budget)
    if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
        raise TypeError(f"memory_budget must be a number of bytes or a text like '2GiB', got {budget!r}")
    if found is not None and found < 1:
        raise ValueError(f"memory_budget must be a number of bytes, at least 1, got {budget}")
    return found


def free_bytes() -> int:
    """Returns an eighth of the free memory in bytes, which the package takes by default."""
    return machine.memory().available // 8
