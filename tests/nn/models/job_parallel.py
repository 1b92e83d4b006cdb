"""The jobs of ranks in test_parallel.py."""

from __future__ import annotations

import torch
import torch._dynamo  # DistributedDataParallel imports it: once here, not in every rank
from torch.nn.parallel import DistributedDataParallel

from pyg_batchgnn.comm import Communicator, MessageKind
from tests.support.model_pairs import both, larger


def train(kind: str) -> None:
    """Saves the gradients of the second pass, which uses the buckets of the first."""
    model, _ = both(kind, drop=0.5)
    with Communicator.create("gradients", timeout=60) as comm:
        with comm.guard(MessageKind.CONTROL):
            parallel = DistributedDataParallel(model, process_group=comm.group)
        with comm.guard(MessageKind.GRADIENTS):
            for epoch in range(2):
                model.zero_grad()
                parallel(larger(epoch=epoch, first=15 * comm.rank)).square().mean().backward()
        found = comm.all_gather(torch.cat([p.grad.flatten() for p in model.parameters()])).split()
        assert all(torch.equal(one, found[0]) for one in found)
    alone = []
    for rank in range(comm.size):
        one, _ = both(kind, drop=0.5)
        one(larger(epoch=1, first=15 * rank)).square().mean().backward()
        alone.append([p.grad for p in one.parameters()])
    for parameter, *grads in zip(model.parameters(), *alone, strict=True):
        mean = torch.stack(grads).mean(0)
        assert float((parameter.grad - mean).abs().max()) < 1e-6 * float(mean.abs().max())
