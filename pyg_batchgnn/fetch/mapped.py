"""A look at where a tensor's memory comes from: ordinary memory or a mapped file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

_MAPS = Path("/proc/self/maps")
#: begin-end permissions offset device inode path
_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+) *(.*)")
#: Mappings that have a name and an inode but lie in memory: shared memory, memfd, System V.
_IN_MEMORY = ("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero")


def is_mapped(tensor: Tensor) -> bool:
    """Returns whether the first byte of a CPU tensor lies in a mapped file; see `are_mapped`."""
    return are_mapped([tensor])[0]


def are_mapped(tensors: Sequence[Tensor]) -> list[bool]:
    """Returns for each CPU tensor whether its first byte lies in a mapped file.

    Such a file may be larger than memory.

    Linux tells so in ``/proc/self/maps``, which is read once; elsewhere the answers are no.
    """
    if not any(tensor.numel() for tensor in tensors) or not _MAPS.exists():
        return [False] * len(tensors)
    lines = [found for line in _MAPS.read_text(errors="replace").splitlines() if (found := _LINE.match(line))]
    files = [
        (int(found[1], 16), int(found[2], 16))
        for found in lines
        if found[3] != "0" and not found[4].startswith(_IN_MEMORY)
    ]
    return [
        tensor.numel() > 0 and any(first <= tensor.data_ptr() < end for first, end in files)
        for tensor in tensors
    ]
