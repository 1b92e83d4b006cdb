"""The jobs of ranks in test_rank_faults.py: all but one behave."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import CommError, Communicator
from tests.support.faults import AwakeClock, stop_for_good
from tests.support.partitioned_graphs import CASES, whole
from tests.support.rank_epochs import stores


def fault(how: str, victim: int, timeout: float, prefetch: int) -> dict[str, Any]:
    """Ends, stops or leaves the loop on one rank; returns what the others are told."""
    comm = Communicator.create("loader", timeout=timeout)
    sizes = {"batch_size": 2, "macrobatch_size": 2, "fetch_size": 1, "prefetch": prefetch}
    nodes = whole(CASES[0]).train_mask
    batches = MacrobatchNeighborLoader(
        stores(comm, CASES[0]), [3, 2], nodes, seed=1, schedule="global", **sizes
    )
    clock = AwakeClock()
    try:
        with comm if how in ("raise", "interrupt") else contextlib.nullcontext():
            for number, _ in enumerate(batches):
                if number == 3 and comm.rank == victim:
                    if how == "kill":
                        os.kill(os.getpid(), signal.SIGKILL)
                    if how == "stop":
                        stop_for_good()
                    if how == "raise":
                        raise ValueError("the disk is full")
                    if how == "interrupt":
                        raise KeyboardInterrupt
                    if how in ("break", "leave"):
                        break
        if how == "break":  # the victim begins the next epoch while the others are in this one
            list(batches)
    except CommError as error:
        text = str(error)
        return {"error": type(error).__name__, "text": text, "ranks": error.ranks, "seconds": clock.seconds}
    except (ValueError, KeyboardInterrupt) as error:
        return {"error": type(error).__name__, "text": "", "ranks": [], "seconds": clock.seconds}
    return {"error": None, "text": "", "ranks": [], "seconds": clock.seconds}
