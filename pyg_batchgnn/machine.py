"""The processors and the memory that this process may use.

A container or a job of a cluster may use fewer than the machine has. The limits of its control
group (cgroup, version 1 or 2) say how many; torch and psutil do not read them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class GroupLimits:
    """The limits of the control groups of this process; None without a limit."""

    processors: float | None = None  # how many may run at once, on average
    memory: int | None = None  # bytes
    free: int | None = None  # bytes of `memory` that are not taken. Pages of files count as free.


@dataclass(frozen=True)
class Memory:
    """The bytes of memory that this process may use, in all and free."""

    total: int
    available: int


def processors() -> int:
    """Returns the number of processors that this process may keep busy, at least 1."""
    pinned, limit = len(os.sched_getaffinity(0)), read_limits().processors
    return pinned if limit is None else max(1, min(pinned, math.ceil(limit)))


def memory() -> Memory:
    """Returns the memory that this process may use."""
    host, limits = psutil.virtual_memory(), read_limits()
    total = min(host.total, limits.memory or host.total)
    return Memory(total, min(host.available, host.available if limits.free is None else limits.free))


def read_limits(root: Path = _ROOT, own: Path = _OWN) -> GroupLimits:
    """Returns the lowest limits of a process's control groups and their parents. ``root``: the
    folder where groups are mounted. ``own``: the file that lists the process's groups."""
    shares, memories, free = [], [], []
    for folder in _groups(root, own):
        if (share := _share(folder)) is not None:
            shares.append(share)
        for most, used, cached in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit = _number(folder / most)
            # Version 1 writes the largest multiple of a page where there is no limit.
            if limit is not None and limit < 1 << 60:
                taken = (_number(folder / used) or 0) - _entry(folder / "memory.stat", cached)
                memories.append(limit)
                free.append(max(0, limit - max(0, taken)))
    return GroupLimits(min(shares, default=None), min(memories, default=None), min(free, default=None))


def _groups(root: Path, own: Path) -> Iterator[Path]:
    """Yields the folders of a process's control groups and of all their parents. Version 1 has a
    group for each kind of limit, of which two matter here."""
    for line in _text(own).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and not {"memory", "cpu"} & set(controllers.split(",")):
            continue
        for mount in (root / controllers if controllers else root, root):
            folder = mount / path.lstrip("/")
            if folder.is_dir():
                yield folder
                yield from (above for above in folder.parents if above.is_relative_to(mount))
                break
            # In a container the path may be that of the host, and the group is the mount itself.
            if mount.is_dir():
                yield mount
                break


def _share(folder: Path) -> float | None:
    """Returns the processors that a group may use: its quota divided by the period."""
    words = _text(folder / "cpu.max").split()
    if len(words) == 2 and words[0].isdigit() and int(words[1]) > 0:
        return int(words[0]) / int(words[1])
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota / period if quota and period else None


def _number(file: Path) -> int | None:
    """Returns the positive integer in a file; None for "max", "-1" or no file."""
    text = _text(file).strip()
    return int(text) if text.isdigit() else None


def _entry(file: Path, name: str) -> int:
    """Returns an entry of memory.stat by name, 0 if it is absent."""
    for line in _text(file).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdigit():
            return int(value)
    return 0


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
