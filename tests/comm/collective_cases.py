"""The cases of test_backends.py: every collective, compared with the same computed locally."""

from __future__ import annotations

import functools
import operator
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed.checkpoint
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

DTYPES = [
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool),
]
SIZES = (0, 1, 3, 1000, 70_001)


def dtypes() -> list[torch.dtype]:
    return [dtype for dtype in DTYPES if dtype != torch.int16 or dist.get_backend() != "gloo"]


#: Cases by name; `all_cases` runs them in this order.
CASES: dict[str, Callable[[int, int], None]] = {}


def case(function: Callable[[int, int], None]) -> Callable[[int, int], None]:
    CASES[function.__name__] = function
    return function


def rows(rank: int, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return ((torch.arange(size) * 7 + rank * 3) % 5 + rank % 2).to(dtype)


def same(got: Tensor, wanted: Tensor, what: Any = None) -> None:
    assert got.dtype == wanted.dtype and torch.equal(got, wanted), (
        what,
        got.flatten()[:9],
        wanted.flatten()[:9],
    )


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


def count(source: int, to: int, pattern: str) -> int:
    return {
        "even": 3,
        "uneven": (source * 5 + to * 3) % 7 * 100,
        "zero splits": 0 if (source + to) % 2 else 11,
        "one pair": 50_000 if (source, to) == (0, 1) else 0,
        "empty": 0,
    }[pattern]


@case
def all_to_all_single(rank: int, ranks: int) -> None:
    for pattern in ("even", "uneven", "zero splits", "one pair", "empty"):
        for dtype in dtypes() if pattern == "uneven" else [torch.float32]:
            sent = [count(rank, other, pattern) for other in range(ranks)]
            received = [count(other, rank, pattern) for other in range(ranks)]
            out = torch.empty(sum(received), 2, dtype=dtype)
            source = rows(rank, 2 * sum(sent), dtype).view(-1, 2)
            dist.all_to_all_single(out, source, received, sent)
            wanted = []
            for other in range(ranks):
                begin = sum(count(other, before, pattern) for before in range(rank))
                theirs = rows(other, 2 * sum(count(other, to, pattern) for to in range(ranks)), dtype).view(
                    -1, 2
                )
                wanted.append(theirs[begin : begin + received[other]])
            same(out, torch.cat(wanted), (pattern, dtype))
    out = torch.empty(4 * ranks)
    dist.all_to_all_single(out, rows(rank, 4 * ranks))
    same(out, torch.cat([rows(other, 4 * ranks)[4 * rank : 4 * rank + 4] for other in range(ranks)]))


@case
def all_to_all(rank: int, ranks: int) -> None:
    _all_to_all(rank, ranks, "even")


@case
def all_to_all_uneven(rank: int, ranks: int) -> None:
    _all_to_all(rank, ranks, "uneven")
    _all_to_all(rank, ranks, "empty")


def _all_to_all(rank: int, ranks: int, pattern: str) -> None:
    out = [torch.empty(count(other, rank, pattern)) for other in range(ranks)]
    dist.all_to_all(out, [rows(rank + to, count(rank, to, pattern)) for to in range(ranks)])
    for other in range(ranks):
        same(out[other], rows(other + rank, count(other, rank, pattern)), pattern)


@case
def gather(rank: int, ranks: int) -> None:
    for root in range(ranks):
        out = [torch.empty(30) for _ in range(ranks)] if rank == root else None
        dist.gather(rows(rank, 30), out, root)
        for other, tensor in enumerate(out or []):
            same(tensor, rows(other, 30))


@case
def scatter(rank: int, ranks: int) -> None:
    for root in range(ranks):
        out = torch.empty(30)
        dist.scatter(out, [rows(other, 30) for other in range(ranks)] if rank == root else None, root)
        same(out, rows(rank, 30))


@case
def send_and_receive(rank: int, ranks: int) -> None:
    following, before = (rank + 1) % ranks, (rank - 1) % ranks
    for size in (1, 30, 100_000):
        for step in range(3):  # in the order of sending
            work = dist.isend(rows(rank + step, size), following)
            out = torch.empty(size)
            dist.recv(out, before)
            same(out, rows(before + step, size))
            assert work is not None
            work.wait()
    out = torch.empty(5)
    operations = [dist.P2POp(dist.isend, rows(rank, 5), following), dist.P2POp(dist.irecv, out, before)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    same(out, rows(before, 5))


@case
def barrier(rank: int, ranks: int) -> None:
    arrived = Path("..", "rank 0 has come")  # ranks have folders beside each other
    if rank == 0:
        time.sleep(0.2)
        arrived.touch()
    dist.barrier()
    assert arrived.exists()


@case
def sub_groups(rank: int, ranks: int) -> None:
    evens, odds = (list(range(start, ranks, 2)) for start in (0, 1))
    groups = [dist.new_group(evens), dist.new_group(odds), dist.new_group(list(range(ranks)))]
    mine, members = (groups[0], evens) if rank % 2 == 0 else (groups[1], odds)
    handles = []
    for step in range(3):  # the groups' collectives beside each other
        small, large = rows(rank + step, 50), rows(rank + step, 50_000)
        handles.append((small, members, step, dist.all_reduce(small, group=mine, async_op=True)))
        handles.append((large, range(ranks), step, dist.all_reduce(large, group=groups[2], async_op=True)))
    for tensor, of, step, work in handles:
        work.wait()
        same(tensor, sum(rows(other + step, len(tensor)) for other in of))  # type: ignore[arg-type]
    for group in (mine, groups[2]):
        dist.destroy_process_group(group)


@case
def asynchronous_with_futures(rank: int, ranks: int) -> None:
    tensors = [rows(rank + step, 3000) for step in range(8)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    futures = [work.get_future().then(lambda future: future.value()[0].sum()) for work in works]
    for step in reversed(range(8)):  # in any order
        wanted = sum(rows(other + step, 3000) for other in range(ranks))
        assert futures[step].wait() == wanted.sum()  # type: ignore[union-attr]
        works[step].wait()
        assert works[step].is_completed()
        same(tensors[step], wanted)  # type: ignore[arg-type]
    done = works[0].get_future()
    assert done.done() and torch.equal(done.value()[0], tensors[0])


@case
def data_parallel(rank: int, ranks: int) -> None:
    def network() -> torch.nn.Module:
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(6, 40), torch.nn.ReLU(), torch.nn.Linear(40, 2))

    def loss(model: torch.nn.Module, of: int) -> Tensor:
        return model(rows(of, 60).view(10, 6)).square().mean()

    reference, model = network(), DistributedDataParallel(network(), bucket_cap_mb=0.0005)
    (sum(loss(reference, other) for other in range(ranks)) / ranks).backward()  # type: ignore[union-attr]
    loss(model, rank).backward()
    for wanted, got in zip(reference.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(got.grad, wanted.grad)


@case
def a_wait_that_ends_first(rank: int, ranks: int) -> None:
    given_up = Path("..", "rank 1 has given up")
    while rank == 0 and not given_up.exists():
        time.sleep(0.01)
    tensor = torch.ones(2)
    work = dist.all_reduce(tensor, async_op=True)
    if rank == 1:
        try:
            work.wait(timedelta(milliseconds=50))
        except RuntimeError as error:
            assert "timed out" in str(error).lower(), error
        else:
            raise AssertionError("nobody else was there")
        finally:
            given_up.touch()
    work.wait()
    same(tensor, torch.full((2,), float(ranks)))


@case
def mistakes(rank: int, ranks: int) -> None:
    for wrong in (
        lambda: dist.all_to_all_single(torch.empty(3), torch.empty(3), [1] * ranks, [3] + [1] * (ranks - 1)),
        lambda: dist.all_gather_into_tensor(torch.empty(ranks * 3 + 1), torch.empty(3)),
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.float8_e5m2)),
    ):
        try:
            wrong()
        except (RuntimeError, ValueError, TypeError):
            continue
        raise AssertionError("not refused")
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == ranks
