"""The allocator's settings: applied on request only, and only in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pyg_batchgnn.train.config import Malloc
from pyg_batchgnn.train.decisions import configure_malloc

_PROBE = """
import os, resource, torch
import pyg_batchgnn.train.trainer
from pyg_batchgnn.train.config import Malloc
from pyg_batchgnn.train.decisions import configure_malloc
for choice in Malloc:  # each in a process of its own
    if os.fork() == 0:
        kept = configure_malloc(choice)
        for _ in range(3):
            torch.ones(1 << 24)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(5):
            torch.ones(1 << 24)
        print(choice.value, kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_kept_memory_takes_no_page_faults() -> None:
    """Five tensors of 64 MiB: 16,384 pages each, or less where the system gives huge pages."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # forked processes have no threads
    out = subprocess.run(
        [sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True, env=environment
    )
    seen = {choice: (kept, int(faults)) for choice, kept, faults in map(str.split, out.stdout.splitlines())}
    assert seen.keys() == {choice.value for choice in Malloc}
    for choice, (kept, faults) in seen.items():
        assert kept == str(choice == Malloc.KEEP.value)
        assert (faults < 100) is (choice == Malloc.KEEP.value), seen


def test_leaving_the_allocator_alone_does_nothing() -> None:
    assert configure_malloc(Malloc.DEFAULT) is False
