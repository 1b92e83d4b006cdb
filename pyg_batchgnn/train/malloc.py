"""Tells the C library's allocator to keep the memory that training frees.

Each step allocates and frees the same few hundred megabytes. By default glibc hands large blocks back to the
system at once, and every step pays again for the page faults. `mallopt` only changes this process, and only
the trainer calls it: importing the package never does.
"""

from __future__ import annotations

import ctypes
import sys

from pyg_batchgnn.train.config import Malloc

# Parameter numbers from glibc's <malloc.h>.
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3

_NEVER_TRIM = -1
_LARGEST_INT = 2**31 - 1
_TOP_PAD_BYTES = 64 * 2**20


def configure_malloc(choice: Malloc) -> bool:
    """Apply `choice` to this process; True where memory is now kept.

    Blocks below 2 GiB come from the heap instead of a mapping of their own, the heap is never trimmed, and it
    grows by 64 MiB at a time. Does nothing on systems without glibc.
    """
    if choice is Malloc.DEFAULT or not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    settings = (
        (_M_MMAP_THRESHOLD, _LARGEST_INT),
        (_M_TRIM_THRESHOLD, _NEVER_TRIM),
        (_M_TOP_PAD, _TOP_PAD_BYTES),
    )
    accepted = [mallopt(parameter, value) == 1 for parameter, value in settings]
    return all(accepted)
