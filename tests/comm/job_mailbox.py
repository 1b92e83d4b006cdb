"""The jobs of the ranks in test_mailbox.py."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import Any
from unittest import mock

import torch.distributed as dist

from pyg_batchgnn.comm import CommError, Communicator


def without_memory() -> tuple[str, list[Any]]:
    """One rank has no memory to share."""
    refused = OSError(28, "No space left on device")
    faults = {"side_effect": refused} if os.environ["RANK"] == "1" else {"wraps": os.posix_fallocate}
    with mock.patch("os.posix_fallocate", **faults), Communicator.create("poor", timeout=20) as comm:
        return type(comm._channel._link.mailbox).__name__, comm.all_gather_json(comm.rank)


def memory_of_one_communicator(how: str) -> list[int]:
    """Returns how many blocks are mapped while a communicator is open, and when it has ended but
    its object is still there."""
    gc.disable()
    comm = Communicator.create("brief", timeout=20)
    comm.barrier()
    found = [_blocks()]
    if how == "close":
        comm.close()
    else:
        comm.fail(CommError("enough", [0]))
    return [*found, _blocks()]


def _blocks() -> int:
    return sum("memfd:pyg_batchgnn" in line for line in Path("/proc/self/maps").read_text().splitlines())


def killed_while_sharing() -> tuple[str, str]:
    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    dist.init_process_group("gloo")
    faults = {"side_effect": die} if dist.get_rank() == 1 else {"wraps": os.posix_fallocate}
    try:
        with mock.patch("os.posix_fallocate", **faults):
            Communicator.create("short", timeout=20)
    except CommError as error:
        return type(error).__name__, str(error)
    return "none", ""
