"""The jobs of the ranks in test_sums.py."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, Header, MessageKind, share_on_host


def term(rank: int, size: int, dtype: torch.dtype) -> Tensor:
    """Returns numbers of very different magnitudes, so that another order of addition shows."""
    generator = torch.Generator().manual_seed(rank)
    values = torch.randn(size, generator=generator, dtype=torch.float64)
    return (values * 10.0 ** torch.randint(-3, 4, (size,), generator=generator)).to(dtype)


def in_order(terms: list[Tensor], weights: list[float] | None = None) -> Tensor:
    """Returns the sum by its definition: one addition after the other, 16-bit floats in float32."""
    wide = torch.float32 if terms[0].dtype in (torch.float16, torch.bfloat16) else terms[0].dtype
    total = None
    for at, one in enumerate(terms):
        if weights is not None and not weights[at]:
            continue
        scaled = one.to(wide) if weights is None else one.to(wide) * (weights[at] / sum(weights))
        total = scaled if total is None else total + scaled
    return torch.zeros_like(terms[0]) if total is None else total.to(terms[0].dtype)


def sums() -> None:
    with Communicator.create("sums", timeout=20) as comm, Communicator.create("cut", limit=3000) as cut:
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int16):
            for size in (0, 1, 3, 100, 5000):
                terms = [term(rank, size, dtype) for rank in range(comm.size)]
                wanted = in_order(terms)
                for one in (comm, cut):
                    mine = terms[comm.rank].clone()
                    assert one.all_reduce(mine) is mine
                    assert torch.equal(mine.view(torch.uint8), wanted.view(torch.uint8)), (dtype, size)
                grid = terms[comm.rank].clone().view(1, -1)
                assert torch.equal(comm.all_reduce(grid), wanted.view(1, -1))
                if dtype.is_floating_point:
                    _weighted(comm, terms)


def _weighted(comm: Communicator, terms: list[Tensor]) -> None:
    for weights in ([3.0, 0.0, 1.0, 7.0], [0.0] * 4, [1.0] * 4):
        mine = terms[comm.rank].clone()
        if not weights[comm.rank]:
            mine.fill_(float("nan"))  # an empty minibatch's mean
        comm.all_reduce(mine, MessageKind.GRADIENTS, weight=weights[comm.rank])
        assert torch.equal(mine, in_order(terms, weights[: comm.size]))


def values() -> dict[str, Any]:
    with Communicator.create("values", timeout=20) as comm:
        answers = {
            "sum": comm.sum(0.1 * (comm.rank + 1)),
            "max": comm.max(comm.rank - 5),
            "min": comm.min(comm.rank - 5),
            "json": comm.all_gather_json({"rank": comm.rank, "text": "é" * comm.rank}),
            "hosts": [comm.host, comm.hosts, comm.ranks_of_host],
        }
        for source in range(comm.size):
            for size in (0, 3, 50_000):
                tensor = torch.full((size,), float(comm.rank))
                comm.broadcast(tensor, source)
                assert torch.equal(tensor, torch.full((size,), float(source)))
        for tensor, source in ((torch.zeros(4, 4).t(), 0), (torch.zeros(1), 9)):
            with pytest.raises(ValueError):
                comm.broadcast(tensor, source)
        comm.barrier()
        return answers


def one_rank() -> None:
    """Everything works without a launcher, in a world of one rank."""
    for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    with Communicator.create("alone") as comm:
        assert (comm.rank, comm.size, comm.group) == (0, 1, None)
        rows = torch.arange(6.0).view(3, 2)
        assert torch.equal(comm.exchange(rows, [3], MessageKind.TOPOLOGY).rows, rows)
        assert torch.equal(comm.exchange([rows], None, MessageKind.TOPOLOGY).rows, rows)
        assert torch.equal(comm.all_gather(rows).rows, rows)
        assert torch.equal(comm.all_reduce(rows.clone()), rows)
        assert torch.equal(comm.all_reduce(torch.ones(9000), weight=5), torch.ones(9000))
        assert torch.equal(comm.broadcast(rows.clone()), rows)
        assert comm.all_gather_json([1, "a"]) == [[1, "a"]]
        comm.check_agreement({"seed": 1})
        block = share_on_host(comm, 10)[0]
        block[:] = 3
        counts = comm.counters.snapshot()[MessageKind.TOPOLOGY]
        assert (counts.rounds, counts.bytes_sent) == (2, 0)


def two_at_once() -> None:
    """One communicator works beside another one, on two threads."""
    sampling, gradients = Communicator.create("sampling"), Communicator.create("gradients")
    assert sampling.group is not gradients.group
    handles = []
    for step in range(30):
        rows = torch.full((sampling.size, 100), float(step))
        features = Header(MessageKind.FEATURES, 0, step)
        handles.append(sampling.start_exchange(rows, [1] * sampling.size, features))
        total = gradients.all_reduce(torch.ones(3000), Header(MessageKind.GRADIENTS, 0, step))
        assert torch.equal(total, torch.full((3000,), float(sampling.size)))
    for step, handle in enumerate(handles):
        assert torch.equal(handle.wait().rows, torch.full((sampling.size, 100), float(step)))
    sampling.barrier()
    sampling.close()
    gradients.close()
