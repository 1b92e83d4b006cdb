"""Gives memory that nothing uses any more back to the system."""

from __future__ import annotations

import ctypes

from pyg_batchgnn import ops

#: Bytes of free memory that are worth a call; less is reused faster than given back.
MUCH = 16 << 20


class _MallocState(ctypes.Structure):
    _fields_ = [("other", ctypes.c_size_t * 8), ("free", ctypes.c_size_t), ("top", ctypes.c_size_t)]


def release_memory() -> None:
    """Gives free memory back to the system: the operators' blocks and the C library's, which both
    keep it for the next call. The graphs of a multilevel cut differ in size, so it would add to
    what is in use. Less than `MUCH` is left alone."""
    if ops.memory_stats().cached + _free_bytes() < MUCH:
        return
    ops.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


def _free_bytes() -> int:
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)  # glibc's, from 2.33 on
    if ask is None:
        return 1 << 62
    ask.restype = _MallocState
    return int(ask().free)
