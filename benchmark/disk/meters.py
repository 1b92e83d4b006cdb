"""Readings beside the jobs: memory, the page cache, and the rate of a file read in order."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from pathlib import Path

import numpy as np

_BLOCK = 1 << 20
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p


class PeakMemory:
    """Samples the resident memory of this process, ``every`` so many seconds."""

    def __init__(self, every: float = 1.0) -> None:
        self.bytes, self.by_kind, self._every = 0, dict[str, int](), every
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def sample(self) -> int:
        """Returns the resident bytes now."""
        lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
        found = {name[:-1]: int(rest[0]) << 10 for name, *rest in lines if name.startswith("Rss")}
        total = sum(found.values())
        if total > self.bytes:
            self.bytes, self.by_kind = total, found
        return total

    def close(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(self._every):
            self.sample()


def cached_pages(path: Path) -> int:
    """Returns how many pages of a file the page cache has."""
    mapped = np.memmap(path, np.uint8, "r")
    pages = np.zeros(-(-mapped.size // mmap.PAGESIZE), np.uint8)
    place = ctypes.c_void_p(mapped.ctypes.data), ctypes.c_size_t(mapped.size)
    if _libc.mincore(*place, ctypes.c_void_p(pages.ctypes.data)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    return int((pages & 1).sum())


def empty_page_cache(path: Path) -> None:
    with path.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def let_go(mapped: np.ndarray, path: Path) -> None:
    """Drops the pages of a file from this process, which has it mapped, and from the page cache."""
    begin = mapped.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
    size = mapped.ctypes.data + mapped.nbytes - begin
    if _libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), mmap.MADV_DONTNEED):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    empty_page_cache(path)


def sequential_rate(path: Path, most: int) -> float:
    """Returns the bytes per second of reading up to ``most`` bytes in order, past the page cache, a
    MiB at a time."""
    count = min(most, path.stat().st_size) // _BLOCK
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    block = mmap.mmap(-1, _BLOCK)  # direct reads want whole pages
    begin = time.perf_counter()
    for number in range(count):
        os.preadv(file, [block], number * _BLOCK)
    seconds = time.perf_counter() - begin
    os.close(file)
    return count * _BLOCK / seconds


def folded_memory(size: int, times: int) -> np.ndarray:
    """Returns [times * size] bytes of which byte i is byte i modulo ``size``, by mapping the same
    memory again and again. Only ``size``, which is whole pages, takes memory."""
    file = os.memfd_create("folded")
    os.ftruncate(file, size)
    first = _map(0, size * times, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    for number in range(times):
        at_this_address = 0x10  # MAP_FIXED
        _map(first + number * size, size, mmap.MAP_SHARED | mmap.MAP_POPULATE | at_this_address, file)
    return np.ctypeslib.as_array((ctypes.c_uint8 * (size * times)).from_address(first))


def _map(address: int, size: int, flags: int, file: int) -> int:
    rights = mmap.PROT_READ | mmap.PROT_WRITE if file >= 0 else 0
    numbers = (ctypes.c_int(rights), ctypes.c_int(flags), ctypes.c_int(file), ctypes.c_long(0))
    found: int = _libc.mmap(ctypes.c_void_p(address), ctypes.c_size_t(size), *numbers)
    if found == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found
