"""The allocator's settings: applied on request only, and only in a process of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pyg_batchgnn.train.config import Malloc
from pyg_batchgnn.train.malloc import configure_malloc

_PROBE = """
import resource, sys, torch
import pyg_batchgnn.train.loop
from pyg_batchgnn.train.config import Malloc
from pyg_batchgnn.train.malloc import configure_malloc
kept = configure_malloc(Malloc(sys.argv[1]))
for _ in range(3):
    torch.ones(1 << 24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    torch.ones(1 << 24)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
@pytest.mark.parametrize("choice", list(Malloc))
def test_kept_memory_takes_no_page_faults(choice: Malloc) -> None:
    """Five tensors of 64 MiB: 16,384 pages each, or less where the system gives huge pages."""
    out = subprocess.run(
        [sys.executable, "-c", _PROBE, choice.value], capture_output=True, text=True, check=True
    )
    kept, faults = out.stdout.split()
    assert (kept == "True") is (choice is Malloc.KEEP)
    if choice is Malloc.KEEP:
        assert int(faults) < 100
    else:
        assert int(faults) >= 100


def test_leaving_the_allocator_alone_does_nothing() -> None:
    assert configure_malloc(Malloc.DEFAULT) is False
