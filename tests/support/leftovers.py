"""Finds what ranks leave behind: listening ports and names in shared memory."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_LISTENING = "0A"
#: How often names are looked at, 0.05 s apart, before they count as left.
_LOOKS = 400


@contextlib.contextmanager
def nothing_is_left() -> Iterator[None]:
    shared, ports = shared_memory(), listening()
    yield
    left = stays(shared_memory, shared)
    assert not left, f"left in shared memory: {left}"
    still = listening() - ports
    assert not still, f"ports that are still listened at: {still}"


def shared_memory() -> set[Path]:
    return set(Path("/dev/shm").iterdir())


def stays(names: Callable[[], set[Any]], before: set[Any]) -> set[Any]:
    """Names that are there now, were not before, and do not go."""
    left = names() - before
    for _ in range(_LOOKS):  # counted, not timed: all may have been stopped together
        if not left:
            break
        time.sleep(0.05)
        left &= names()
    return left


def listening() -> set[int]:
    own = {socket for pid in _family() for socket in _sockets(pid)}
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENING and words[9] in own:
                    found.add(int(words[1].rpartition(":")[2], 16))
    return found


def _family() -> set[int]:
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def _sockets(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                name = str(link.readlink())
                if name.startswith("socket:["):
                    yield name[len("socket:[") : -1]
