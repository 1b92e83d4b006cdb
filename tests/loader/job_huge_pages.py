"""The job of test_memory.py: huge pages under memory of one process, and of two."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import sys
from pathlib import Path

import torch
from torch import Tensor

from pyg_batchgnn import ops
from tests.support.limits import exit_code_of_child

BYTES = 17 << 20
REFUSED = 77  #: the exit status where the system has no huge pages to give
_MADV_COLLAPSE, _PR_SET_THP_DISABLE = 25, 41


def main() -> int:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not os.access("/proc/self/pagemap", os.R_OK) or not setting.exists():
        return REFUSED
    shared = small_pages()
    if "[never]" in setting.read_text() or not can_collapse():
        return REFUSED
    child = os.fork()
    if child == 0:
        status = 1
        try:
            before = counted(shared, "Private_Clean", "Private_Dirty")
            ops.advise_huge_pages(shared)
            after = counted(shared, "Private_Clean", "Private_Dirty")
            status = 0 if after - before < BYTES // 2 else 1
        finally:
            os._exit(status)
    assert exit_code_of_child(child) == 0, "a child has copied shared memory"
    ops.advise_huge_pages(shared)
    assert counted(shared, "AnonHugePages"), "no huge pages under memory of one process"
    assert bool((shared == 1).all())
    return 0


def small_pages() -> Tensor:
    """Returns a table of ones on small pages, whatever the system's setting is."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
    table = torch.ones(BYTES // 4)
    prctl(_PR_SET_THP_DISABLE, 0, 0, 0, 0)
    return table


def can_collapse() -> bool:
    with mmap.mmap(-1, BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(b"1" * BYTES)
        try:
            memory.madvise(_MADV_COLLAPSE)
        except OSError:
            return False
    return True


def counted(tensor: Tensor, *names: str) -> int:
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            first, last = int(found[1], 16), int(found[2], 16)
            inside = first < tensor.data_ptr() + tensor.nbytes and tensor.data_ptr() < last
        elif inside and line.split(":")[0] in names:
            total += int(line.split()[1]) * 1024
    return total


if __name__ == "__main__":
    sys.exit(main())
