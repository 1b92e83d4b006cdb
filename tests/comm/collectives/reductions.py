"""Reductions to one rank, to all, and scattered."""

from __future__ import annotations

import functools
import operator

import torch
import torch.distributed as dist

from tests.comm.collectives.registry import SIZES, case, dtypes, rows, same

UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
OPERATIONS = {
    "SUM": (dist.ReduceOp.SUM, operator.add),
    "PRODUCT": (dist.ReduceOp.PRODUCT, operator.mul),
    "MIN": (dist.ReduceOp.MIN, torch.minimum),
    "MAX": (dist.ReduceOp.MAX, torch.maximum),
}


@case
def all_reduce(rank: int, ranks: int) -> None:
    for dtype in dtypes():
        for name, (operation, function) in OPERATIONS.items():
            if dtype == torch.bool:
                function = {"SUM": operator.or_, "PRODUCT": operator.and_}.get(name, function)
            tensor = rows(rank, 300, dtype)
            dist.all_reduce(tensor, operation)
            wanted = functools.reduce(function, [rows(other, 300, dtype) for other in range(ranks)])
            same(tensor, wanted.to(dtype), (dtype, name))
    for size in SIZES:
        tensor = rows(rank, size)
        dist.all_reduce(tensor)
        same(tensor, sum((rows(other, size) for other in range(ranks)), torch.zeros(size)))


@case
def all_reduce_unsigned(rank: int, ranks: int) -> None:
    for dtype in UNSIGNED:
        tensor = rows(rank, 50, dtype)
        dist.all_reduce(tensor)
        same(tensor, sum(rows(other, 50) for other in range(ranks)).to(dtype))  # type: ignore[union-attr]


@case
def all_reduce_average(rank: int, ranks: int) -> None:
    tensor = rows(rank, 50)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    same(tensor, sum(rows(other, 50) for other in range(ranks)) / ranks)  # type: ignore[arg-type]


@case
def reduce(rank: int, ranks: int) -> None:
    for root in range(ranks):
        tensor = rows(rank, 100, torch.int64)
        dist.reduce(tensor, root)
        if rank == root:
            same(tensor, sum(rows(other, 100, torch.int64) for other in range(ranks)))  # type: ignore[arg-type]


@case
def reduce_scatter(rank: int, ranks: int) -> None:
    for dtype in (torch.float32, torch.int64):
        pieces = [rows(rank + part, 40, dtype) for part in range(ranks)]
        wanted = sum(rows(other + rank, 40, dtype) for other in range(ranks))
        out = torch.empty(40, dtype=dtype)
        dist.reduce_scatter(out, pieces)
        same(out, wanted)  # type: ignore[arg-type]
        out.zero_()
        dist.reduce_scatter_tensor(out, torch.cat(pieces))
        same(out, wanted)  # type: ignore[arg-type]


@case
def reduce_scatter_uneven(rank: int, ranks: int) -> None:
    out = torch.empty(10 * rank)
    dist.reduce_scatter(out, [rows(rank, 10 * part) for part in range(ranks)])
    same(out, sum((rows(other, 10 * rank) for other in range(ranks)), torch.zeros(10 * rank)))
