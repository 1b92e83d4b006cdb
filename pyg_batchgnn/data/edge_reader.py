"""Reads lists of edges from files in pieces, which are read and not mapped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from pyg_batchgnn.data.errors import DatasetError, broken
from pyg_batchgnn.data.files import NpyHeader, read_header
from pyg_batchgnn.data.parquet import ENDS, columns_of_edges, count_rows, parquet_pieces


class EdgeReader(Protocol):
    """A list of edges in ``files``."""

    @property
    def files(self) -> Sequence[Path]: ...

    @property
    def num_edges(self) -> int: ...

    def pieces(self, begin: int, end: int, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields sources and destinations of the edges [begin, end), at most ``size`` at a time."""
        ...


class ListReader:
    """Reads `edge_index.npy` [2, E], in C or in Fortran order."""

    def __init__(self, path: Path) -> None:
        self.files = (path,)
        self._header = _header(path, "edge_index")
        shape = self._header.shape
        if len(shape) != 2 or shape[0] != 2:
            raise broken(path, "edge_index", f"shape is {list(shape)}, expected [2, any]", "store it so")
        self.num_edges = shape[1]

    def pieces(self, begin: int, end: int, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        (path,), header = self.files, self._header
        for first in range(begin, end, size):
            count = min(size, end - first)
            if header.fortran_order:
                pairs = _elements(path, "edge_index", header, 2 * first, 2 * count).reshape(count, 2)
                yield np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
            else:
                source = _elements(path, "edge_index", header, first, count)
                yield source, _elements(path, "edge_index", header, self.num_edges + first, count)


class ColumnReader:
    """Reads `src.npy` [E] and `dst.npy` [E]."""

    def __init__(self, source: Path, destination: Path) -> None:
        self.files = (source, destination)
        self._headers = [_header(path, path.stem) for path in self.files]
        shapes = [header.shape for header in self._headers]
        if shapes[0] != shapes[1] or len(shapes[0]) != 1:
            fact = f"shape is {list(shapes[1])}, src.npy has {list(shapes[0])}"
            raise broken(destination, "dst", fact, "both must be [E]")
        self.num_edges = shapes[0][0]

    def pieces(self, begin: int, end: int, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for first in range(begin, end, size):
            count = min(size, end - first)
            ends = zip(self.files, self._headers, strict=True)
            source, target = (_elements(path, path.stem, header, first, count) for path, header in ends)
            yield source, target


class ParquetReader:
    """Reads the columns `src` and `dst` of Parquet files, one file after the other. ``columns``:
    those that are attributes of the edges."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self.columns = columns_of_edges(files)
        self.num_edges = count_rows(files)

    def pieces(self, begin: int, end: int, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for piece in parquet_pieces(self.files, ENDS, begin, size):
            source, target = (piece[name][: end - begin] for name in ENDS)
            yield source, target
            begin += len(source)
            if begin >= end:
                return


def _header(path: Path, array: str) -> NpyHeader:
    with path.open("rb") as stream:
        header = read_header(stream, path, array)
    if header.dtype.kind not in "iu":
        raise broken(path, array, f"dtype is {header.dtype}, expected int32 or int64", "store integers")
    size, wanted = path.stat().st_size, header.offset + header.nbytes
    if size != wanted:
        state = "truncated" if size < wanted else "too long"
        fact = f"file is {state}: {size} bytes, its header promises {wanted}"
        raise broken(path, array, fact, "copy or write the file again")
    return header


def _elements(path: Path, array: str, header: NpyHeader, first: int, count: int) -> np.ndarray:
    try:
        offset = header.offset + first * header.dtype.itemsize
        found = np.fromfile(path, header.dtype, count, offset=offset)
    except OSError as error:
        if isinstance(error, DatasetError):
            raise
        raise broken(path, array, f"cannot be read ({error.strerror})", "check the disk") from error
    if len(found) != count:
        fact = f"ends before element {first + count}, which its header promises"
        raise broken(path, array, fact, "copy or write the file again")
    return found
