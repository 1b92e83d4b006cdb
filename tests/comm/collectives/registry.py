"""The cases by name, and the rows that they send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

DTYPES = [
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool),
]
SIZES = (0, 1, 3, 1000, 70_001)


def dtypes() -> list[torch.dtype]:
    """Returns the dtypes that the default group's backend moves. gloo has no int16."""
    return [dtype for dtype in DTYPES if dtype != torch.int16 or dist.get_backend() != "gloo"]


#: Cases by name; `all_cases` runs them in this order.
CASES: dict[str, Callable[[int, int], None]] = {}


def case(function: Callable[[int, int], None]) -> Callable[[int, int], None]:
    CASES[function.__name__] = function
    return function


def rows(rank: int, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Returns small numbers, exact in every dtype, that tell ranks apart."""
    return ((torch.arange(size) * 7 + rank * 3) % 5 + rank % 2).to(dtype)


def same(got: Tensor, wanted: Tensor, what: Any = None) -> None:
    assert got.dtype == wanted.dtype and torch.equal(got, wanted), (
        what,
        got.flatten()[:9],
        wanted.flatten()[:9],
    )
