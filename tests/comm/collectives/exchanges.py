"""Exchanges between all ranks, between pairs, and with one."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.comm.collectives.registry import case, dtypes, rows, same


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
