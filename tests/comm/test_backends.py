"""One table of collectives over every backend: results are equal to those computed locally."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.backends import BACKENDS, needs_ccl
from tests.support.ranks import ROOT, run_ranks
from tests.support.tiers import in_all

JOBS = "tests.comm.job_backends"

#: What a backend is known to refuse.
REFUSED = {
    "gloo": ["all_reduce_unsigned", "all_gather_uneven", "all_to_all_uneven"],
    "ccl": [],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ranks", [2, *in_all(4)])
def test_collectives_are_what_is_computed_locally(backend: str, ranks: int) -> None:
    arguments = {"backend": backend, "refused": REFUSED[backend]}
    for result in run_ranks(f"{JOBS}:all_cases", ranks, arguments):
        assert result.value == {}, "\n".join(f"{name}: {text}" for name, text in result.value.items())


@needs_ccl
def test_ccl_over_tcp() -> None:
    """Where ranks share no memory, as between hosts."""
    results = run_ranks(f"{JOBS}:all_cases", 2, {"backend": "ccl", "refused": []}, hosts=[0, 1])
    assert [result.value for result in results] == [{}, {}]


#: A script that ends while the thread of ccl frees tensors, for which the thread needs the
#: interpreter, which ends. It is a program of its own: forks end too soon to show it.
_SCRIPT = """
import os

import torch
import torch.distributed as dist

import pyg_batchgnn

os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # as on a machine with other work
dist.init_process_group("ccl")
rows, outputs = torch.ones(64), [torch.zeros(64) for _ in range(200)]
works = [dist.all_to_all_single(output, rows, async_op=True) for output in outputs]
works.pop().wait()
"""


@needs_ccl
def test_a_script_ends_well_with_collectives_under_way(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]
    ended = subprocess.run([*torchrun, str(script)], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


def test_a_process_ends_well_with_a_thread_at_work() -> None:
    arguments = {"seconds": 4.0}
    for result in run_ranks(f"{JOBS}:ends_with_a_thread_at_work", 2, arguments, check=False, whole_end=True):
        assert (result.code, result.value) == (0, 2), result.stderr
