"""Reads the raw files of OGB: tables of CSV, archives of arrays, and splits of links."""

from __future__ import annotations

import gzip
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from pyg_batchgnn.data.errors import DatasetError, broken, missing
from pyg_batchgnn.data.files.npy import NpyHeader, read_header

PIECE_BYTES = 1 << 24  # bytes that are read at a time
_AGAIN = "download the data set again"


def read_csv_gz(path: Path, array: str, dtype: np.dtype | type, columns: int | None = None) -> np.ndarray:
    """Returns a whole table, [rows, columns]; arguments and errors as in `csv_gz_pieces`."""
    pieces = list(csv_gz_pieces(path, array, dtype, columns))
    return np.concatenate(pieces) if pieces else np.empty((0, columns or 1), dtype)


def csv_gz_pieces(
    path: Path, array: str, dtype: np.dtype | type, columns: int | None = None, piece_bytes: int = PIECE_BYTES
) -> Iterator[np.ndarray]:
    """Yields the rows of a table of numbers, gzipped CSV without a header, in arrays [rows,
    columns] of about `piece_bytes` of text each. ``columns``: None: as in the first row. "nan" is
    NaN. Raises `DatasetError`, also for empty fields."""
    if not path.is_file():
        raise missing(path, array, _AGAIN)
    first = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8") as stream, warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # NumPy's about a fraction for an integer
            while lines := stream.readlines(piece_bytes):
                values = np.loadtxt(lines, dtype, delimiter=",", comments=None, ndmin=2)
                columns = values.shape[1] if columns is None else columns
                if values.shape[1] != columns:
                    raise ValueError(f"there are {values.shape[1]} columns, expected {columns}")
                first += len(values)
                yield values
    except (EOFError, OSError, zlib.error) as error:
        raise broken(path, array, f"truncated or damaged gzip ({error})", _AGAIN) from error
    except (ValueError, DeprecationWarning) as error:
        fact = f"among the rows from {first} on: {str(error).partition(';')[0]}"
        raise broken(path, array, fact, _AGAIN) from error


class NpzMember:
    """An array of an open .npz archive, streamed, so that it may be larger than memory."""

    def __init__(self, path: Path, array: str, stream: IO[bytes]) -> None:
        self.path = path
        self.array = array
        self.header: NpyHeader = read_header(stream, path, array)
        self._stream = stream

    def pieces(self, piece_bytes: int = PIECE_BYTES) -> Iterator[np.ndarray]:
        """Yields the elements in order, in flat arrays; the first index varies slowest."""
        if self.header.fortran_order and len(self.header.shape) > 1:
            raise broken(self.path, self.array, "is stored in Fortran order", "save the array in C order")
        yield from self._pieces(piece_bytes)

    def _pieces(self, piece_bytes: int) -> Iterator[np.ndarray]:
        itemsize = self.header.dtype.itemsize
        left = self.header.nbytes
        while left:
            text = self._stream.read(min(left, piece_bytes // itemsize * itemsize))
            if not text or len(text) % itemsize:
                fact = f"ends {left} bytes before what its header promises"
                raise broken(self.path, self.array, fact, _AGAIN)
            left -= len(text)
            yield np.frombuffer(text, self.header.dtype)
        if self._stream.read(1):
            raise broken(self.path, self.array, "is longer than its header promises", _AGAIN)

    def read(self) -> np.ndarray:
        pieces = list(self._pieces(PIECE_BYTES))
        flat = np.concatenate(pieces) if pieces else np.empty(0, self.header.dtype)
        return flat.reshape(self.header.shape, order="F" if self.header.fortran_order else "C")


@contextmanager
def open_member(path: Path, array: str) -> Iterator[NpzMember]:
    """Opens an array of a .npz archive, as a context. Errors of reading in the block become a
    `DatasetError` that names file and array."""
    if not path.is_file():
        raise missing(path, array, _AGAIN)
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if f"{array}.npy" not in names:
                present = [name.removesuffix(".npy") for name in names]
                raise broken(path, array, f"no such array, the archive has {present}", _AGAIN)
            with archive.open(f"{array}.npy") as stream:
                yield NpzMember(path, array, stream)
    except DatasetError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise broken(path, array, f"truncated or damaged archive ({error})", _AGAIN) from error


_reconstruct: Any = np.array([0]).__reduce__()[0]


def _no_bytes() -> bytes:
    """Returns the contents of an empty array, for which a pickle calls ``bytes()``."""
    return b""


#: All that a pickle of an array of numbers names. NumPy 1 and 2 name the first one differently.
_ALLOWED: list[Any] = [
    (_reconstruct, "numpy.core.multiarray._reconstruct"),
    (_reconstruct, "numpy._core.multiarray._reconstruct"),
    (_no_bytes, "__builtin__.bytes"),
    (_no_bytes, "builtins.bytes"),
    np.ndarray,
    np.dtype,
    *{type(np.dtype(code)) for code in "?bhilqBHILQefd"},
]


def read_split_file(path: Path) -> dict[str, np.ndarray]:
    """Returns the NumPy arrays by name in a file of `torch.save`. Raises `DatasetError`."""
    name = path.stem
    if not path.is_file():
        raise missing(path, name, _AGAIN)
    try:
        with torch.serialization.safe_globals(_ALLOWED):
            found = torch.load(path, weights_only=True)
    except Exception as error:  # a damaged pickle may raise anything
        raise broken(path, name, f"not a dict of NumPy arrays ({_reason(error)})", _AGAIN) from error
    if not isinstance(found, dict) or not all(
        type(one) is np.ndarray and one.dtype.kind in "iufb" for one in found.values()
    ):
        raise broken(path, name, "not a dict of NumPy arrays", _AGAIN)
    return {str(key): values for key, values in found.items()}


def _reason(error: Exception) -> str:
    text = str(error).rpartition("WeightsUnpickler error:")[2].strip()
    return text.splitlines()[0] if text else type(error).__name__
