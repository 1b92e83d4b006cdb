"""Opens .npy files without trusting them: checks header and size, maps, never unpickles."""

from __future__ import annotations

import math
import mmap
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data.errors import DatasetError, broken, missing

# Python names this flag from 3.13 on. Without it Linux refuses to map privately a file larger than
# memory.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


@dataclass(frozen=True)
class NpyHeader:
    """The header of a .npy file.

    Attributes:
        dtype: type of the elements.
        shape: sizes.
        fortran_order: whether the first index varies fastest.
        offset: bytes before the first element.
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran_order: bool
    offset: int

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: IO[bytes], file: str | Path, array: str) -> NpyHeader:
    """Reads and checks the header at the start of a .npy stream (a file, or a member of a .npz).

    Raises:
        DatasetError: not a .npy, a damaged header, or elements that could only be unpickled.
    """
    reread = "write the file again with numpy.save"
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, fortran_order, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise broken(file, array, f".npy format version is {version}, expected (1, 0) or (2, 0)", reread)
    except DatasetError:
        raise
    except Exception as error:  # NumPy parses the header as Python: damage raises anything
        raise broken(file, array, f"not a .npy array ({_one_line(error)})", reread) from error
    if dtype.hasobject:
        fact = f"dtype is {dtype}: Python objects, which could only be unpickled"
        raise broken(file, array, fact, "pickles are never read: save a plain numeric array")
    if dtype.itemsize == 0 or dtype.shape:
        raise broken(file, array, f"dtype in the header is {dtype}, not one of plain numbers", reread)
    if any(type(size) is not int or not 0 <= size < 1 << 63 for size in shape):
        raise broken(file, array, f"shape in the header is {shape}", reread)
    return NpyHeader(dtype, tuple(shape), fortran_order, stream.tell())


def open_npy(path: Path, array: str) -> np.ndarray:
    """Maps a .npy file; the array can be written to without changing the file (copy on write).

    An array in Fortran order or with foreign byte order is copied into memory in C order instead.

    Raises:
        DatasetNotFoundError: no such file.
        DatasetError: not a .npy file, truncated or too long, or an object array.
    """
    if not path.is_file():
        raise missing(path, array, "write it or correct the folder")
    with path.open("rb") as stream:
        header = read_header(stream, path, array)
        size, wanted = path.stat().st_size, header.offset + header.nbytes
        if size != wanted:
            state = "truncated" if size < wanted else "too long"
            fact = f"file is {state}: {size} bytes, its header promises {wanted}"
            raise broken(path, array, fact, "copy or write the file again")
        flags = mmap.MAP_PRIVATE | _MAP_NORESERVE
        mapped = mmap.mmap(stream.fileno(), size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    flat = np.frombuffer(mapped, header.dtype, math.prod(header.shape), header.offset)
    try:
        values = flat.reshape(header.shape, order="F" if header.fortran_order else "C")
    except ValueError as error:  # more dimensions than NumPy has, or larger ones
        fact = f"shape in the header is {list(header.shape)} ({error})"
        raise broken(path, array, fact, "copy or write the file again") from error
    if not values.flags.c_contiguous or not header.dtype.isnative:
        return np.ascontiguousarray(values, header.dtype.newbyteorder("="))
    return values


def as_tensor(values: np.ndarray, file: str | Path, array: str) -> Tensor:
    """Returns an array as a tensor that shares its memory.

    Raises:
        DatasetError: torch has no such type of elements.
    """
    try:
        return torch.from_numpy(values)
    except TypeError as error:
        raise broken(file, array, f"dtype is {values.dtype}", "store numbers or booleans") from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
