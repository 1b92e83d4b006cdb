"""A rank that dies, stops, raises or leaves in the middle of an epoch: the others end with an error
that names it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from pyg_batchgnn import MacrobatchNeighborLoader
from pyg_batchgnn.comm import CommError, Communicator
from tests.support.faults import AwakeClock, stop_for_good
from tests.support.leftovers import nothing_is_left
from tests.support.partitioned_graphs import CASES, whole
from tests.support.rank_epochs import stores
from tests.support.ranks import run_ranks

# Jobs of ranks ####################################################################################


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


# Tests ############################################################################################

TIMEOUT = 8.0


@pytest.fixture(autouse=True)
def leftovers() -> Iterator[None]:
    with nothing_is_left():
        yield


#: What the victim does; the errors that the others may end with, and what they say.
FAULTS = [
    ("kill", "PeerError", r"no longer exists"),
    ("stop", "PeerError", r"is stopped"),
    ("raise", "PeerError", r"raised ValueError: the disk is full"),
    ("interrupt", "PeerError", r"raised KeyboardInterrupt"),
    ("leave", "PeerError", r"closed after exchange \d+"),
    ("break", "DivergenceError", r"rank 1 \(host 1\) is in exchange"),
]
#: The loader prepares macrobatches ahead, but for these.
NOT_AHEAD = {"kill", "interrupt"}


@pytest.mark.parametrize(("how", "error", "text"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_the_others_name_the_rank(how: str, error: str, text: str) -> None:
    prefetch = 0 if how in NOT_AHEAD else 1
    results = run_ranks(
        fault,
        3,
        {"how": how, "victim": 1, "timeout": TIMEOUT, "prefetch": prefetch},
        hosts=[0, 1, 0],
        never_end=[1] if how == "stop" else [],
        check=False,
        whole_end=how in ("leave", "raise"),
    )
    for result in (results[0], results[2]):
        assert result.code == 0, result.stderr
        value = result.value
        assert value["error"] == error, value
        assert re.search(text, value["text"]), value["text"]
        assert 1 in value["ranks"] and value["seconds"] < 2 * TIMEOUT, value
