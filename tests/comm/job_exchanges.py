"""The jobs of the ranks in test_exchanges.py and test_backends.py."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from pyg_batchgnn.comm import CommError, Communicator, DivergenceError, Header, MessageKind
from pyg_batchgnn.comm.message import BackendMailbox, Mailbox, SharedMailbox
from tests.support.tiers import ALL

DTYPES = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
)
SHAPES = ((), (1,), (3,), (2, 5), (0,))


def rows_from(
    source: int, to: int, shape: tuple[int, ...], dtype: torch.dtype, most: int = 4
) -> torch.Tensor:
    count = (3 * source + 5 * to + len(shape)) % (most + 1)
    generator = torch.Generator().manual_seed(97 * source + to)
    return torch.randint(0, 2 if dtype == torch.bool else 100, (count, *shape), generator=generator).to(dtype)


def every_dtype(limit: int | None = None, most: int = 4, dtypes: int = len(DTYPES)) -> dict[str, Any]:
    with Communicator.create("rows", timeout=20, **({"limit": limit} if limit else {})) as comm:
        for dtype in DTYPES[-dtypes:]:
            for shape in SHAPES:
                sends = [rows_from(comm.rank, to, shape, dtype, most) for to in range(comm.size)]
                wanted = [rows_from(source, comm.rank, shape, dtype, most) for source in range(comm.size)]
                joined, counts = torch.cat(sends), [len(part) for part in sends]
                header = Header(MessageKind.FEATURES, epoch=1, macrobatch=2, hop=len(shape))
                handle = comm.start_exchange(joined, counts, header)
                answers = [
                    comm.exchange(joined, counts, header),
                    comm.exchange(sends, None, header),
                    handle.wait(),
                ]
                for answer in answers:
                    assert answer.counts == [len(part) for part in wanted]
                    assert answer.rows.dtype == dtype and answer.rows.shape[1:] == shape
                    for got, want in zip(answer.split(), wanted, strict=True):
                        assert torch.equal(got, want), (dtype, shape, got, want)
                gathered = comm.all_gather(sends[0])
                everyone = [rows_from(rank, 0, shape, dtype, most) for rank in range(comm.size)]
                assert torch.equal(gathered.rows, torch.cat(everyone))
                assert gathered.counts == [len(part) for part in everyone]
        return comm.counters.snapshot().as_dict()


def counted() -> list[dict[str, Any]]:
    with Communicator.create("counted", timeout=20) as comm:
        before = comm.counters.snapshot()
        # rank r sends r + 1 rows of 12 bytes to each rank, itself included
        rows = torch.zeros((comm.rank + 1) * comm.size, 3)
        comm.exchange(rows, [comm.rank + 1] * comm.size, Header(MessageKind.FEATURES, 0, 0))
        comm.exchange(rows, [comm.rank + 1] * comm.size, Header(MessageKind.TOPOLOGY, 0, 0, 1))
        comm.exchange(rows, [comm.rank + 1] * comm.size, Header(MessageKind.TOPOLOGY, 0, 0, 0))
        packed = comm.exchange(
            rows, [comm.rank + 1] * comm.size, MessageKind.PARTITION, items=[comm.rank + 7] * comm.size
        )
        assert packed.items == [rank + 7 for rank in range(comm.size)]
        assert packed.counts == [rank + 1 for rank in range(comm.size)]
        comm.all_reduce(torch.ones(10), MessageKind.GRADIENTS)
        comm.all_reduce(torch.ones(4000), MessageKind.GRADIENTS)
        comm.barrier()
        after = comm.counters.snapshot()
        assert before + (after - before) == after
        text = str(after)
        assert "features" in text and "total" in text and "control" in text
        comm.counters.reset()
        assert comm.counters.snapshot().total.rounds == 0
        return [(after - before).as_dict(), {"total": (after - before).total.rounds}]


def mailbox_of(comm: Communicator) -> Mailbox:
    mailbox = comm._channel.mailbox
    assert isinstance(mailbox, SharedMailbox if len(set(comm.hosts)) == 1 else BackendMailbox)
    return mailbox


def message(source: int, to: int, size: int) -> Tensor:
    return torch.randint(
        0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(97 * source + to)
    )


def exchanged(comm: Communicator, sizes: Sequence[Sequence[int]]) -> None:
    sends = [message(comm.rank, to, size) for to, size in enumerate(sizes[comm.rank])]
    wanted = [message(source, comm.rank, theirs[comm.rank]) for source, theirs in enumerate(sizes)]
    joined, counts = torch.cat(sends), [len(part) for part in sends]
    for answer in (
        comm.exchange(joined, counts, MessageKind.PARTITION),
        comm.exchange(sends, None, MessageKind.PARTITION),
        comm.start_exchange(joined, counts, MessageKind.PARTITION).wait(),
    ):
        assert answer.counts == [len(part) for part in wanted]
        assert torch.equal(answer.rows, torch.cat(wanted))


def sent_to_all(comm: Communicator, size: int) -> list[Callable[[], None]]:
    def gathered() -> None:
        answer = comm.all_gather(message(comm.rank, 0, size))
        assert torch.equal(answer.rows, torch.cat([message(rank, 0, size) for rank in range(comm.size)]))

    def broadcast() -> None:
        tensor = message(comm.rank, 0, size)
        assert comm.broadcast(tensor, comm.size - 1) is tensor
        assert torch.equal(tensor, message(comm.size - 1, 0, size))

    def summed() -> None:
        total = comm.all_reduce(message(comm.rank, 0, size))
        terms = [message(rank, 0, size) for rank in range(comm.size)]
        assert torch.equal(total, torch.stack(terms).sum(0, dtype=torch.uint8))

    def values() -> None:  # a text and its quotes
        texts = [chr(97 + rank) * (size - 2) for rank in range(comm.size)]
        assert comm.all_gather_json(texts[comm.rank]) == texts

    return [gathered, broadcast, summed, *([values] if size >= 2 else [])]


def sizes_around_the_room() -> None:
    with Communicator.create("small", timeout=20) as comm:
        room = mailbox_of(comm).room
        for size in (0, 1, room - 1, room, room + 1, 5 * room):
            exchanged(comm, [[size] * comm.size] * comm.size)
            for operation in sent_to_all(comm, size):
                operation()


def one_message_is_large() -> None:
    """All ranks take the second round where one pair needs it, or what one rank keeps."""
    with Communicator.create("uneven", timeout=20) as comm:
        room = mailbox_of(comm).room
        for source, to in ((0, 1), (comm.size - 1, 0), (1, 1)):
            for size in (room, room + 1):
                sizes = [[3 * rank + other for other in range(comm.size)] for rank in range(comm.size)]
                sizes[source][to] = size
                exchanged(comm, sizes)
                texts = ["x" * ((size - 2) if rank == source else rank) for rank in range(comm.size)]
                assert comm.all_gather_json(texts[comm.rank]) == texts
                gathered = comm.all_gather(message(comm.rank, 0, size if comm.rank == source else comm.rank))
                parts = [message(rank, 0, size if rank == source else rank) for rank in range(comm.size)]
                assert torch.equal(gathered.rows, torch.cat(parts))


def nothing() -> None:
    with Communicator.create("nothing", timeout=20) as comm:
        for rows, count in ((torch.empty(0, 700), 0), (torch.empty(900 * comm.size, 0), 900)):
            answer = comm.exchange(rows, [count] * comm.size, MessageKind.TOPOLOGY)
            assert answer.counts == [count] * comm.size and answer.rows.shape == rows.shape
        assert comm.counters.snapshot().total.bytes_sent == 0


def divergence() -> None:
    """Nothing is done with the data of ranks that are in another exchange."""
    asked: list[Any] = []

    def allocate(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        asked.append(shape)
        return torch.empty(shape, dtype=dtype)

    operations: list[Callable[[Communicator, Tensor], Any]] = [
        lambda comm, own: comm.exchange(own[: comm.size], [1] * comm.size, MessageKind.FEATURES, allocate),
        lambda comm, own: comm.all_reduce(own),
        lambda comm, own: comm.broadcast(own, 1),
        lambda comm, _: comm.all_gather_json("not a number" * 30),
        lambda comm, _: comm.barrier(),
    ]
    pairs = itertools.permutations if ALL else itertools.combinations
    for first, second in pairs(operations, 2):
        comm, own = Communicator.create("diverging", timeout=20), torch.full((8,), 3.0)
        with pytest.raises(DivergenceError):
            (second if comm.rank else first)(comm, own)
        assert not asked and torch.equal(own, torch.full((8,), 3.0))
    comm, own = Communicator.create("sources", timeout=20), torch.full((8,), 3.0)
    with pytest.raises(DivergenceError, match="different sources"):
        comm.broadcast(own, comm.rank)
    assert torch.equal(own, torch.full((8,), 3.0))


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


def summed_values() -> dict[str, Any]:
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


def without_memory() -> tuple[str, list[Any]]:
    refused = OSError(28, "No space left on device")
    faults = {"side_effect": refused} if os.environ["RANK"] == "1" else {"wraps": os.posix_fallocate}
    with mock.patch("os.posix_fallocate", **faults), Communicator.create("poor", timeout=20) as comm:
        return type(comm._channel.mailbox).__name__, comm.all_gather_json(comm.rank)


def memory_of_one_communicator(how: str) -> list[int]:
    gc.disable()
    comm = Communicator.create("brief", timeout=20)
    comm.barrier()
    found = [_blocks()]
    if how == "close":
        comm.close()
    else:
        comm.fail(CommError("enough", [0]))
    return [*found, _blocks()]


def _blocks() -> int:
    return sum("memfd:pyg_batchgnn" in line for line in Path("/proc/self/maps").read_text().splitlines())


def killed_while_sharing() -> tuple[str, str]:
    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    dist.init_process_group("gloo")
    faults = {"side_effect": die} if dist.get_rank() == 1 else {"wraps": os.posix_fallocate}
    try:
        with mock.patch("os.posix_fallocate", **faults):
            Communicator.create("short", timeout=20)
    except CommError as error:
        return type(error).__name__, str(error)
    return "none", ""


def all_cases(backend: str, refused: list[str]) -> dict[str, str]:
    from tests.comm.collective_cases import CASES  # with much of torch

    dist.init_process_group(backend, timeout=timedelta(seconds=60))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    wrong: dict[str, str] = {}
    assert CASES, "no case was registered"
    for name, function in CASES.items():
        try:
            function(rank, ranks)
            if name in refused:
                wrong[name] = "is refused no longer: take it off the list"
        except Exception as error:
            if name not in refused or isinstance(error, AssertionError):
                wrong[name] = traceback.format_exc()
                break  # ranks stand at different points
    if not wrong:
        dist.destroy_process_group()
    return wrong


def ends_with_a_thread_at_work(seconds: float) -> int:
    """Ends while the communicator's thread computes, for longer than `close` waits for it."""
    comm = Communicator.create("jobs")

    def work() -> None:
        matrix, begin = torch.ones(300, 300), time.monotonic()
        while time.monotonic() < begin + seconds:
            matrix @ matrix
            time.sleep(0.01)

    comm.start_job(work)
    return comm.size
