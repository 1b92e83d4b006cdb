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
from pyg_batchgnn.data.files import NpyHeader, read_header

#: Bytes that are read at a time.
PIECE_BYTES = 1 << 24
_AGAIN = "download the data set again"


# They are compressed by gzip, hold numbers, and have neither header nor index.


def read_csv_gz(path: Path, array: str, dtype: np.dtype | type, columns: int | None = None) -> np.ndarray:
    """Reads a whole table as [rows, columns]; see `csv_gz_pieces`."""
    pieces = list(csv_gz_pieces(path, array, dtype, columns))
    return np.concatenate(pieces) if pieces else np.empty((0, columns or 1), dtype)


def csv_gz_pieces(
    path: Path, array: str, dtype: np.dtype | type, columns: int | None = None, piece_bytes: int = PIECE_BYTES
) -> Iterator[np.ndarray]:
    """Yields the table's rows in order, as arrays [rows, columns] of about `piece_bytes` of text
    each.

    Args:
        array: what it holds, for errors.
        dtype: int64, or a floating point type (empty fields are errors, "nan" is NaN).
        columns: columns expected; those of the first row without it.
        piece_bytes: bytes of text to parse at a time.

    Raises:
        DatasetNotFoundError: no such file.
        DatasetError: truncated or damaged gzip, a row of another length, or a field that is not a
            number.
    """
    if not path.is_file():
        raise missing(path, array, _AGAIN)
    row = 0
    for text in _whole_lines(path, array, piece_bytes):
        values = _parse(path, array, text, np.dtype(dtype), columns, row)
        columns = values.shape[1]
        row += len(values)
        yield values


def _whole_lines(path: Path, array: str, piece_bytes: int) -> Iterator[bytes]:
    rest = b""
    try:
        with gzip.open(path, "rb") as stream:
            while text := stream.read(piece_bytes):
                text = rest + text.replace(b"\r", b"")
                cut = text.rfind(b"\n") + 1
                rest = text[cut:]
                if cut:
                    yield text[:cut]
    except (EOFError, OSError, zlib.error) as error:
        raise broken(path, array, f"truncated or damaged gzip ({error})", _AGAIN) from error
    if rest:
        yield rest + b"\n"


def _parse(
    path: Path, array: str, text: bytes, dtype: np.dtype, columns: int | None, first_row: int
) -> np.ndarray:
    """Parses whole lines into [rows, columns]; errors count rows from `first_row`."""
    characters = np.frombuffer(text, np.uint8)
    separators = characters[(characters == ord(",")) | (characters == ord("\n"))]
    ends = np.flatnonzero(separators == ord("\n"))
    lengths = np.diff(ends, prepend=-1)
    columns = int(lengths[0]) if columns is None else columns
    wrong = np.flatnonzero(lengths != columns)
    if len(wrong):
        row = int(wrong[0])
        fact = f"row {first_row + row} has {lengths[row]} fields, expected {columns}"
        raise broken(path, array, fact, _AGAIN)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # how older NumPy reports text it cannot parse
            values = np.fromstring(text.replace(b"\n", b","), dtype, sep=",")
    except (ValueError, DeprecationWarning) as error:
        row, field = _first_bad_field(text, dtype)
        raise broken(path, array, f"row {first_row + row} holds {field!r}, not {dtype}", _AGAIN) from error
    return values.reshape(-1, columns)


def _first_bad_field(text: bytes, dtype: np.dtype) -> tuple[int, str]:
    convert = int if dtype.kind == "i" else float
    for row, line in enumerate(text.split(b"\n")):
        for field in line.split(b","):
            try:
                convert(field)
            except ValueError:
                return row, field.decode("ascii", "replace")[:40]
    return 0, "a field"


# One is streamed, so that an array larger than memory can be converted.


class NpzMember:
    """One array of an open .npz archive.

    Attributes:
        header: its type and shape.
    """

    def __init__(self, path: Path, array: str, stream: IO[bytes]) -> None:
        self.path = path
        self.array = array
        self.header: NpyHeader = read_header(stream, path, array)
        self._stream = stream
        if self.header.fortran_order and len(self.header.shape) > 1:
            raise broken(path, array, "is stored in Fortran order", "save the array in C order")

    def pieces(self, piece_bytes: int = PIECE_BYTES) -> Iterator[np.ndarray]:
        """Yields the elements in order as flat arrays; the first index varies slowest."""
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
        pieces = list(self.pieces())
        flat = np.concatenate(pieces) if pieces else np.empty(0, self.header.dtype)
        return flat.reshape(self.header.shape)


@contextmanager
def open_member(path: Path, array: str) -> Iterator[NpzMember]:
    """Opens one array of a .npz archive; errors of reading it inside the `with` name file and array
    too."""
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


# `torch.save` wrote them.

_reconstruct: Any = np.array([0]).__reduce__()[0]


def _no_bytes() -> bytes:
    """Returns the contents of an array without elements, for which a pickle calls ``bytes()``."""
    return b""


#: What a pickle of an array of numbers names. NumPy 1 and 2 name the first one differently.
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
    """Reads a dict of NumPy arrays by name that `torch.save` wrote. torch refuses whatever else the
    file names."""
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
