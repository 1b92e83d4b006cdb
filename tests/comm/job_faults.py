"""The jobs of the ranks in test_faults.py: all but one behave."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import torch

from pyg_batchgnn.comm import CommError, Communicator, Header, MessageKind
from tests.support.faults import AwakeClock, stop_for_good


def misbehave(how: str, comm: Communicator, other: Communicator, timeout: float) -> None:
    """Does something else than the sixth exchange, on the victim."""
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "stop":
        stop_for_good()
    elif how == "raise":
        with comm:
            raise ValueError("the disk is full")
    elif how == "interrupt":
        with comm:
            raise KeyboardInterrupt
    elif how == "slow":
        time.sleep(0.5 * timeout)
    elif how == "barrier":
        comm.barrier()
    elif how == "other hop":
        comm.exchange(torch.zeros(comm.size, 2), [1] * comm.size, Header(MessageKind.FEATURES, 1, 5, 2))
    elif how == "other dtype":
        comm.exchange(torch.zeros(comm.size, 2).double(), [1] * comm.size, Header(MessageKind.FEATURES, 1, 5))
    elif how == "close":
        comm.close()
        time.sleep(timeout)
    elif how == "other communicator":
        other.barrier()
    elif how == "killed in the middle":
        threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGKILL]).start()
    elif how == "stopped in the middle":
        threading.Timer(0.05, stop_for_good).start()
    elif how == "interrupted in the middle":
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        threading.Timer(0.05, signal.raise_signal, [signal.SIGINT]).start()
    elif how != "leave":
        raise AssertionError(how)


def fault(how: str, victim: int, timeout: float, backend: str = "gloo") -> dict[str, Any]:
    comm = Communicator.create("sampling", timeout=timeout, backend=backend)
    other = Communicator.create("gradients", timeout=2 * timeout)
    for macrobatch in range(5):
        rows = torch.zeros(comm.size, 2)
        comm.exchange(rows, [1] * comm.size, Header(MessageKind.TOPOLOGY, 1, macrobatch))
    clock = AwakeClock()
    try:
        if comm.rank == victim:
            misbehave(how, comm, other, timeout)
            if how in ("leave", "close"):
                return {"error": None}
        with comm if "interrupted" in how else contextlib.nullcontext():  # it may come between two exchanges
            for _ in range(10_000 if "middle" in how else 1):
                rows = torch.zeros(comm.size, 1 << (16 if "middle" in how else 1))
                comm.exchange(rows, [1] * comm.size, Header(MessageKind.FEATURES, 1, 5))
    except CommError as error:
        found = {
            "error": type(error).__name__,
            "text": str(error),
            "ranks": list(error.ranks),
            "seconds": clock.seconds,
            "again": _again(comm),
        }
        if victim == 0:  # without a store nobody can tell a rank that was lost from one that has ended since
            time.sleep(1.0)
        return found
    except KeyboardInterrupt:
        return {"error": "KeyboardInterrupt", "seconds": clock.seconds, "again": _again(comm)}
    return {"error": None, "seconds": clock.seconds}


def _again(comm: Communicator) -> list[Any]:
    """A broken communicator says so at once, and can be closed."""
    started = time.monotonic()
    try:
        comm.barrier()
        said = "nothing"
    except CommError as error:
        said = type(error).__name__
    comm.close()
    return [said, time.monotonic() - started]


def absent(victim: int, timeout: float) -> dict[str, Any]:
    """One rank never makes the communicator, or makes another one."""
    import torch.distributed as dist

    clock = AwakeClock()
    try:
        first = Communicator.create("first", timeout=timeout)
        if first.rank == victim:
            time.sleep(2 * timeout)
            return {"error": None}
        Communicator.create("second", timeout=timeout)
    except CommError as error:
        return {
            "error": type(error).__name__,
            "text": str(error),
            "ranks": list(error.ranks),
            "seconds": clock.seconds,
        }
    raise AssertionError(dist.get_rank())


def other_name() -> dict[str, Any]:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    name = "gradients" if dist.get_rank() == 1 else "sampling"
    try:
        Communicator.create(name, timeout=20)
    except CommError as error:
        return {"error": type(error).__name__, "text": str(error), "ranks": list(error.ranks)}
    raise AssertionError(name)


def disagree() -> dict[str, Any]:
    with Communicator.create("start", timeout=20) as comm:
        comm.check_agreement({"fanout": [15, 10, 5], "seed": 3})
        seed = 4 if comm.rank == 2 else 3
        extra = {"policy": "ldg"} if comm.rank == 0 else {}
        try:
            comm.check_agreement({"fanout": [15, 10, 5], "seed": seed, **extra})
        except CommError as error:
            comm.barrier()  # all ranks know: nothing is broken
            return {"error": type(error).__name__, "text": str(error), "ranks": list(error.ranks)}
    raise AssertionError(comm.rank)


def two_threads() -> str:
    with Communicator.create("one thread", timeout=20) as comm:
        told = Path("..", "told")  # ranks have folders beside each other
        errors = []

        def intrude() -> None:
            try:
                comm.barrier()
            except RuntimeError as error:
                errors.append(str(error))
            told.touch()

        if comm.rank == 0:  # the peer comes when all is over, so that the main thread is inside a barrier
            thread = threading.Timer(0.5, intrude)
            thread.start()
            comm.barrier()
            thread.join()
            return errors[0]
        while not told.exists():
            time.sleep(0.01)
        comm.barrier()
        return ""


def ends_with_work_under_way(backend: str) -> None:
    """A process that ends while its thread waits for a peer does not hang."""
    comm = Communicator.create("unfinished", timeout=60, backend=backend)
    if comm.rank == 0:
        comm.start_exchange(torch.zeros(comm.size), [1] * comm.size, MessageKind.FEATURES)
        time.sleep(0.3)
    else:
        time.sleep(1.5)


def suspended(timeout: float, ready: str, backend: str) -> int:
    """Exchanges rows while all ranks are stopped: rank 0 in an exchange, the others between two."""
    with Communicator.create("sampling", timeout=timeout, backend=backend) as comm:
        for number in range(20):
            rows = torch.zeros(comm.size, 2)
            if number == 5:
                Path(f"{ready}-{comm.rank}").touch()
                time.sleep(0 if comm.rank == 0 else 1.0)
            comm.exchange(rows, [1] * comm.size, Header(MessageKind.FEATURES, 1, number))
        return number
