"""The job of the ranks in test_backends.py."""

from __future__ import annotations

import traceback
from datetime import timedelta

import torch.distributed as dist

import pyg_batchgnn  # noqa: F401
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
