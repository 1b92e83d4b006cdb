"""Tables that lie in mapped files: which ones do, and where."""

from __future__ import annotations

import mmap
import os
import re
import weakref
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
    """The place of a table in a file: rows of one size, one behind the other.

    Attributes:
        path: the file.
        offset: the byte where the first row begins.
        rows: the number of rows.
        row_shape: the shape of one row.
        dtype: the type of its elements.
    """

    path: str
    offset: int
    rows: int
    row_shape: tuple[int, ...]
    dtype: torch.dtype

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
        """Finds the file that a table [rows, ...] is mapped from, or the codes of one.

        Returns:
            None where the table lies in memory, has gaps between its rows, its file has no name any
            more (but see `name_of_file`), or this process has written to its own copy of the file's
            pages.
        """
        table = as_stored(table)
        if table.dim() == 0 or not table.numel() or not table.is_contiguous():
            return None
        begin, end = _range_of(table)
        for one in _file_mappings():
            if one.begin <= begin and end <= one.end and one.is_there() and not _has_written(begin, end):
                shape = tuple(table.shape[1:])
                return cls(one.file, one.offset + begin - one.begin, len(table), shape, table.dtype)
        return None

    def map(self) -> Tensor:
        """Maps the rows [rows, ...]; writing to them changes this process's copy, never the file.

        Raises:
            OSError, ValueError: the file cannot be mapped, or is too short.
        """
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
    """Lets `DiskTable.of` find an open file that has no name in a folder, while it is mapped."""
    status = os.fstat(descriptor)
    key = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", status.st_ino
    _NAMES[key] = f"/proc/self/fd/{descriptor}"
    weakref.finalize(mapped, _NAMES.pop, key, None)


_MAPS = Path("/proc/self/maps")
#: begin-end permissions offset device inode path
_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) (\S+) (\d+) *(.*)")
#: Mappings that have a name and an inode but lie in memory: shared memory, memfd, System V.
_IN_MEMORY = ("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero")


@dataclass(frozen=True)
class _Mapping:
    """A range of addresses that stands for a range of a file."""

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
        """Returns whether another mapping is the next bytes of the file at the next address."""
        follows = self.end == other.begin and self.offset + other.begin - self.begin == other.offset
        return follows and self.inode == other.inode

    def is_there(self) -> bool:
        """Returns whether the file still has this name, or `name_of_file` gave it one."""
        try:
            return Path(self.file).stat().st_ino == self.inode
        except OSError:
            return False


def _file_mappings() -> list[_Mapping]:
    """Returns the mapped files of this process; none where the system does not tell.

    Linux splits a mapping in two where the process has written to one of its pages. Neighbours of
    one file are joined.
    """
    if not _MAPS.exists():
        return []
    found: list[_Mapping] = []
    for line in filter(None, map(_LINE.match, _MAPS.read_text(errors="replace").splitlines())):
        begin, end, offset = (int(line[at], 16) for at in (1, 2, 3))
        if line[5] == "0" or line[6].startswith(_IN_MEMORY):
            continue
        one = _Mapping(begin, end, offset, line[4], int(line[5]), line[6])
        last = found[-1] if found else None
        if last and last.goes_on_in(one):
            found[-1] = replace(last, end=end)
        else:
            found.append(one)
    return found


_SIZES = Path("/proc/self/smaps")
_ANONYMOUS = re.compile(r"Anonymous: +(\d+) kB")


def is_written(table: Tensor) -> bool:
    """Returns whether this process has written to a private mapping that a table lies in.

    What was written is in memory alone: the file has other values.
    """
    begin, end = _range_of(as_stored(table))
    lies_in_files = any(one.begin < end and begin < one.end for one in _file_mappings())
    return lies_in_files and _has_written(begin, end)


def _range_of(table: Tensor) -> tuple[int, int]:
    return table.data_ptr(), table.data_ptr() + table.nbytes


def _has_written(begin: int, end: int) -> bool:
    """Returns whether pages of mapped files between two addresses are this process's own copies.

    The system walks all pages of the process for that, which takes a second for tens of gigabytes.
    """
    if not _SIZES.exists():
        return False
    inside = False
    for line in _SIZES.read_text(errors="replace").splitlines():
        header = _LINE.match(line)
        if header:
            inside = int(header[1], 16) < end and begin < int(header[2], 16) and header[4] != "0"
        elif inside and (pages := _ANONYMOUS.match(line)) and int(pages[1]):
            return True
    return False


def is_mapped(tensor: Tensor) -> bool:
    """Returns whether the first byte of a CPU tensor lies in a mapped file."""
    return are_mapped([tensor])[0]


def are_mapped(tensors: Sequence[Tensor]) -> list[bool]:
    """Returns for each CPU tensor whether its first byte lies in a mapped file.

    Such a file may be larger than memory. Linux tells so in ``/proc/self/maps``, which is read
    once; elsewhere the answers are no.
    """
    if not any(tensor.numel() for tensor in tensors):
        return [False] * len(tensors)
    files = _file_mappings()
    return [
        tensor.numel() > 0 and any(one.begin <= as_stored(tensor).data_ptr() < one.end for one in files)
        for tensor in tensors
    ]
