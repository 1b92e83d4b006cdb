"""Jobs of the ranks in test_rank_faults.py: one is lost while parts are written, read or shared."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from pyg_batchgnn.comm import CommError, Communicator, host_memory
from pyg_batchgnn.partition import load, load_partition, partition, save, save_partition, share_attributes
from pyg_batchgnn.store import hybrid, replicate_topology
from tests.partition.job_partition import graph
from tests.support.faults import AwakeClock, stop_for_good

#: What every rank does, and where one is lost: module, function, and after how many calls of it.
STAGES: dict[str, tuple[Any, str, int]] = {
    "save": (save, "write_tensor", 4),
    "load": (load, "map_tensor", 3),
    "topology": (hybrid, "_send_edges", 0),
    "tables": (host_memory, "_hand_out", 0),
}


def fault(how: str, stage: str, victim: int, timeout: float, folder: str) -> dict[str, Any]:
    """Returns what the other ranks are told."""
    comm = Communicator.create("parts", timeout=timeout)
    module, name, after = STAGES[stage]
    clock = AwakeClock()
    try:
        part = None if stage == "load" else partition(graph(1, 300, 3000), comm=comm)
        comm.barrier()
        lost = _lost(how, getattr(module, name), after) if comm.rank == victim else getattr(module, name)
        with mock.patch.object(module, name, lost):
            if part is None:
                load_partition(folder, comm)
            elif stage == "save":
                save_partition(part, Path(folder, "broken"), comm)
            else:
                (replicate_topology if stage == "topology" else share_attributes)(part, comm)
    except CommError as error:
        return {"error": type(error).__name__, "text": str(error), "seconds": clock.seconds}
    return {"error": None}


def _lost(how: str, function: Callable[..., Any], after: int) -> Callable[..., Any]:
    """The function, but its process dies or stops after some calls."""
    left = after

    def until_then(*arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            return function(*arguments)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return stop_for_good()

    return until_then
