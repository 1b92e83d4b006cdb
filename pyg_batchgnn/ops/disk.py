"""Operators of rows in files: reading them past the page cache, and those that stay in memory."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from pyg_batchgnn.ops.checks import check_dense, check_range, check_vector, is_ascending
from pyg_batchgnn.ops.library import kernels, thread_count
from pyg_batchgnn.ops.memory import advise_huge_pages

#: Bytes that all operations under way may take together.
_MOST_MEMORY = 1 << 30


class Requests(enum.IntEnum):
    """How bytes of a file are requested from the system."""

    ANY = 0  # io_uring where the system allows it, else threads
    QUEUE = 1  # io_uring
    THREADS = 2  # a thread for each operation under way


@dataclass(frozen=True)
class RowFile:
    """Where rows of one size lie in a file."""

    offset: int  # the byte where row 0 begins
    row_bytes: int  # the bytes of a row
    rows: int  # the number of rows


@dataclass(frozen=True)
class RunRule:
    """How rows are read together."""

    # Operations are whole blocks; a power of two, at least 512, as direct reads are aligned.
    block: int = 4096
    gap: int = 0  # rows with at most these bytes, of whole blocks, between them are read together
    largest: int = 1 << 18  # bytes of the largest operation, a multiple of ``block``
    depth: int = 32  # the most operations under way

    def __post_init__(self) -> None:
        if self.block < 512 or self.block & (self.block - 1):
            raise ValueError(f"block must be a power of two and at least 512, got {self.block}")
        if self.gap < 0:
            raise ValueError(f"gap must be a number of bytes, got {self.gap}")
        if self.largest < self.block or self.largest % self.block:
            raise ValueError(f"largest must be a multiple of the block of {self.block}, got {self.largest}")
        if self.depth < 1 or self.depth * self.largest > _MOST_MEMORY:
            raise ValueError(
                f"{self.depth} operations of {self.largest} bytes are under way; give at least one, and at "
                f"most {_MOST_MEMORY >> 20} MiB in all"
            )


@dataclass(frozen=True)
class ReadRows:
    """The result of a read."""

    bytes: int  # of the operations, which are whole blocks
    operations: int  # requests to the file
    error: int  # the number of the system's error, 0 without one
    ends: bool  # whether the file ended before all rows were read
    error_at: int  # the byte of the file that could not be read


def read_rows(
    file: int,
    place_in_file: RowFile,
    row: Tensor,
    out: Tensor,
    place: Tensor | None,
    rule: RunRule,
    requests: Requests = Requests.ANY,
) -> ReadRows:
    """Reads rows of an open file into rows of a tensor. Meanwhile the calling thread sleeps, and
    other threads of Python run.

    Args:
        file: the descriptor.
        row: [n] int64, ascending; a row may come several times.
        out: [m, ...] contiguous, of rows of the same size.
        place: [n] int64, the row of ``out`` for each of them; None: the first n.

    Returns:
        The counts, or the error. After an error some rows of ``out`` are not written.
    """
    _check_rows(place_in_file, row)
    check_dense("out", out)
    if not out.is_contiguous() or out.dim() == 0:
        raise ValueError(f"out must be a contiguous table, got shape {list(out.shape)}; call .contiguous()")
    if len(out) and out.nbytes != len(out) * place_in_file.row_bytes:
        raise ValueError(
            f"out has rows of {out.nbytes // len(out)} bytes, the file has {place_in_file.row_bytes}"
        )
    if place is not None:
        check_vector("place", place, (torch.int64,))
        if place.numel() != row.numel():
            raise ValueError(f"{place.numel()} places for {row.numel()} rows; give one for each")
        check_range("place", place, len(out), "rows of out")
    elif row.numel() > len(out):
        raise ValueError(f"{row.numel()} rows do not fit {len(out)} rows of out")
    if not out.is_inference():
        increment_version(out)
    size, operations, error, error_at = kernels.disk_read_rows_(
        *(file, place_in_file.offset, place_in_file.row_bytes, row, out.detach(), place),
        *(rule.block, rule.gap, rule.largest, rule.depth, int(requests)),
    )
    return ReadRows(size, operations, max(error, 0), error < 0, error_at)


def count_operations(place_in_file: RowFile, row: Tensor, rule: RunRule) -> tuple[int, int]:
    """Returns (number, bytes) of the read operations that `read_rows` would make for ``row``."""
    _check_rows(place_in_file, row)
    return kernels.disk_count_operations(
        place_in_file.offset, place_in_file.row_bytes, row, rule.block, rule.gap, rule.largest
    )


def direct_block(file: int) -> int:
    """Returns the alignment in bytes for direct reads of an open file; 0 if it has none."""
    return kernels.disk_block(file)


def _check_rows(place_in_file: RowFile, row: Tensor) -> None:
    if place_in_file.row_bytes < 1 or place_in_file.offset < 0:
        raise ValueError(f"a file has rows of at least one byte from byte 0 on, got {place_in_file}")
    check_vector("row", row, (torch.int64,))
    if not row.numel():
        return
    if not is_ascending(row):
        raise ValueError("row must ascend; sort it, and give the places of the rows in that order")
    if row[0] < 0 or row[-1] >= place_in_file.rows:
        bad = int(row[0] if row[0] < 0 else row[-1])
        raise IndexError(f"row holds {bad}, but rows of the file go from 0 to {place_in_file.rows - 1}")


# Rows that stay in memory #########################################################################

# Their arguments come from the fetcher alone, whose rows were checked when they were sampled.


#: The next use of a row that is not needed again.
NEVER = 2**31 - 1
#: The slot of a row that is not in memory.
NO_SLOT = -1


@dataclass(frozen=True, eq=False)
class SweepReading:
    """The rows to read before a unit (the minibatches of a fetch group)."""

    rows: Tensor  # [m] int64, rows of the file, ascending
    slots: Tensor  # [m] int64, where they go
    unit: Tensor | None  # [n] int64, the slot of each of the unit's rows; None if there are too few
    evicts: bool  # True if some of the slots were those of other rows


def next_uses(rows: int) -> Tensor:
    """Returns [rows] int32, the number of the next unit that uses each row: `NEVER` for all."""
    return _looked_up(rows).fill_(NEVER)


def _looked_up(rows: int) -> Tensor:
    # Entries are looked up one by one. The memory is not kept for reuse.
    out = torch.empty(rows, dtype=torch.int32)
    advise_huge_pages(out)
    return out


def note_use(next_use: Tensor, rows: Tensor, number: int) -> Tensor:
    """Sets ``next_use[rows] = number``, for distinct rows [n] int32 or int64 that unit ``number``
    uses. Returns the old values, [n] int32."""
    return kernels.note_use_(next_use, rows, number)


class RowStates:
    """Which rows of a file are in memory, in which slot, when each is used next, and which may be
    replaced. Units use rows one after the other.

    Args:
        rows: the number of rows, below 2**31.
        capacity: the number of slots.
    """

    def __init__(self, rows: int, capacity: int) -> None:
        if not (0 <= rows < NEVER and 0 <= capacity < NEVER):
            raise ValueError(f"{rows} rows with {capacity} slots: both must be from 0 to {NEVER - 1}")
        self._next = next_uses(rows)
        self.slot = _looked_up(rows).fill_(NO_SLOT)
        self._state = kernels.sweep_new(capacity)

    def begin(self, first: Tensor, number: int, period: int, in_use: Sequence[Tensor]) -> None:
        """Begins a sequence of units.

        Args:
            first: [rows] int32, the number of the first unit that uses each row, or `NEVER`. It is
                written to from now on.
            number: the number of the first unit.
            period: the number of units in a sweep over the file.
            in_use: for each unit in use its rows, [n] int64.
        """
        self._next = first
        kernels.sweep_begin_(self._state, first, self.slot, number, period, list(in_use))

    def extend(self, first: Tensor, last: int, in_use: Sequence[Tensor]) -> None:
        """Appends a sequence of units. ``last``: the latest unit that was prepared. The other
        arguments are as in `begin`."""
        kernels.sweep_extend_(self._state, self._next, self.slot, first, last, list(in_use))

    def retire(self, rows: Tensor, following: Tensor, last: int) -> None:
        """Frees the rows of a unit that is no longer in use, given as in `prepare`. Rows that a
        unit up to ``last``, the latest prepared one, uses after it stay."""
        kernels.sweep_retire_(self._state, rows, following, last)

    def prepare(self, rows: Tensor, following: Tensor, number: int) -> SweepReading:
        """Returns the rows to read before a unit. ``rows``: [n] int64 rows that it uses, ascending.
        ``following``: [n] int32, the next unit that uses each, or `NEVER`."""
        state = self._state, self._next, self.slot
        read, slots, unit, fits, evicts = kernels.sweep_prepare_(*state, rows, following, number)
        return SweepReading(read, slots, unit if fits else None, evicts)


def move_rows(source: Tensor, row: Tensor, out: Tensor, place: Tensor) -> None:
    """Sets ``out[place[i]] = source[row[i]]``, for contiguous [n, ...] and [m, ...] of one dtype
    and row shape, and [k] int64 rows. No place occurs twice."""
    kernels.move_rows(source, row, out, place, thread_count())


def lease_rows(table: Tensor, first: int, outstanding: Tensor) -> Tensor:
    """Returns ``table[first:]`` of a contiguous table as a tensor that keeps the table alive and is
    counted: ``outstanding``, [1] int32, is one higher as long as it or any view of it lives. Leases
    at the same time have different ``first``."""
    return kernels.lease_rows(table, first, outstanding)
