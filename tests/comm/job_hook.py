"""The jobs of the ranks in test_hook.py."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch
import torch._dynamo  # DistributedDataParallel imports it: once here, not in every rank
from torch.nn.parallel import DistributedDataParallel

from pyg_batchgnn.comm import CommError, Communicator, Header, MessageKind, gradient_hook
from tests.support.faults import AwakeClock


def train(steps: int, resume_at: int, seeds: list[list[int]]) -> list[list[float]]:
    """Trains a small network; wrapped anew at ``resume_at``, as after a resume.

    Returns its weights.
    """
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
    """The gradient of the mean over all ranks' nodes."""
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
            return {
                "error": type(error).__name__,
                "ranks": list(error.ranks),
                "text": str(error),
                "seconds": clock.seconds,
            }
    raise AssertionError
