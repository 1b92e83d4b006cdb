"""The time that reading takes: measured rates of a disk, and the gap that follows from them."""

from __future__ import annotations

import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.disk.file import SourceFile
from pyg_batchgnn.ops import RowFile, RunRule, count_operations

#: The gaps that are compared, in bytes.
GAPS = (0, *(1 << power for power in range(12, 21)))


@dataclass(frozen=True)
class ReadCost:
    """A gap, and what reading with it takes."""

    gap: int  # bytes; rows with at most that number between their blocks are read together
    bytes: int  # that are read, whole blocks
    operations: int  # requests to the file
    seconds: float  # the time that the rates of the disk predict


@dataclass(frozen=True)
class DiskRates:
    """The time of an operation in a full queue, by its size."""

    sizes: tuple[int, ...]  # bytes, ascending
    seconds: tuple[float, ...]  # of an operation of each size: the time of many, divided by their number

    def __post_init__(self) -> None:
        if not self.sizes or list(self.sizes) != sorted(set(self.sizes)) or self.sizes[0] < 1:
            raise ValueError(f"sizes must ascend from at least one byte, got {self.sizes}")
        if len(self.seconds) != len(self.sizes) or min(self.seconds) <= 0:
            raise ValueError(f"give a time above 0 for each of {len(self.sizes)} sizes, got {self.seconds}")

    @property
    def bytes_per_second(self) -> float:
        """The rate of the largest operations."""
        return self.sizes[-1] / self.seconds[-1]

    def seconds_of(self, size: np.ndarray) -> np.ndarray:
        """Returns the seconds of operations [n] of these bytes as [n] float64.

        Between two sizes the time is on a line; below the first it is the first; above the last it
        grows as the bytes do.
        """
        return np.interp(size, self.sizes, self.seconds) * np.maximum(1, size / self.sizes[-1])

    def plans(self, rows: RowFile, row: Tensor, rule: RunRule) -> list[ReadCost]:
        """Returns what reading rows takes with each of `GAPS`.

        Args:
            rows: where they lie.
            row: [n] int64, ascending.
            rule: how they are read, but for the gap.
        """
        counts = count_operations(rows, row, GAPS, rule).numpy()
        size = np.arange(counts.shape[1]) * rule.block
        seconds = counts @ self.seconds_of(size)
        columns = (GAPS, (counts @ size).tolist(), counts.sum(1).tolist(), seconds.tolist())
        return [ReadCost(*one) for one in zip(*columns, strict=True)]

    def choose_gap(self, rows: RowFile, row: Tensor, rule: RunRule) -> ReadCost:
        """Returns the plan of the least time, of several the one that reads least. Arguments as
        `plans` has them."""
        return min(self.plans(rows, row, rule), key=lambda plan: (plan.seconds, plan.bytes))


#: The rates of a disk in a common server, for files too small to measure: seven microseconds an
#: operation and 1.5 GB per second.
ASSUMED = DiskRates((4096, 1 << 18), tuple(7e-6 + size / 1.5e9 for size in (4096, 1 << 18)))

# Measuring ########################################################################################

#: Bytes of the operations that are measured.
_SIZES = tuple(1 << power for power in (12, 14, 16, 18))
#: Smaller files may lie in caches of the disk whole.
_LEAST_FILE = 64 << 20
_SECONDS_EACH = 0.05
_ROUNDS = 3
#: The seconds of reading after which a disk gives what it gives for long, and how many of the last
#: ones count. Disks of rented machines are often faster for the first gigabytes.
_SUSTAINED = 5.0
_COUNTED = 2.0
#: Bytes of memory that are taken together. The allocator maps as many anew each time.
_PIECE = 64 << 20

#: By device, and by whether reads are direct.
_measured: dict[tuple[int, bool], DiskRates] = {}
_measuring = threading.Lock()


def _unlock() -> None:
    """Gives a forked child a lock of its own: the thread that held the other is not there."""
    global _measuring
    _measuring = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


def rates_of(file: SourceFile) -> DiskRates:
    """Returns the rates of the disk that a file lies on. They are measured on the first file of at
    least 64 MiB that this process reads from the disk, which takes a second. Before that `ASSUMED`
    holds."""
    key = (file.device, file.is_direct)
    with _measuring:
        if key not in _measured and file.size >= _LEAST_FILE:
            _measured[key] = measure_rates(file)
        return _measured.get(key, ASSUMED)


class DiskPace(NamedTuple):
    """Bytes per second by large operations, while this process does other things as well."""

    at_first: float
    kept_up: float  # after some seconds


def pace_of(file: SourceFile, fresh: float = 0.0) -> DiskPace:
    """Returns what the disk of a file gives in one second of reading, and what it keeps up.

    The file is read for five seconds by the largest operations. The first second counts, and the
    last two. A file below 64 MiB is not read; its disk is taken to keep up what `rates_of` says.

    Args:
        fresh: bytes of memory that the system gives meanwhile for each byte that is read. It clears
            them, which takes longer than reading on some virtual machines.
    """
    rates = rates_of(file)
    if file.size < _LEAST_FILE:
        return DiskPace(rates.bytes_per_second, rates.bytes_per_second)
    size, draws = rates.sizes[-1], torch.Generator().manual_seed(0)
    count = int(_COUNTED / 4 / rates.seconds[-1])
    begin, times = time.perf_counter(), list[float]()
    with ThreadPoolExecutor(1) as clearing:
        while not times or time.perf_counter() - begin < _SUSTAINED:
            now = time.perf_counter()
            given = clearing.submit(_give_memory, int(fresh * size * count))
            done = _seconds_of_reads(file, size, count, draws)
            given.result()
            times.append(max(done, (time.perf_counter() - now) / count))
    return DiskPace(*(size * len(some) / sum(some) for some in (times[:2], times[-4:])))


def _give_memory(nbytes: int) -> None:
    """Takes memory from the system, a piece at a time, so that a forecast needs little of it."""
    for at in range(0, nbytes, _PIECE):
        memory = torch.empty(min(_PIECE, nbytes - at), dtype=torch.uint8)
        ops.advise_huge_pages(memory)
        ops.populate(memory)
        del memory


def measure_rates(file: SourceFile, seconds_each: float = _SECONDS_EACH) -> DiskRates:
    """Measures the rates of a disk by reading a file of at least 64 MiB at places all over it.

    Every size is measured in several rounds, and the least time of a size counts: other processes
    that use the disk for a moment do not make it slow for good.

    Args:
        seconds_each: the time for a size in a round.
    """
    draws = torch.Generator().manual_seed(0)
    sizes = sorted({max(size, file.rule.block) for size in (file.rule.block, *_SIZES)})
    found = [[_seconds_of_reads(file, size, 4 * file.rule.depth, draws)] for size in sizes]
    for _ in range(_ROUNDS):
        for size, times in zip(sizes, found, strict=True):
            times.append(_seconds_of_reads(file, size, int(seconds_each / min(times)), draws))
    # More bytes do not take less time. Noise says otherwise at times.
    return DiskRates(tuple(sizes), tuple(itertools.accumulate(map(min, found), max)))


def _seconds_of_reads(file: SourceFile, size: int, count: int, draws: torch.Generator) -> float:
    """Returns the seconds of one of ``count`` reads, or of as many as there are places in the
    file."""
    # Every other place: neighbours would be read together.
    places = file.size // (2 * size)
    count = max(1, min(count, places))
    first = torch.randint(max(1, places // count), (1,), generator=draws)
    row = 2 * (first + torch.arange(count) * (places // count))
    rows = RowFile(0, size, 2 * places)
    out = torch.empty(1, size, dtype=torch.uint8)
    begin = time.perf_counter()
    file.read(rows, row, out, torch.zeros_like(row), 0)
    return (time.perf_counter() - begin) / count
