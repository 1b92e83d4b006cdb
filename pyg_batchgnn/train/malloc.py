"""A setting of the C library's allocator: it keeps the memory that training frees.

Each step allocates and frees the same few hundred megabytes. By default glibc returns large blocks
to the system at once, and every step pays for the page faults again. `mallopt` changes this process
alone. Training and prediction call it; importing the package does not.
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
    """Applies `choice` to this process. Returns whether freed memory is now kept.

    If it is kept, blocks below 2 GiB come from the heap instead of a mapping of their own. The heap
    is never trimmed and grows by 64 MiB at a time. On systems without glibc nothing changes.
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
