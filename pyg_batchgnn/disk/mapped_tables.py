"""Tables that lie in mapped files: which ones do, and where."""

from __future__ import annotations

import mmap
import os
import re
import weakref
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.ops import as_stored


@dataclass(frozen=True)
class DiskTable:
    """Where a table lies in a file: consecutive rows of one size."""

    path: str  # the file
    offset: int  # the byte where the first row begins
    rows: int  # the number of rows
    row_shape: tuple[int, ...]  # the shape of one row
    dtype: torch.dtype  # the type of its elements

    @property
    def row_bytes(self) -> int:
        """The bytes of one row."""
        return self.dtype.itemsize * torch.Size(self.row_shape).numel()

    @property
    def nbytes(self) -> int:
        """The bytes of all rows."""
        return self.rows * self.row_bytes

    @classmethod
    def of(cls, table: Tensor) -> DiskTable | None:
        """Finds the file that a table [rows, ...], or the codes of a `QuantizedTensor`, is mapped
        from. None if the table lies in memory, has gaps between rows, its file has no name any more
        (but see `name_of_file`), or this process has written to its private copy of the pages."""
        table = as_stored(table)
        if table.dim() == 0 or not table.numel() or not table.is_contiguous():
            return None
        begin, end = _range_of(table)
        found = _Mappings().at(begin)
        if found is None or end > found.end or not found.is_there() or _has_written(begin, end):
            return None
        return cls(
            found.file, found.offset + begin - found.begin, len(table), tuple(table.shape[1:]), table.dtype
        )

    def map(self) -> Tensor:
        """Returns the table [rows, ...], mapped. Writes change this process's copy, never the file.
        Raises OSError or ValueError if the file cannot be mapped, or is too short."""
        found = np.memmap(self.path, np.uint8, "c", self.offset, (self.nbytes,))
        return torch.from_numpy(found).view(self.dtype).view(self.rows, *self.row_shape)

    def to_json(self) -> dict[str, Any]:
        """Returns what `from_json` reads."""
        name = str(self.dtype).removeprefix("torch.")
        return {**vars(self), "row_shape": list(self.row_shape), "dtype": name}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> DiskTable:
        """Reads what `to_json` wrote."""
        told = {**said, "row_shape": tuple(said["row_shape"]), "dtype": getattr(torch, said["dtype"])}
        return cls(**told)


# Mapped files #####################################################################################

#: The paths of files without a name in a folder, by device and inode.
_NAMES: dict[tuple[str, int], str] = {}


def name_of_file(descriptor: int, mapped: mmap.mmap) -> None:
    """Lets `DiskTable.of` find an open file without a name, as long as it is mapped."""
    status = os.fstat(descriptor)
    key = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", status.st_ino
    _NAMES[key] = f"/proc/self/fd/{descriptor}"
    weakref.finalize(mapped, _NAMES.pop, key, None)


_MAPS = Path("/proc/self/maps")
#: begin-end permissions offset device inode path
_LINE = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) (\S+) (\d+) *(.*)")
#: Mappings that have a name and an inode but lie in memory: shared memory, memfd, System V.
_IN_MEMORY = (b"/dev/shm/", b"/memfd:", b"/SYSV", b"/dev/zero")


@dataclass(frozen=True)
class _Mapping:
    """A range of addresses that is mapped to a range of a file."""

    begin: int
    end: int
    offset: int  # of the file's byte at ``begin``
    device: str
    inode: int
    path: str

    @property
    def file(self) -> str:
        """The path by which the file is opened."""
        return _NAMES.get((self.device, self.inode), self.path)

    def goes_on_in(self, other: _Mapping) -> bool:
        """Returns whether ``other`` maps the next bytes of the file at the next address."""
        follows = self.end == other.begin and self.offset + other.begin - self.begin == other.offset
        return follows and self.inode == other.inode

    def is_there(self) -> bool:
        """Returns whether the file still has this name, or `name_of_file` gave it one."""
        try:
            return Path(self.file).stat().st_ino == self.inode
        except OSError:
            return False


class _Mappings:
    """The mappings of this process, by address; none if the system does not tell."""

    def __init__(self) -> None:
        self._lines = _MAPS.read_bytes().split(b"\n")[:-1] if _MAPS.exists() else []

    def at(self, address: int) -> _Mapping | None:
        """Returns the file mapping at an address, or None. Linux splits a mapping if the process
        writes to one of its pages; neighbours of one file are joined here."""
        number = bisect_right(self._lines, address, key=lambda line: int(line[: line.index(b"-")], 16)) - 1
        found = self._of_a_file(number)
        if found is None or address >= found.end:
            return None
        first = number - 1
        while (before := self._of_a_file(first)) and before.goes_on_in(found):
            found, first = replace(before, end=found.end), first - 1
        while (after := self._of_a_file(number + 1)) and found.goes_on_in(after):
            found, number = replace(found, end=after.end), number + 1
        return found

    def _of_a_file(self, number: int) -> _Mapping | None:
        """Returns the mapping in a line; None for memory, and before the first or after the last
        line."""
        line = _LINE.match(self._lines[number]) if 0 <= number < len(self._lines) else None
        if line is None or line[5] == b"0" or line[6].startswith(_IN_MEMORY):
            return None
        begin, end, offset = (int(line[at], 16) for at in (1, 2, 3))
        return _Mapping(begin, end, offset, line[4].decode(), int(line[5]), _path_of(line[6]))


def _path_of(told: bytes) -> str:
    """Returns a path from Linux's text, which writes a newline as \\012 but a backslash as it
    is."""
    path = os.fsdecode(told)
    return path if "\\012" not in path or Path(path).exists() else path.replace("\\012", "\n")


_PAGES = Path("/proc/self/pagemap")
#: Bits of a page in the file above: in memory or swapped out, and of a file or shared.
_IS_THERE, _OF_A_FILE = np.uint64(0b11 << 62), np.uint64(1 << 61)
#: Pages that are looked at together: 8 MiB of the file above, 4 GiB of memory.
_TOGETHER = 1 << 20


def is_written(table: Tensor) -> bool:
    """Returns whether this process has written to the private mapping in which a table lies."""
    begin, end = _range_of(as_stored(table))
    return _Mappings().at(begin) is not None and _has_written(begin, end)


def _range_of(table: Tensor) -> tuple[int, int]:
    return table.data_ptr(), table.data_ptr() + table.nbytes


def _has_written(begin: int, end: int) -> bool:
    """Returns whether pages between two addresses are this process's own copies; True if the system
    does not tell."""
    try:
        file = _PAGES.open("rb", buffering=0)
    except OSError:
        return True
    first, last = begin // mmap.PAGESIZE, -(-end // mmap.PAGESIZE)
    with file:
        for page in range(first, last, _TOGETHER):
            file.seek(page * np.dtype(np.uint64).itemsize)
            pages = np.fromfile(file, np.uint64, min(last - page, _TOGETHER))
            if ((pages & _IS_THERE != 0) & (pages & _OF_A_FILE == 0)).any():
                return True
    return False


def is_mapped(tensor: Tensor) -> bool:
    """Returns whether the first byte of a CPU tensor lies in a mapped file."""
    return are_mapped([tensor])[0]


def are_mapped(tensors: Sequence[Tensor]) -> list[bool]:
    """Returns for each CPU tensor whether its first byte lies in a mapped file."""
    if not any(tensor.numel() for tensor in tensors):
        return [False] * len(tensors)
    files = _Mappings()
    return [tensor.numel() > 0 and files.at(as_stored(tensor).data_ptr()) is not None for tensor in tensors]
