"""The jobs of ranks in test_rank_faults.py: all but one behave."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

import torch

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from pyg_batchgnn.comm import CommError, Communicator
from tests.support.faults import AwakeClock, stop_for_good
from tests.support.hetero_cases import WRITES
from tests.support.partitioned_graphs import CASES, whole
from tests.support.rank_epochs import stores
from tests.support.rank_graphs import GRAPHS, arguments_of, stores_of


def _loader(comm: Communicator, prefetch: int, kind: str) -> Any:
    shape = {"batch_size": 2, "macrobatch_size": 2, "fetch_size": 1, "prefetch": prefetch}
    if kind == "plain":
        arguments: dict[str, Any] = {
            "num_neighbors": [3, 2],
            "input_nodes": whole(CASES[0]).train_mask,
            "seed": 1,
        }
        return MacrobatchNeighborLoader(stores(comm, CASES[0]), **arguments, **shape, schedule="global")
    both = stores_of(comm, GRAPHS["typed"], "random")
    if kind == "typed":
        arguments = {**arguments_of("typed", "last", "several"), **shape}
        return MacrobatchNeighborLoader(both, **arguments, schedule="global")
    index = GRAPHS["typed"][WRITES].edge_index
    times = {"time_attr": "time", "edge_label_time": torch.full((index.size(1),), 9)}
    return MacrobatchLinkNeighborLoader(
        both, [3, 2], (WRITES, index), neg_sampling="triplet", exclude_existing=True, seed=1, **times, **shape
    )


def fault(how: str, victim: int, timeout: float, prefetch: int, loader: str = "plain") -> dict[str, Any]:
    """Ends, stops or leaves the loop on one rank; returns what the others are told."""
    comm = Communicator.create("loader", timeout=timeout)
    batches = _loader(comm, prefetch, loader)
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
