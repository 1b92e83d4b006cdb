"""Broadcasts and gathers on all ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.comm.collectives.registry import SIZES, case, dtypes, rows, same


@case
def broadcast(rank: int, ranks: int) -> None:
    for root in range(ranks):
        for dtype in dtypes():
            tensor = rows(rank, 200, dtype)
            dist.broadcast(tensor, root)
            same(tensor, rows(root, 200, dtype), dtype)
        for size in SIZES:
            tensor = rows(rank, size)
            dist.broadcast(tensor, root)
            same(tensor, rows(root, size))


@case
def broadcast_strided(rank: int, ranks: int) -> None:
    tensor = rows(rank, 600).view(20, 30).t()
    dist.broadcast(tensor, ranks - 1)
    same(tensor, rows(ranks - 1, 600).view(20, 30).t())


@case
def all_gather(rank: int, ranks: int) -> None:
    for dtype in dtypes():
        out = [torch.empty(7, 9, dtype=dtype) for _ in range(ranks)]
        dist.all_gather(out, rows(rank, 63, dtype).view(7, 9))
        for other in range(ranks):
            same(out[other], rows(other, 63, dtype).view(7, 9), dtype)


@case
def all_gather_uneven(rank: int, ranks: int) -> None:
    for sizes in (
        [5 * other for other in range(ranks)],
        [40_000 * (ranks - other) for other in range(ranks)],
    ):
        out = [torch.empty(size) for size in sizes]
        dist.all_gather(out, rows(rank, sizes[rank]))
        for other in range(ranks):
            same(out[other], rows(other, sizes[other]))


@case
def all_gather_into_tensor(rank: int, ranks: int) -> None:
    for size in SIZES:
        out = torch.empty(ranks * size)
        dist.all_gather_into_tensor(out, rows(rank, size))
        same(out, torch.cat([rows(other, size) for other in range(ranks)]))
