"""Writes .npy files in pieces, so that an array need not fit memory nor its length be known."""

from __future__ import annotations

import struct
from pathlib import Path
from types import TracebackType

import numpy as np

from pyg_batchgnn.data.files.file_write import write_bytes, writing

_HEADER_BYTES = 256  # magic, length and text; room for any shape, so that it can be rewritten in place
_COPY_BYTES = 1 << 20


def npy_header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """Returns a version 1.0 .npy header of a fixed length (numpy.lib.format describes it)."""
    text = repr({"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    room = _HEADER_BYTES - 10
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", room) + text.encode("latin1").ljust(room - 1) + b"\n"


class NpyAppender:
    """Writes one .npy file by appending; the number of rows is filled in when it is closed.

    Args:
        path: file to write.
        dtype: type of the elements, to which every piece is converted.
        row: shape of one row, () for a flat array.
    """

    def __init__(self, path: Path, dtype: np.dtype | type, row: tuple[int, ...] = ()) -> None:
        self.dtype = np.dtype(dtype)
        self.row = row
        self.rows = 0
        self._path = path
        with writing(path):
            self._stream = path.open("wb")
            self._stream.write(npy_header(self.dtype, (0, *row)))

    def append(self, piece: np.ndarray) -> None:
        """Appends rows: [n, *row] of any type."""
        if piece.shape[1:] != self.row:
            raise ValueError(f"a piece has rows of shape {piece.shape[1:]}, expected {self.row}")
        write_bytes(self._stream, self._path, np.asarray(piece, self.dtype))
        self.rows += len(piece)

    def __enter__(self) -> NpyAppender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with writing(self._path), self._stream:
            if error is None:
                self._stream.seek(0)
                self._stream.write(npy_header(self.dtype, (self.rows, *self.row)))


class EdgeAppender:
    """Writes edge_index.npy [2, E] by appending edges.

    Sources go straight to their final place; destinations, whose place depends on E, wait in a file
    beside it and are appended when the writer is closed.

    Args:
        path: file to write.
        dtype: int32 or int64.
    """

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
        """Appends edges: source [n] and destination [n]."""
        if source.shape != destination.shape:
            raise ValueError(f"{source.shape} sources but {destination.shape} destinations")
        self.append_sources(source)
        self.append_destinations(destination)

    def append_sources(self, source: np.ndarray) -> None:
        """Appends sources alone; the matching destinations may come any time before the end."""
        write_bytes(self._sources, self._path, np.asarray(source, self.dtype))
        self.edges += len(source)

    def append_destinations(self, destination: np.ndarray) -> None:
        """Appends destinations alone."""
        write_bytes(self._destinations, self._waiting, np.asarray(destination, self.dtype))

    def __enter__(self) -> EdgeAppender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with writing(self._path), self._sources, self._destinations:
            if error is None:
                self._destinations.seek(0)
                while piece := self._destinations.read(_COPY_BYTES):
                    self._sources.write(piece)
                self._sources.seek(0)
                self._sources.write(npy_header(self.dtype, (2, self.edges)))
        self._waiting.unlink(missing_ok=True)
