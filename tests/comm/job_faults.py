"""The jobs of the ranks in test_faults.py, where all but one behave or memory is shared."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from pyg_batchgnn.comm import CommError, Communicator, Header, MessageKind, gradient_hook, share_on_host
from tests.support.faults import AwakeClock, stop_for_good, told


def misbehave(how: str, comm: Communicator, other: Communicator, timeout: float) -> None:
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
        found = {**told(error, clock), "again": _again(comm)}
        if victim == 0:  # without a store nobody can tell a rank that was lost from one that has ended since
            time.sleep(1.0)
        return found
    except KeyboardInterrupt:
        return {"error": "KeyboardInterrupt", "seconds": clock.seconds, "again": _again(comm)}
    return {"error": None, "seconds": clock.seconds}


def _again(comm: Communicator) -> list[Any]:
    started = time.monotonic()
    try:
        comm.barrier()
        said = "nothing"
    except CommError as error:
        said = type(error).__name__
    comm.close()
    return [said, time.monotonic() - started]


def absent(victim: int, timeout: float) -> dict[str, Any]:
    clock = AwakeClock()
    try:
        first = Communicator.create("first", timeout=timeout)
        if first.rank == victim:
            time.sleep(2 * timeout)
            return {"error": None}
        Communicator.create("second", timeout=timeout)
    except CommError as error:
        return told(error, clock)
    raise AssertionError("nobody was missed")


def other_name() -> dict[str, Any]:
    dist.init_process_group("gloo")
    name = "gradients" if dist.get_rank() == 1 else "sampling"
    try:
        Communicator.create(name, timeout=20)
    except CommError as error:
        return {"error": type(error).__name__, "text": str(error), "ranks": list(error.ranks)}
    raise AssertionError(name)


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


def train(steps: int, resume_at: int, seeds: list[list[int]]) -> list[list[float]]:
    """Trains a small network; wrapped anew at ``resume_at``, as after a resume."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        *(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.Linear(64, 3))
    )
    with Communicator.create("gradients", timeout=20) as comm:
        state = {"step": 0}
        ours = [seeds[step % len(seeds)][comm.rank] for step in range(steps)]
        wrapped = _wrap(model, comm, state, ours)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(steps):
            if step == resume_at:
                wrapped = _wrap(model, comm, state, ours)
            state["step"] = step
            x = torch.randn(ours[step], 8, generator=torch.Generator().manual_seed(100 * step + comm.rank))
            loss = wrapped(x).square().mean()  # NaN for an empty minibatch
            optimiser.zero_grad()
            loss.backward()
            if step == 0:
                _check_first(model, comm, seeds[0])
            optimiser.step()
        rounds = comm.counters.snapshot()[MessageKind.GRADIENTS]
        assert rounds.rounds and rounds.bytes_sent
        return [parameter.detach().double().flatten().tolist() for parameter in model.parameters()]


def _wrap(
    model: torch.nn.Module, comm: Communicator, state: dict[str, int], ours: list[int]
) -> DistributedDataParallel:
    with comm.guard(MessageKind.CONTROL):
        wrapped = DistributedDataParallel(
            model, process_group=comm.group, broadcast_buffers=False, bucket_cap_mb=0.01
        )
    header = lambda: Header(MessageKind.GRADIENTS, 0, state["step"])  # noqa: E731
    wrapped.register_comm_hook(None, gradient_hook(comm, lambda: ours[state["step"]], header))
    return wrapped


def _check_first(model: torch.nn.Module, comm: Communicator, seeds: list[int]) -> None:
    generators = [torch.Generator().manual_seed(rank) for rank in range(comm.size)]
    parts = [torch.randn(seeds[rank], 8, generator=one) for rank, one in enumerate(generators)]
    model_grads = [parameter.grad.clone() for parameter in model.parameters()]
    wanted = torch.autograd.grad(model(torch.cat(parts)).square().mean(), list(model.parameters()))
    for got, want in zip(model_grads, wanted, strict=True):
        torch.testing.assert_close(got, want)


def killed_in_training(timeout: float) -> dict[str, Any]:
    model = torch.nn.Linear(100, 100)
    comm = Communicator.create("gradients", timeout=timeout)
    wrapped = _wrap(model, comm, {"step": 0}, [5])
    clock = AwakeClock()
    for step in range(5):
        try:
            loss = wrapped(torch.randn(5, 100)).sum()
            if comm.rank == 1 and step == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            loss.backward()
        except CommError as error:
            return told(error, clock)
    raise AssertionError


def shared(sizes: list[int]) -> list[int]:
    with Communicator.create("memory", timeout=20) as comm:
        blocks = share_on_host(comm, sizes[comm.rank])
        assert not list(Path("/dev/shm").glob("*pyg_batchgnn*"))
        assert {rank: len(block) for rank, block in blocks.items()} == {
            rank: sizes[rank] for rank in comm.ranks_of_host
        }
        blocks[comm.rank][:] = comm.rank + 1
        comm.barrier()
        for rank, block in blocks.items():
            assert torch.equal(block, torch.full((sizes[rank],), rank + 1, dtype=torch.uint8))
        # a block outlives the communicator, and the owner's hold on it
        return sorted(blocks)


def too_much_shared() -> str:
    with Communicator.create("memory", timeout=20) as comm:
        if comm.rank == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            share_on_host(comm, 4 << 20)
        except CommError as error:
            comm.barrier()
            return f"{error.ranks} {error}"
    raise AssertionError


def written_through_a_reader() -> None:
    with Communicator.create("memory", timeout=20) as comm:
        blocks = share_on_host(comm, 4096)
        comm.barrier()
        if comm.rank == 0:
            blocks[1][0] = 1
        time.sleep(0.5)


def killed_with_memory(folder: str) -> None:
    comm = Communicator.create("memory", timeout=20)
    blocks = share_on_host(comm, 1 << 20)
    Path(folder, f"ready-{comm.rank}").touch()
    blocks[comm.rank][:] = 1
    time.sleep(60)
