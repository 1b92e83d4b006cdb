"""The kernel by which a device reads rows of registered host memory itself.

Only this file imports Triton, and only `Lane.reads_host` leads here.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Words that one program copies, about.
_TILE = 1024
#: A program's columns at most.
_COLUMNS = 128


@triton.jit  # type: ignore[untyped-decorator]
def _copy_rows(  # type: ignore[no-untyped-def]
    out,
    table,
    index,
    cache,
    slot,
    count,
    width,
    CACHED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = row < count
    tile = inside[:, None] & (column < width)[None, :]
    source = tl.load(index + row, mask=inside, other=0).to(tl.int64)
    far = table + source[:, None] * width + column[None, :]
    if CACHED:
        place = tl.load(slot + source, mask=inside, other=-1).to(tl.int64)
        held = (place >= 0)[:, None]
        near = cache + place[:, None] * width + column[None, :]
        words = tl.where(
            held,
            tl.load(near, mask=tile & held, other=0),
            tl.load(far, mask=tile & (place < 0)[:, None], other=0),
        )
    else:
        words = tl.load(far, mask=tile, other=0)
    tl.store(out + row[:, None] * width + column[None, :], words, mask=tile)


def read_rows(
    table: Tensor, index: Tensor, cache: Tensor | None = None, slot: Tensor | None = None
) -> Tensor:
    """Returns ``table[index]`` on the device of ``index``, whatever the dtype.

    Args:
        table: [N, ...], contiguous, in registered host memory or on the device.
        index: [n] int32 or int64 in [0, N), on the device.
        cache: [c, ...] some rows of the table, on the device.
        slot: [N] int32, the row of each of the table's rows in the cache, or -1; with ``cache``.
    """
    out = torch.empty((index.numel(), *table.shape[1:]), dtype=table.dtype, device=index.device)
    if out.numel() == 0:
        return out
    cached = cache is not None and slot is not None and cache.numel() > 0
    near = cache if cached and cache is not None else table
    word = _word(table, near, out)
    width = out.nbytes // index.numel() // word.itemsize
    columns = min(_COLUMNS, triton.next_power_of_2(width))
    rows = max(1, _TILE // columns)
    grid = (triton.cdiv(index.numel(), rows), triton.cdiv(width, columns))
    _copy_rows[grid](
        _words(out, word),
        _words(table, word),
        index,
        _words(near, word),
        slot if cached else index,
        index.numel(),
        width,
        CACHED=cached,
        ROWS=rows,
        COLUMNS=columns,
    )
    return out


def _word(*tables: Tensor) -> torch.dtype:
    """Returns the widest integers of which the rows of all tables consist."""
    row = tables[0][0].nbytes
    for word in (torch.int64, torch.int32, torch.int16):
        size = word.itemsize
        if row % size == 0 and all(one.data_ptr() % size == 0 for one in tables):
            return word
    return torch.int8


def _words(table: Tensor, word: torch.dtype) -> Tensor:
    return table.reshape(-1).view(torch.uint8).view(word)
