"""The kernel by which a device reads rows of registered host memory itself.

Only this file imports Triton, and only `CpuLane.reads_host` leads here.
"""

from __future__ import annotations

import threading

import torch
import triton
import triton.language as tl
from torch import Tensor

#: A program's columns at most.
_COLUMNS = 128


#: Programs at most. They keep a bus busy, and leave room on the device for what is computed beside.
_PROGRAMS = 128
#: Neither Triton's interpreter nor its first compilation is for several threads.
_ONE_AT_A_TIME = threading.Lock()


# Counts are no constants of the kernel: it would be compiled again and again.
@triton.jit(do_not_specialize=["count", "tiles", "across"])  # type: ignore[untyped-decorator]
def _copy_rows(  # type: ignore[no-untyped-def]
    out,
    table,
    index,
    cache,
    slot,
    count,
    width,
    tiles,  # of ROWS rows and COLUMNS columns
    across,  # of them beside each other
    CACHED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    for tile in range(tl.program_id(0), tiles, PROGRAMS):
        row = (tile // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        column = (tile % across) * COLUMNS + tl.arange(0, COLUMNS)
        inside = row < count
        mask = inside[:, None] & (column < width)[None, :]
        source = tl.load(index + row, mask=inside, other=0).to(tl.int64)
        far = table + source[:, None] * width + column[None, :]
        if CACHED:
            place = tl.load(slot + source, mask=inside, other=-1).to(tl.int64)
            held = (place >= 0)[:, None]
            near = cache + place[:, None] * width + column[None, :]
            of_cache = tl.load(near, mask=mask & held, other=0)
            words = tl.where(held, of_cache, tl.load(far, mask=mask & (place < 0)[:, None], other=0))
        else:
            words = tl.load(far, mask=mask, other=0)
        tl.store(out + row[:, None] * width + column[None, :], words, mask=mask)


def read_rows(
    table: Tensor, index: Tensor, cache: Tensor | None = None, slot: Tensor | None = None
) -> Tensor:
    """Returns ``table[index]`` on the device of ``index``, for any dtype. ``table``: [N, ...],
    contiguous, in registered host memory or on the device. ``index``: [n] int32 or int64 in [0, N),
    on the device. ``cache``: [c, ...] some rows of the table, on the device. ``slot``: [N] int32,
    each row's place in the cache, or -1."""
    out = torch.empty((index.numel(), *table.shape[1:]), dtype=table.dtype, device=index.device)
    if out.numel() == 0:
        return out
    cached = cache is not None and slot is not None and cache.numel() > 0
    near = cache if cached and cache is not None else table
    word = _word(table, near, out)
    width = out.nbytes // index.numel() // word.itemsize
    columns = min(_COLUMNS, triton.next_power_of_2(width))
    rows = max(1, 1024 // columns)  # about as many words a program
    across = triton.cdiv(width, columns)
    tiles = triton.cdiv(index.numel(), rows) * across
    with _ONE_AT_A_TIME:
        _copy_rows[(min(tiles, _PROGRAMS),)](
            _words(out, word),
            _words(table, word),
            index,
            _words(near, word),
            slot if cached else index,
            index.numel(),
            width,
            tiles,
            across,
            CACHED=cached,
            ROWS=rows,
            COLUMNS=columns,
            PROGRAMS=_PROGRAMS,
        )
    return out


def _word(*tables: Tensor) -> torch.dtype:
    """Returns the widest integer dtype that divides the rows of all tables."""
    row = tables[0][0].nbytes
    for word in (torch.int64, torch.int32, torch.int16):
        size = word.itemsize
        if row % size == 0 and all(one.data_ptr() % size == 0 for one in tables):
            return word
    return torch.int8


def _words(table: Tensor, word: torch.dtype) -> Tensor:
    return table.reshape(-1).view(torch.uint8).view(word)
