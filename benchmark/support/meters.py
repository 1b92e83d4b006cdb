"""Readings of this process: clocks, page faults, resident memory and counted allocations."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmark.support.jobs import Job

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def reset_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def release_free_memory() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def lap(phases: dict[str, float], name: str, last: float) -> float:
    now = time.perf_counter()
    phases[name] += now - last
    return now


def in_turns(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Returns the seconds of some works in each round, in which they take turns, each time another
    one first. One more round goes before, which is not measured."""
    names, seconds = list(works), {name: list[float]() for name in works}
    for number in range(1 + rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            begun = time.perf_counter()
            works[name]()
            if number:
                seconds[name].append(time.perf_counter() - begun)
    return seconds


class AllocationMeter:
    """Reads the counters of ``allocation_count.cpp``; zeros if it is not preloaded."""

    NAMES = ("allocation_calls", "large_allocation_calls", "large_allocation_bytes")

    def __init__(self) -> None:
        program = ctypes.CDLL(None)
        self.counters = []
        for name in self.NAMES:
            counter = getattr(program, f"benchmark_{name}", None)
            if counter is not None:
                counter.restype = ctypes.c_uint64
                self.counters.append((name, counter))

    def read(self) -> dict[str, int]:
        return {name: int(counter()) for name, counter in self.counters}


def _reading(meter: AllocationMeter) -> dict[str, float]:
    """Returns all clocks and counters now: seconds, or counts since the process began."""
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    clocks = {"wall": time.perf_counter(), "cpu": time.process_time()}
    return {**clocks, "faults": faults, **meter.read()}


def measure(job: Job, number: int, meter: AllocationMeter) -> dict[str, Any]:
    """Does one round between two readings."""
    before = _reading(meter)
    work = job(number)
    passed = {name: now - before[name] for name, now in _reading(meter).items()}
    return {**asdict(work), **passed, "resident": resident_bytes()}
