"""The job of the ranks in test_backends.py."""

from __future__ import annotations

import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

from pyg_batchgnn import Communicator
from tests.comm.collectives import exchanges, gathers, reductions, uses  # noqa: F401  (their cases)
from tests.comm.collectives.registry import CASES


def all_cases(backend: str, refused: list[str]) -> dict[str, str]:
    """Runs every case; what went wrong, by case.

    Args:
        refused: cases that the backend is known to refuse: it must do so, on every rank.
    """
    dist.init_process_group(backend, timeout=timedelta(seconds=60))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    wrong = {}
    for name, function in CASES.items():
        try:
            function(rank, ranks)
            if name in refused:
                wrong[name] = "is refused no longer: take it off the list"
        except Exception as error:
            if name not in refused or isinstance(error, AssertionError):
                wrong[name] = traceback.format_exc()
                break  # ranks stand at different points
    if not wrong:
        dist.destroy_process_group()
    return wrong


def ends_with_a_thread_at_work(seconds: float) -> int:
    """Ends while the communicator's thread computes, for longer than `close` waits for it."""
    comm = Communicator.create("jobs")

    def work() -> None:
        matrix, begin = torch.ones(300, 300), time.monotonic()
        while time.monotonic() < begin + seconds:
            matrix @ matrix

    comm.start_job(work)
    return comm.size
