"""Uses of collectives: barriers, objects, groups, futures, checkpoints, and mistakes."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # DistributedDataParallel imports it: once here, not in every rank
import torch.distributed as dist
import torch.distributed.checkpoint
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from tests.comm.collectives.registry import case, rows, same


@case
def barrier(rank: int, ranks: int) -> None:
    arrived = Path("..", "rank 0 has come")  # ranks have folders beside each other
    if rank == 0:
        time.sleep(0.2)
        arrived.touch()
    dist.barrier()
    assert arrived.exists()


@case
def objects(rank: int, ranks: int) -> None:
    mine = {"rank": rank, "text": "é" * rank}
    everybody = [{"rank": other, "text": "é" * other} for other in range(ranks)]
    out: list[Any] = [None] * ranks
    dist.all_gather_object(out, mine)
    assert out == everybody
    out = [None] * ranks
    dist.gather_object(mine, out if rank == 1 else None, 1)
    assert out == (everybody if rank == 1 else [None] * ranks)
    one = [mine, [rank]]
    dist.broadcast_object_list(one, 1)
    assert one == [everybody[1], [1]]
    scattered: list[Any] = [None]
    dist.scatter_object_list(scattered, everybody if rank == 0 else None, 0)
    assert scattered == [mine]


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
def many_groups(rank: int, ranks: int) -> None:
    """Groups that were destroyed leave room for others."""
    for _ in range(10):
        group = dist.new_group(list(range(ranks)))
        tensor = rows(rank, 5)
        dist.all_reduce(tensor, group=group)
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
def futures_that_wait_for_others(rank: int, ranks: int) -> None:
    def again(future: Any) -> Tensor:
        inner = dist.all_reduce(future.value()[0].clone(), async_op=True)
        return inner.get_future().then(lambda other: other.value()[0]).wait()

    tensor = torch.ones(4)
    result = dist.all_reduce(tensor, async_op=True).get_future().then(again).wait()
    same(result, torch.full((4,), float(ranks * ranks)))


@case
def data_parallel(rank: int, ranks: int) -> None:
    """DistributedDataParallel averages the gradients of all ranks, each from its own rows."""

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
def checkpoint(rank: int, ranks: int) -> None:
    folder = [str(Path("saved").resolve())]
    dist.broadcast_object_list(folder, 0)
    saved = {"rows": rows(0, 100), f"of rank {rank}": rows(rank, 30)}
    torch.distributed.checkpoint.save(saved, checkpoint_id=folder[0])
    loaded = {name: torch.zeros_like(tensor) for name, tensor in saved.items()}
    torch.distributed.checkpoint.load(loaded, checkpoint_id=folder[0])
    for name, tensor in saved.items():
        same(loaded[name], tensor, name)


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
    """Every rank refuses mistakes with a reason, and nothing is broken afterwards."""
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
