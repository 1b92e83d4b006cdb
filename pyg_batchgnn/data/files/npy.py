"""Reads and writes .npy files: headers and sizes are checked, nothing is unpickled."""

from __future__ import annotations

import hashlib
import math
import mmap
import re
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data.errors import DatasetError, broken, missing
from pyg_batchgnn.data.files.durable import check_sha256, file_sha256, write_bytes, writing

#: Python names this flag from 3.13 on. Without it Linux refuses to map privately a file larger than
#: memory.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


@dataclass(frozen=True)
class NpyHeader:
    dtype: np.dtype  # the elements' dtype
    shape: tuple[int, ...]
    fortran_order: bool  # True: the first index varies fastest
    offset: int  # bytes before the first element

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: IO[bytes], file: str | Path, array: str) -> NpyHeader:
    """Reads the header at the start of a .npy stream (a file, or a member of a .npz). Raises
    `DatasetError` if it is damaged, or elements are pickled. ``file``, ``array``: named in it."""
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
        said = " ".join(str(error).split())[:200]
        raise broken(file, array, f"not a .npy array ({said})", reread) from error
    if dtype.hasobject:
        fact = f"dtype is {dtype}: Python objects, which could only be unpickled"
        raise broken(file, array, fact, "pickles are never read: save a plain numeric array")
    if dtype.itemsize == 0 or dtype.shape:
        raise broken(file, array, f"dtype in the header is {dtype}, not one of plain numbers", reread)
    if any(type(size) is not int or not 0 <= size < 1 << 63 for size in shape):
        raise broken(file, array, f"shape in the header is {shape}", reread)
    return NpyHeader(dtype, tuple(shape), fortran_order, stream.tell())


def header_of(path: Path, array: str) -> NpyHeader:
    with path.open("rb") as stream:
        return read_header(stream, path, array)


def read_elements(path: Path, array: str, header: NpyHeader, first: int, count: int) -> np.ndarray:
    """Returns ``count`` elements from position ``first`` on, flat, in the file's order. They are
    read, not mapped: a file larger than memory leaves nothing in the process."""
    try:
        found = np.fromfile(path, header.dtype, count, offset=header.offset + first * header.dtype.itemsize)
    except OSError as error:
        raise broken(path, array, f"cannot be read ({error.strerror})", "check the disk") from error
    if len(found) != count:
        fact = f"ends before element {first + count}, which its header promises"
        raise broken(path, array, fact, "copy or write the file again")
    return found if header.dtype.isnative else found.astype(header.dtype.newbyteorder("="))


def check_size(path: Path, array: str, header: NpyHeader) -> None:
    """Raises `DatasetError` unless the file has as many bytes as its header promises."""
    size, wanted = path.stat().st_size, header.offset + header.nbytes
    if size != wanted:
        state = "truncated" if size < wanted else "too long"
        fact = f"file is {state}: {size} bytes, its header promises {wanted}"
        raise broken(path, array, fact, "copy or write the file again")


def open_npy(path: Path, array: str) -> np.ndarray:
    """Maps a .npy file, copy on write; Fortran order and foreign byte order are copied to C order.
    Raises `DatasetError`, naming ``array``, if the file is missing or damaged."""
    if not path.is_file():
        raise missing(path, array, "write it or correct the folder")
    with path.open("rb") as stream:
        header = read_header(stream, path, array)
        check_size(path, array, header)
        flags = mmap.MAP_PRIVATE | _MAP_NORESERVE
        mapped = mmap.mmap(stream.fileno(), 0, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
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
    """Returns a tensor that shares the array's memory. Raises `DatasetError` if torch lacks the
    dtype. ``file``, ``array``: the names in the error."""
    try:
        return torch.from_numpy(values)
    except TypeError as error:
        raise broken(file, array, f"dtype is {values.dtype}", "store numbers or booleans") from error


#: Bytes of magic, length and text, with room for any shape, so that it can be rewritten.
_HEADER_BYTES = 256


def npy_header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """Returns a version 1.0 .npy header, always of 256 bytes (see numpy.lib.format)."""
    text = repr({"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    room = _HEADER_BYTES - 10
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", room) + text.encode("latin1").ljust(room - 1) + b"\n"


class NpyAppender:
    """Writes one .npy file by appending rows, as a context. ``row``: the shape of a row. ``dtype``:
    of NumPy or torch. ``rows``: how many will come; the file is then hashed while it is written.
    None: closing fills the number in."""

    def __init__(
        self,
        path: Path,
        dtype: np.dtype | type | torch.dtype,
        row: tuple[int, ...] = (),
        rows: int | None = None,
    ) -> None:
        self.row = row
        self.rows = 0
        if isinstance(dtype, torch.dtype):
            self.dtype = torch.empty(0, dtype=stored_dtype(dtype)).numpy().dtype
            self._type = _name(dtype)
        else:
            self.dtype = np.dtype(dtype)
            self._type = self.dtype.name
        self._path, self._expected, self._digest = path, rows, hashlib.sha256()
        with writing(path):
            self._stream = path.open("wb")
        self._write(np.frombuffer(npy_header(self.dtype, (rows or 0, *row)), np.uint8))

    def append(self, piece: np.ndarray) -> None:
        """Appends [n, *row] values. Raises `ValueError` for other shapes."""
        if piece.shape[1:] != self.row:
            raise ValueError(f"a piece has rows of shape {piece.shape[1:]}, expected {self.row}")
        self._write(np.asarray(piece, self.dtype))
        self.rows += len(piece)

    def _write(self, values: np.ndarray) -> None:
        write_bytes(self._stream, self._path, values)
        if self._expected is not None:
            self._digest.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)

    def promise(self) -> ArrayPromise:
        """Returns what META.json promises of the file, once it is closed."""
        digest = file_sha256(self._path) if self._expected is None else self._digest.hexdigest()
        return ArrayPromise(self._type, (self.rows, *self.row), digest)

    def __enter__(self) -> NpyAppender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with writing(self._path), self._stream:
            if error is None and self._expected is None:
                self._stream.seek(0)
                self._stream.write(npy_header(self.dtype, (self.rows, *self.row)))
        if error is None and self._expected not in (None, self.rows):
            raise ValueError(f"{self._path}: {self.rows} rows came, expected {self._expected}")


class EdgeAppender:
    """Writes edge_index.npy [2, E] by appending edges, as a context. Destinations come behind all
    sources, so they wait in a second file until it is closed."""

    def __init__(self, path: Path, dtype: np.dtype | type) -> None:
        self.dtype = np.dtype(dtype)
        self.edges = 0
        self._waiting = path.with_name(path.name + ".destinations")
        self._path = path
        with writing(path):
            self._sources = path.open("wb")
            self._destinations = self._waiting.open("wb+")
            self._sources.write(npy_header(self.dtype, (2, 0)))

    def append(self, source: np.ndarray, destination: np.ndarray) -> None:
        if source.shape != destination.shape:
            raise ValueError(f"{source.shape} sources but {destination.shape} destinations")
        self.append_sources(source)
        self.append_destinations(destination)

    def append_sources(self, source: np.ndarray) -> None:
        """Appends sources only; their destinations may be appended any time later."""
        write_bytes(self._sources, self._path, np.asarray(source, self.dtype))
        self.edges += len(source)

    def append_destinations(self, destination: np.ndarray) -> None:
        write_bytes(self._destinations, self._waiting, np.asarray(destination, self.dtype))

    def __enter__(self) -> EdgeAppender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with writing(self._path), self._sources, self._destinations:
            if error is None:
                self._destinations.seek(0)
                while piece := self._destinations.read(1 << 20):
                    self._sources.write(piece)
                self._sources.seek(0)
                self._sources.write(npy_header(self.dtype, (2, self.edges)))
        self._waiting.unlink(missing_ok=True)


META_FILE = "META.json"
#: Files of more bytes are hashed only when the whole folder is verified, not when opened.
CHECKSUM_BYTES = 1 << 30

_ANEW = "restore it or make the folder again"
_REMEDY = f"the file was altered or belongs to another folder: {_ANEW}"
#: Dtypes that NumPy lacks are stored as integers of their width.
_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)
_STORED_AS = {torch.bfloat16: torch.int16, **dict.fromkeys(_FLOAT8, torch.int8)}


@dataclass(frozen=True)
class ArrayPromise:
    """What META.json says about the file of one array."""

    dtype: str  # torch's name of the dtype; one that NumPy lacks (bfloat16) is stored as integers
    shape: tuple[int, ...]
    sha256: str  # checksum of the whole file, 64 hexadecimal digits

    def to_json(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "shape": list(self.shape), "sha256": self.sha256}

    @classmethod
    def from_json(cls, said: Any) -> ArrayPromise:
        dtype, sha256 = str(said["dtype"]), str(said["sha256"])
        if not dtype.isidentifier() or not re.fullmatch("[0-9a-f]{64}", sha256):
            raise ValueError(f"dtype {dtype!r}, sha256 {sha256!r}")
        return cls(dtype, tuple(map(int, said["shape"])), sha256)


def stored_dtype(dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype of the elements in a file: another one if NumPy lacks ``dtype``."""
    return _STORED_AS.get(dtype, dtype)


def write_tensor(path: Path, tensor: Tensor) -> ArrayPromise:
    """Writes a tensor to a .npy file, and returns what META.json promises of it. Raises
    `DatasetError` if it cannot be written."""
    stored = tensor.detach().contiguous().view(stored_dtype(tensor.dtype))
    values = stored.numpy()
    with writing(path), path.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(values))
        write_bytes(stream, path, values)
    return ArrayPromise(_name(tensor.dtype), tuple(tensor.shape), file_sha256(path))


def promise_of(path: Path) -> ArrayPromise:
    """Returns what META.json promises of a file. Raises `DatasetError` if it is no .npy file."""
    header = header_of(path, path.stem)
    return ArrayPromise(header.dtype.name, header.shape, file_sha256(path))


def map_tensor(path: Path, array: str, promise: ArrayPromise) -> Tensor:
    """Maps a .npy file; writing to the tensor changes this process's copy only. Raises
    `DatasetError` if the file is missing, damaged, or not as promised; files of more than 1 GiB are
    not hashed. ``array``: the name in errors."""
    values = open_npy(path, array)
    dtype = getattr(torch, promise.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise broken(path, array, f"{META_FILE} gives it the unknown dtype {promise.dtype!r}", _REMEDY)
    if values.dtype.name != _name(stored_dtype(dtype)):
        fact = f"dtype is {values.dtype}, {META_FILE} says {promise.dtype}"
        raise broken(path, array, fact, _REMEDY)
    tensor = as_tensor(values, path, array)
    if tuple(tensor.shape) != promise.shape:
        fact = f"shape is {list(tensor.shape)}, {META_FILE} says {list(promise.shape)}"
        raise broken(path, array, fact, _REMEDY)
    if path.stat().st_size <= CHECKSUM_BYTES:
        verify_tensor(path, array, promise)
    return tensor.view(dtype)


def verify_tensor(path: Path, array: str, promise: ArrayPromise) -> None:
    """Raises `DatasetError` unless the file is there and has the promised SHA-256."""
    if not path.is_file():
        raise missing(path, array, _ANEW)
    check_sha256(path, array, promise.sha256, META_FILE, _REMEDY)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
