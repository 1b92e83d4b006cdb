"""Native models under DistributedDataParallel."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from tests.nn.batches import relative_error

from .pairs import PAIRS, both, larger

RANKS = 2


def run_rank(rank: int, folder: str, kind: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    try:
        model, _ = both(kind, drop=0.5)
        parallel = DistributedDataParallel(model)
        for epoch in range(2):  # the second pass uses the buckets that the first has built
            model.zero_grad()
            parallel(larger(epoch=epoch, first=25 * rank)).square().mean().backward()
        torch.save({name: one.grad for name, one in model.named_parameters()}, f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.mark.timeout(180)
def test_gradients_are_the_mean_over_ranks() -> None:
    kind = "sage"
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run_rank, (folder, kind), nprocs=RANKS)
        found = [torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in range(RANKS)]
    model, _ = both(kind, drop=0.5)
    alone = []
    for rank in range(RANKS):
        one = copy.deepcopy(model)
        one(larger(epoch=1, first=25 * rank)).square().mean().backward()
        alone.append({name: parameter.grad for name, parameter in one.named_parameters()})
    assert kind in PAIRS
    for name, grad in found[0].items():
        assert torch.equal(grad, found[1][name])
        assert relative_error(grad, (alone[0][name] + alone[1][name]) / 2) < 1e-6, name
