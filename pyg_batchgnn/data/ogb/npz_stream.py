"""Streams one member of a .npz archive, so that an array larger than memory can be converted."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from pyg_batchgnn.data.errors import DatasetError, broken, missing
from pyg_batchgnn.data.files import NpyHeader, read_header

PIECE_BYTES = 1 << 24
_AGAIN = "download the data set again"


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
        """Yields the elements in order as flat arrays; the first index varies slowest.

        Raises:
            DatasetError: the member ends early or its checksum is wrong.
        """
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
    too.

    Raises:
        DatasetNotFoundError: no such file.
        DatasetError: not an archive (or truncated: its directory is at the end), no such array,
            damaged.
    """
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
