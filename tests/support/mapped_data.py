"""Graphs whose attributes lie in mapped files, and what the page cache has of files."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


def mapped(table: Tensor, path: Path) -> Tensor:
    words = table.view(torch.int16) if table.dtype is torch.bfloat16 else table
    np.save(path, words.numpy())
    return torch.from_numpy(np.load(path, mmap_mode="c")).view(table.dtype)


def with_files(data: Any, folder: Path, names: tuple[str, ...] = ("x", "edge_attr")) -> Any:
    """Returns a ``Data`` or ``HeteroData`` with the attributes of these names in mapped files."""
    found = data.clone()
    for number, store in enumerate(found.stores):
        for name in names:
            if name in store:
                store[name] = mapped(store[name], folder / f"{name}-{number}.npy")
    return found


def resident(path: str) -> list[bool]:
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
