"""Reads gzip CSV tables of numbers, without header or index, a piece at a time."""

from __future__ import annotations

import gzip
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pyg_batchgnn.data.errors import broken, missing

PIECE_BYTES = 1 << 24
_AGAIN = "download the data set again"


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
