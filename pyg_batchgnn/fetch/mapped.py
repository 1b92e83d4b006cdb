"""A look at where a tensor's memory comes from: ordinary memory or a mapped file."""

from __future__ import annotations

import re
from pathlib import Path

from torch import Tensor

_MAPS = Path("/proc/self/maps")
#: begin-end permissions offset device inode path
_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+) *(.*)")
#: Mappings that have a name and an inode but lie in memory: shared memory, memfd, System V.
_IN_MEMORY = ("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero")


def is_mapped(tensor: Tensor) -> bool:
    """Returns whether the first byte of a CPU tensor lies in a mapped file.

    Such a file may be larger than memory.

    Linux tells so in ``/proc/self/maps``; elsewhere the answer is no.
    """
    if tensor.numel() == 0 or not _MAPS.exists():
        return False
    address = tensor.data_ptr()
    for line in _MAPS.read_text(errors="replace").splitlines():
        found = _LINE.match(line)
        if found and int(found[1], 16) <= address < int(found[2], 16):
            return found[3] != "0" and not found[4].startswith(_IN_MEMORY)
    return False
