"""The pages of a file that the page cache has."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path


def resident(path: str) -> list[bool]:
    """Returns for each page of a file whether the page cache has it."""
    size = Path(path).stat().st_size
    with Path(path).open("r+b") as opened, mmap.mmap(opened.fileno(), size) as mapped:
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(mapped)
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), pages)
        del start
        assert not failed, os.strerror(ctypes.get_errno())
        return [bool(page & 1) for page in pages]


def empty_page_cache(path: str) -> None:
    with Path(path).open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
