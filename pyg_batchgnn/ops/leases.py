"""Rows of a table that is written to again: copied to places, and handed out for a time."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.ops.checks import check_vector
from pyg_batchgnn.ops.library import kernels, thread_count


def move_rows(source: Tensor, row: Tensor, out: Tensor, place: Tensor) -> None:
    """Sets ``out[place[i]] = source[row[i]]``.

    Args:
        source, out: [n, ...] and [m, ...] of one type and row shape, contiguous.
        row, place: [k] int64 in [0, n) and in [0, m). No place comes twice.
    """
    if source.dtype != out.dtype or source.shape[1:] != out.shape[1:]:
        raise ValueError(
            f"rows of {source.dtype} {list(source.shape[1:])} cannot be put into {out.dtype} "
            f"{list(out.shape[1:])}"
        )
    if not (source.is_contiguous() and out.is_contiguous()):
        raise ValueError("rows are moved between contiguous tables")
    check_vector("row", row, (torch.int64,))
    check_vector("place", place, (torch.int64,))
    kernels.move_rows(source, row, out, place, thread_count())


def lease_rows(table: Tensor, first: int, outstanding: Tensor) -> Tensor:
    """Returns ``table[first:]`` as a tensor that counts how long it lives.

    Args:
        table: [n, ...], contiguous; it lives as long as the lease.
        first: below n. Leases that live at the same time have different ones.
        outstanding: [1] int32, which is one more while the result or any view of it lives.
    """
    if not table.is_contiguous() or not 0 <= first < len(table):
        raise ValueError(f"rows from {first} on cannot be leased of a table of shape {list(table.shape)}")
    check_vector("outstanding", outstanding, (torch.int32,))
    return kernels.lease_rows(table, first, outstanding)
