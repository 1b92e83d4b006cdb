"""Writing rows in order to a new file, past the page cache."""

from __future__ import annotations

import contextlib
import errno
import math
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.disk.tables import DiskTable

#: Bytes before the first row, so that it begins with a block.
HEADER_BYTES = 4096
_STAGE_BYTES = 8 << 20


class DiskWriter:
    """Writes the rows of a .npy file one after the other, past the page cache.

    The file is written under another name, and gets its own in `close` once it is whole and on
    disk. The writer is a context: after an error in its block nothing is left. Types that NumPy
    lacks, such as bfloat16, are stored as integers of their width.

    Args:
        path: the file; one that exists is replaced.
        rows: the number of rows that will be written.
        row_shape: the shape of a row.
        dtype: the type of the elements.

    Attributes:
        table: where the rows lie once the file is closed.
        written: rows so far.

    Raises:
        OSError: the file cannot be made; where the disk is full, it says how many bytes are
            missing.
    """

    def __init__(self, path: str | Path, rows: int, row_shape: Sequence[int], dtype: torch.dtype) -> None:
        if rows < 0:
            raise ValueError(f"a file has at least 0 rows, got {rows}")
        self.table = DiskTable(os.fspath(path), HEADER_BYTES, rows, tuple(row_shape), dtype)
        self.written = 0
        self._size = HEADER_BYTES + self.table.nbytes
        self._part = Path(path).with_name(f".{Path(path).name}.part")
        self._on_disk = self._filled = 0
        self._memory = mmap.mmap(-1, _STAGE_BYTES)  # begins with a page, as direct writes want it
        self._stage = torch.frombuffer(self._memory, dtype=torch.uint8)
        self._file, self._is_direct = _create(self._part)
        with self._cleanly():
            _reserve(self._file, self._size)
            self._append(torch.frombuffer(bytearray(_header(self.table)), dtype=torch.uint8))

    def write(self, rows: Tensor) -> None:
        """Appends rows [n, ...] of the file's type and row shape.

        Raises:
            OSError: the disk is full or fails. Nothing is left of the file.
        """
        if (rows.dtype, tuple(rows.shape[1:])) != (self.table.dtype, self.table.row_shape):
            raise ValueError(
                f"rows are {rows.dtype} {list(rows.shape[1:])}, the file has {self.table.dtype} "
                f"{list(self.table.row_shape)}"
            )
        if self.written + len(rows) > self.table.rows:
            raise ValueError(f"row {self.written + len(rows)} comes to a file of {self.table.rows} rows")
        if not rows.numel():
            self.written += len(rows)
            return
        with self._cleanly():
            self._append(rows.detach().contiguous().view(-1).view(torch.uint8))
        self.written += len(rows)

    def close(self) -> None:
        """Waits until the file is on disk and gives it its name. Closing again does nothing.

        Raises:
            ValueError: rows are missing. Nothing is left of the file.
            OSError: the disk is full or fails. Nothing is left of the file.
        """
        if self._file < 0:
            return
        with self._cleanly():
            if self.written != self.table.rows:
                raise ValueError(
                    f"{self.written} of {self.table.rows} rows were written to {self.table.path}"
                )
            self._flush()
            os.ftruncate(self._file, self._size)
            os.fsync(self._file)
            if not self._is_direct:
                _drop(self._file)
            self._part.rename(self.table.path)
        os.close(self._file)
        self._file = -1
        _sync_folder(Path(self.table.path).parent)

    def abandon(self) -> None:
        """Removes what was written. After `close` it does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            self._part.unlink(missing_ok=True)

    def __enter__(self) -> DiskWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()

    def _append(self, bytes_: Tensor) -> None:
        """Copies bytes to the stage, and writes it whenever it is full."""
        begin = 0
        while begin < len(bytes_):
            count = min(len(bytes_) - begin, _STAGE_BYTES - self._filled)
            self._stage[self._filled : self._filled + count].copy_(bytes_[begin : begin + count])
            begin, self._filled = begin + count, self._filled + count
            if self._filled == _STAGE_BYTES:
                self._flush()

    def _flush(self) -> None:
        """Writes the stage, whole blocks: what is too much is cut off in the end."""
        count = math.ceil(self._filled / HEADER_BYTES) * HEADER_BYTES
        done = 0
        while done < count:
            done += os.pwrite(self._file, memoryview(self._memory)[done:count], self._on_disk + done)
        self._on_disk, self._filled = self._on_disk + count, 0

    @contextlib.contextmanager
    def _cleanly(self) -> Iterator[None]:
        """Leaves nothing of the file after an error, and says of a full disk what is missing."""
        if self._file < 0:
            raise ValueError(f"the writer of {self.table.path} is closed")
        try:
            yield
        except OSError as error:
            self.abandon()
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise OSError(error.errno, os.strerror(error.errno or 0), self.table.path) from error
            raise _full(self.table.path, self._size, error.errno) from error
        except BaseException:
            self.abandon()
            raise


def _create(path: Path) -> tuple[int, bool]:
    """Opens a new file for writing. Returns its descriptor, and whether writes are direct."""
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    if direct := getattr(os, "O_DIRECT", 0):
        try:
            return os.open(path, flags | direct, 0o666), True
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    return os.open(path, flags, 0o666), False


def _reserve(file: int, size: int) -> None:
    """Takes the room of a file, so that a full disk is met before anything is written.

    What does not fit is not begun: the disk would be full for others for a moment.
    """
    disk = os.fstatvfs(file)
    if size > disk.f_bavail * disk.f_frsize:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)


def _header(table: DiskTable) -> bytes:
    """Returns the header of a .npy file, version 1.0 (numpy.lib.format describes it)."""
    integer = {1: np.int8, 2: np.int16, 4: np.int32}
    try:
        kind = torch.empty(0, dtype=table.dtype).numpy().dtype
    except TypeError:
        kind = np.dtype(integer[table.dtype.itemsize])
    shape = (table.rows, *table.row_shape)
    text = repr({"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape})
    room = HEADER_BYTES - 10
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", room) + text.encode("latin1").ljust(room - 1) + b"\n"


def _full(path: str, size: int, number: int) -> OSError:
    """Returns the error of a disk that is too small for a file, once the file is removed."""
    disk = os.statvfs(Path(path).parent)
    free = disk.f_bavail * disk.f_frsize
    lacking = f"{max(1, size - free)} bytes are missing on the disk"
    return OSError(number, f"{os.strerror(number)}: the file takes {size} bytes, {lacking}", path)


def _drop(file: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
