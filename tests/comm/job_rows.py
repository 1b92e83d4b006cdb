"""The jobs of the ranks in test_rows.py."""

from __future__ import annotations

from typing import Any

import torch

from pyg_batchgnn.comm import Communicator, Field, Header, MessageKind, RowLayout

DTYPES = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
)
SHAPES = ((), (1,), (3,), (2, 5), (0,))


def rows_from(
    source: int, to: int, shape: tuple[int, ...], dtype: torch.dtype, most: int = 4
) -> torch.Tensor:
    """Returns the rows that one rank sends to another: known to both, different for every pair,
    sometimes none."""
    count = (3 * source + 5 * to + len(shape)) % (most + 1)
    generator = torch.Generator().manual_seed(97 * source + to)
    return torch.randint(0, 2 if dtype == torch.bool else 100, (count, *shape), generator=generator).to(dtype)


def exchanges(limit: int | None = None, most: int = 4, dtypes: int = len(DTYPES)) -> dict[str, Any]:
    """Every dtype and shape, as one tensor, as a list, and asynchronously."""
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


def nothing_at_all() -> None:
    with Communicator.create("nothing", timeout=20) as comm:
        answer = comm.exchange(torch.empty(0, 7), [0] * comm.size, MessageKind.TOPOLOGY)
        assert answer.rows.shape == (0, 7) and answer.counts == [0] * comm.size
        assert comm.all_gather(torch.empty(0)).rows.shape == (0,)


def packed_rows() -> None:
    """Attributes of four types in one exchange, into memory of the caller's choice."""
    fields = {
        "x": Field(torch.float32, (5,)),
        "label": Field(torch.int64),
        "train": Field(torch.bool),
        "half": Field(torch.bfloat16, (3,)),
    }
    layout = RowLayout(fields)
    asked = []

    def allocate(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        asked.append(shape)
        return torch.zeros(shape, dtype=dtype)

    def columns(source: int, to: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(source * 10 + to)
        rows = source + 2 * to
        return {
            name: torch.randint(0, 2, (rows, *field.shape), generator=generator).to(field.dtype)
            for name, field in fields.items()
        }

    with Communicator.create("packed", timeout=20) as comm:
        sends = [layout.pack(columns(comm.rank, to)) for to in range(comm.size)]
        answer = comm.exchange(sends, None, Header(MessageKind.FEATURES), allocate)
        assert asked == [answer.rows.shape]
        for source, packed in enumerate(answer.split()):
            for name, column in layout.unpack(packed).items():
                assert torch.equal(column, columns(source, comm.rank)[name])


def counted() -> list[dict[str, Any]]:
    """A few exchanges whose counts the test knows."""
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
        text = str(after)
        assert "features" in text and "total" in text and "control" in text
        comm.counters.reset()
        assert comm.counters.snapshot().total.rounds == 0
        return [(after - before).as_dict(), {"total": (after - before).total.rounds}]
