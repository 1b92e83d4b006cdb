"""Tables in files without a name: rows of a pass over all nodes that do not fit memory."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from pyg_batchgnn.disk.mapped_tables import DiskTable, name_of_file
from pyg_batchgnn.disk.reader import DiskReader
from pyg_batchgnn.ops import as_stored, rows_like

#: Bytes that are written together.
_BLOCK = 1 << 22
#: Offsets and lengths of direct writes are multiples of it.
_ALIGNMENT = 4096


class ScratchTable:
    """A table in a file, written once in order and then read. The file has no name, so that nothing
    is left behind however the process ends. It takes room in the file system of ``folder`` as long
    as the tensor of `finish`, or a view of it, lives. Raises OSError if the folder cannot be
    written to, or has too little room."""

    def __init__(self, folder: Path, rows: int, row_shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.table = DiskTable(f"{folder}", 0, rows, row_shape, dtype)
        self.written = 0
        size, free = self.table.nbytes, shutil.disk_usage(folder).free
        if size > free:
            raise OSError(
                f"{folder}: a table of {size:,} bytes does not fit memory, and {free:,} bytes are free here; "
                f"free some, or name another folder as scratch"
            )
        self._file = tempfile.TemporaryFile(prefix="pyg_batchgnn-", dir=folder, buffering=0)  # noqa: SIM115
        self._file.truncate(size)
        self._output = _Appender(self._file, folder)

    def append(self, rows: Tensor) -> None:
        """Writes the next rows, [k, ...]. Raises OSError if they cannot be written."""
        expected = self.table.row_shape, self.table.dtype
        if (tuple(rows.shape[1:]), rows.dtype) != expected or self.written + len(rows) > self.table.rows:
            raise ValueError(f"rows {list(rows.shape)} of {rows.dtype} are not the next ones of {self.table}")
        if rows.numel():
            flat = rows.detach().contiguous().view(-1).view(torch.uint8)
            self._output.append(flat.numpy().data)
        self.written += len(rows)

    def finish(self) -> Tensor:
        """Returns the table, mapped from the file, after all rows are written. Writes to the tensor
        change the file."""
        if self.written < self.table.rows:
            raise ValueError(f"{self.written} of {self.table.rows} rows are written")
        self._output.finish(self.table.nbytes)
        mapped = mmap.mmap(self._file.fileno(), self.table.nbytes)
        name_of_file(self._file.fileno(), mapped)
        weakref.finalize(mapped, self._file.close)
        flat = torch.frombuffer(mapped, dtype=self.table.dtype)
        return flat.view(self.table.rows, *self.table.row_shape)


class _Appender:
    """Appends bytes to a file, past the page cache if the file system allows it."""

    def __init__(self, file: IO[bytes], folder: Path) -> None:
        self._descriptor, self._folder, self._end = file.fileno(), folder, 0
        self._direct: int | None = None
        with contextlib.suppress(OSError, AttributeError):
            path = f"/proc/self/fd/{self._descriptor}"
            self._direct = os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
        self._block, self._filled = mmap.mmap(-1, _BLOCK), 0  # begins with a page
        self._finalizer = weakref.finalize(self, _close, self._direct)

    def append(self, data: memoryview) -> None:
        begin = 0
        while begin < len(data):
            count = min(len(data) - begin, _BLOCK - self._filled)
            self._block[self._filled : self._filled + count] = data[begin : begin + count]
            self._filled, begin = self._filled + count, begin + count
            if self._filled == _BLOCK:
                self._write(_BLOCK)

    def finish(self, size: int) -> None:
        """Writes the rest; the file then has ``size`` bytes."""
        if self._filled:
            self._write(-(-self._filled // _ALIGNMENT) * _ALIGNMENT)
        os.ftruncate(self._descriptor, size)
        self._finalizer()
        self._block.close()

    def _write(self, count: int) -> None:
        descriptor, done = self._descriptor if self._direct is None else self._direct, 0
        with memoryview(self._block) as block:
            while done < count:
                try:
                    done += os.pwrite(descriptor, block[done:count], self._end + done)
                except OSError as error:
                    error.filename = f"{self._folder}, the scratch file's byte {self._end + done:,}"
                    raise
        if self._direct is None and hasattr(os, "posix_fadvise"):
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, self._end, count, os.POSIX_FADV_DONTNEED)
        self._end, self._filled = self._end + count, 0


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def read_span(table: Tensor, rows: range, reader: DiskReader | None) -> Tensor:
    """Returns consecutive rows of a table: a view, or with a reader a copy from its file."""
    if reader is None or not len(rows):
        return table[rows.start : rows.stop]
    out = torch.empty((len(rows), *table.shape[1:]), dtype=reader.table.dtype)
    reader.read_range(rows.start, len(rows), out)
    return rows_like(table, out)


def read_rows(table: Tensor, row: Tensor, reader: DiskReader | None) -> Tensor:
    """Returns [n, ...], a copy of rows ``row`` [n] int64 of ``table`` [N, ...], in any order, maybe
    repeated. int8 codes stay codes."""
    if reader is None or not len(row):
        return rows_like(table, as_stored(table).index_select(0, row))
    out = torch.empty((len(row), *table.shape[1:]), dtype=reader.table.dtype)
    ascends = bool((row[1:] > row[:-1]).all())
    if ascends:
        reader.read(row, out)
        return rows_like(table, out)
    distinct, place = torch.unique(row, return_inverse=True)
    found = torch.empty_like(out[: len(distinct)])
    reader.read(distinct, found)
    return rows_like(table, torch.index_select(found, 0, place, out=out))
