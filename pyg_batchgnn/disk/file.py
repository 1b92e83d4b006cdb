"""An open file whose rows are read past the page cache, and its faults."""

from __future__ import annotations

import errno
import os
import stat
import warnings
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from pyg_batchgnn.ops import ReadRows, Requests, RowFile, RunRule, direct_block, read_rows

#: Reads past the page cache, where the system knows them.
_DIRECT = getattr(os, "O_DIRECT", 0)
#: The file systems (by their device) without direct reads that were warned of.
_warned: set[int] = set()


def _identity(found: os.stat_result) -> tuple[int, int, int, int]:
    """Returns numbers that change if a file is modified, or another file gets its name."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class SourceFile:
    """An open file for reading, which threads may share."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file, self.is_direct = _open(path)
        os.set_blocking(self._file, True)
        found = os.fstat(self._file)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise OSError(errno.EINVAL, "rows are read from plain files only, but this is none", path)
        self._identity = _identity(found)
        self.size, self.device = found.st_size, found.st_dev
        block = direct_block(self._file) if self.is_direct else 0
        self.rule = replace(RunRule(), block=block) if block else RunRule()
        if not block:
            self._read_plainly()

    def read(
        self,
        rows: RowFile,
        row: Tensor,
        out: Tensor,
        place: Tensor | None,
        gap: int,
        requests: Requests = Requests.ANY,
    ) -> ReadRows:
        """Reads rows as `pyg_batchgnn.ops.read_rows` does. Raises OSError, with file and byte, if
        reading failed, or the file was cut or replaced."""
        self._check_identity()
        found = self._try(rows, row, out, place, gap, requests)
        if found.error == errno.EINVAL and self.is_direct:  # of larger blocks than the system says
            self._read_plainly()
            found = self._try(rows, row, out, place, gap, requests)
        if found.ends:
            text = f"the file ends before byte {found.error_at}; it was cut since it was opened"
            raise OSError(errno.EIO, text, self.path)
        if found.error:
            text = f"{os.strerror(found.error)}, at byte {found.error_at} of the file"
            raise OSError(found.error, text, self.path)
        return found

    def _try(
        self, rows: RowFile, row: Tensor, out: Tensor, place: Tensor | None, gap: int, requests: Requests
    ) -> ReadRows:
        rule = replace(self.rule, gap=gap)
        found = read_rows(self._file, rows, row, out, place, rule, requests)
        if not self.is_direct and row.numel():
            begin = rows.offset + int(row[0]) * rows.row_bytes
            end = rows.offset + (int(row[-1]) + 1) * rows.row_bytes
            first, block = begin // rule.block, rule.block
            _advise(self._file, first * block, (end // block + 1 - first) * block, "POSIX_FADV_DONTNEED")
        return found

    def _read_plainly(self) -> None:
        """Reads through the page cache from now on, and drops what was read from it."""
        if self.is_direct:
            os.close(self._file)
            self._file, self.is_direct = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC), False
        self.rule = replace(self.rule, block=RunRule().block)
        _advise(self._file, 0, 0, "POSIX_FADV_RANDOM")
        if self.device not in _warned:
            _warned.add(self.device)
            warnings.warn(
                f"the file system of {self.path} has no direct reads: rows are read by the page cache, which "
                f"is slower and drops these pages of the file from it",
                stacklevel=4,
            )

    def _check_identity(self) -> None:
        if self._file < 0:
            raise ValueError(f"the reader of {self.path} is closed")
        try:
            named = Path(self.path).stat()
        except OSError as error:
            raise OSError(error.errno, "the file was removed since it was opened", self.path) from error
        if _identity(named) != self._identity:
            what = "cut or written to" if named.st_ino == self._identity[1] else "replaced"
            sizes = f": {self.size} bytes then, {named.st_size} now" if named.st_size != self.size else ""
            text = f"the file was {what} since it was opened{sizes}"
            raise OSError(errno.ESTALE, text, self.path)

    def close(self) -> None:
        """Closes the file; may be called again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            os.close(self._file)


def _open(path: str) -> tuple[int, bool]:
    """Opens a file; returns its descriptor, and whether it is open for direct reads."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # opening a FIFO would wait for its writer
    if _DIRECT:
        try:
            return os.open(path, flags | _DIRECT), True
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    return os.open(path, flags), False


def _advise(file: int, offset: int, count: int, advice: str) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, offset, count, getattr(os, advice))
