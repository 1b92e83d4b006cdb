"""Reads lists of edges from files, some edges at a time, without mapping them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyg_batchgnn.data.errors import broken
from pyg_batchgnn.data.files.npy import NpyHeader, check_size, header_of, read_elements
from pyg_batchgnn.data.parquet import ENDS, columns_of_edges, count_rows, parquet_pieces


@dataclass(frozen=True)
class EdgeReader:
    """A list of edges in files, to be read in pieces."""

    files: Sequence[Path]
    num_edges: int
    #: yields (sources, targets) of successive edges, at most as many as its argument
    pieces: Callable[[int], Iterator[tuple[np.ndarray, np.ndarray]]]
    columns: Sequence[str] = ()  # of Parquet files: the columns that are attributes of edges


def list_reader(path: Path) -> EdgeReader:
    """Reads `edge_index.npy` [2, E], in C or in Fortran order."""
    header = _header(path, "edge_index")
    if len(header.shape) != 2 or header.shape[0] != 2:
        raise broken(path, "edge_index", f"shape is {list(header.shape)}, expected [2, any]", "store it so")
    edges = header.shape[1]

    def pieces(size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for first in range(0, edges, size):
            count = min(size, edges - first)
            if header.fortran_order:
                pairs = read_elements(path, "edge_index", header, 2 * first, 2 * count).reshape(count, 2)
                yield np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
            else:
                source = read_elements(path, "edge_index", header, first, count)
                yield source, read_elements(path, "edge_index", header, edges + first, count)

    return EdgeReader((path,), edges, pieces)


def column_reader(*files: Path) -> EdgeReader:
    """Reads `src.npy` [E] and `dst.npy` [E]."""
    headers = [_header(path, path.stem) for path in files]
    shapes = [header.shape for header in headers]
    if shapes[0] != shapes[1] or len(shapes[0]) != 1:
        fact = f"shape is {list(shapes[1])}, src.npy has {list(shapes[0])}"
        raise broken(files[1], "dst", fact, "both must be [E]")
    edges = shapes[0][0]

    def pieces(size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for first in range(0, edges, size):
            count, ends = min(size, edges - first), zip(files, headers, strict=True)
            source, target = (read_elements(path, path.stem, header, first, count) for path, header in ends)
            yield source, target

    return EdgeReader(files, edges, pieces)


def parquet_reader(files: Sequence[Path]) -> EdgeReader:
    """Reads the columns `src` and `dst` of Parquet files, file after file."""

    def pieces(size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for piece in parquet_pieces(files, ENDS, size):
            yield piece[ENDS[0]], piece[ENDS[1]]

    return EdgeReader(tuple(files), count_rows(files), pieces, columns_of_edges(files))


def _header(path: Path, array: str) -> NpyHeader:
    header = header_of(path, array)
    if header.dtype.kind not in "iu":
        raise broken(path, array, f"dtype is {header.dtype}, expected int32 or int64", "store integers")
    check_size(path, array, header)
    return header
