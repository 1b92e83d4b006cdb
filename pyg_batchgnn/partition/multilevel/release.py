"""Memory that nothing uses any more goes back to the system."""

from __future__ import annotations

import ctypes

from pyg_batchgnn import ops


def release_memory() -> None:
    """Returns free memory to the system: the operators' blocks, and that of the C library.

    Both keep what was freed, for the next call. Graphs of every level are of another size, so what
    is kept would come on top of what is in use.
    """
    ops.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
