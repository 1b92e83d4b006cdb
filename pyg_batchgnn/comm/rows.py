"""Moving rows: the uneven all-to-all and the uneven all-gather."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.comm.channel import Channel
from pyg_batchgnn.comm.header import Header, Operation, dtype_code
from pyg_batchgnn.comm.step import Step
from pyg_batchgnn.comm.transport import as_bytes

#: A gathering of at most so many bytes in all is one call, of copies of this rank's rows.
_COPIES = 1 << 16

#: Makes the tensor to receive into, from its shape and dtype.
Allocate = Callable[[tuple[int, ...], torch.dtype], Tensor]


def fresh(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory from torch's allocator."""
    return torch.empty(shape, dtype=dtype)


@dataclass(frozen=True)
class Received:
    """Rows that came from the ranks.

    Attributes:
        rows: [sum(counts), ...], those of rank 0 first, then those of rank 1, and so on.
        counts: rows by the rank that sent them.
        items: what its rows hold, by the rank that sent them, as it said; ``counts`` where it said nothing.
    """

    rows: Tensor
    counts: list[int]
    items: list[int]

    def split(self) -> list[Tensor]:
        """The rows by sender; views."""
        return list(self.rows.split(self.counts))


def exchange_rows(
    channel: Channel,
    rows: Tensor | Sequence[Tensor],
    counts: Sequence[int] | None,
    header: Header,
    allocate: Allocate,
    items: Sequence[int] | None = None,
) -> Received:
    """See `Communicator.exchange`."""
    parts = _parts(rows, counts, channel.size)
    counts = [len(part) for part in parts]
    items = counts if items is None else list(items)
    if len(items) != channel.size:
        raise ValueError(f"items must give a number for each of {channel.size} ranks; got {len(items)}")
    shape, dtype = tuple(parts[0].shape[1:]), parts[0].dtype
    with channel.step(Operation.EXCHANGE, header, _row_bytes(shape, dtype), dtype_code(dtype)) as step:
        arrivals = step.counts(counts, items)
        out = _allocate(allocate, (sum(arrivals.rows), *shape), dtype)
        width = step.purpose.row_bytes
        sent, received = [count * width for count in counts], [count * width for count in arrivals.rows]
        flat, whole = as_bytes(out), rows if isinstance(rows, Tensor) else None
        together = channel.transport.fits(arrivals.largest, arrivals.kept)

        def at_once() -> None:
            joined = torch.cat(list(parts)) if whole is None else whole.contiguous()
            channel.transport.together(flat, as_bytes(joined), received, sent)

        def by_turns() -> None:
            sends = [as_bytes(part.contiguous()) for part in parts]
            channel.transport.in_turns(flat.split(received), sends, arrivals.largest)

        me = channel.rank
        step.data(
            at_once if together else by_turns,
            sent=sum(sent) - sent[me],
            received=sum(received) - received[me],
            rows=(sum(items) - items[me], sum(arrivals.numbers) - arrivals.numbers[me]),
        )
    return Received(out, arrivals.rows, arrivals.numbers)


def gather_rows(channel: Channel, rows: Tensor, operation: Operation, header: Header) -> Received:
    """See `Communicator.all_gather`."""
    if rows.dim() == 0:
        raise ValueError("rows must have a first dimension; give a scalar as a tensor of shape [1]")
    shape, dtype = tuple(rows.shape[1:]), rows.dtype
    with channel.step(operation, header, _row_bytes(shape, dtype), dtype_code(dtype)) as step:
        arrivals = step.counts([len(rows)] * channel.size)
        out = torch.empty((sum(arrivals.rows), *shape), dtype=dtype)
        received = [count * step.purpose.row_bytes for count in arrivals.rows]
        others = sum(arrivals.rows) - len(rows)
        spread(channel, step, as_bytes(out), as_bytes(rows.contiguous()), received, (len(rows), others))
    return Received(out, arrivals.rows, arrivals.rows)


def spread(
    channel: Channel,
    step: Step,
    out: Tensor,
    mine: Tensor,
    received: Sequence[int],
    rows: tuple[int, int] = (0, 0),
) -> None:
    """One round in which every rank sends the same bytes to all others.

    Args:
        out: [sum(received)] bytes, filled by rank.
        mine: this rank's bytes; may be its own part of ``out``.
        received: bytes by rank, known to all ranks.
        rows: rows of this rank and of all others, for the counters.
    """
    size, largest = channel.size, max(received)

    def by_copies() -> None:
        channel.transport.together(out, mine.repeat(size), received, [len(mine)] * size)

    def by_turns() -> None:
        channel.transport.in_turns(out.split(list(received)), [mine] * size, largest)

    small = largest * size <= _COPIES and channel.transport.fits(largest, largest)
    step.data(
        by_copies if small else by_turns,
        sent=len(mine) * (size - 1),
        received=sum(received) - len(mine),
        rows=(rows[0] * (size - 1), rows[1]),
    )


def _parts(rows: Tensor | Sequence[Tensor], counts: Sequence[int] | None, size: int) -> Sequence[Tensor]:
    """The rows for each rank, checked."""
    if isinstance(rows, Tensor):
        if counts is None or len(counts) != size:
            given = "none" if counts is None else len(counts)
            raise ValueError(f"counts must give the rows for each of {size} ranks; got {given}")
        if rows.dim() == 0:
            raise ValueError("rows must have a first dimension")
        if sum(counts) != len(rows) or min(counts) < 0:
            raise ValueError(f"counts {list(counts)} do not add up to the {len(rows)} rows that were given")
        return rows.split(list(counts))
    if counts is not None:
        raise ValueError("counts go with one tensor of rows; a list of tensors has its own")
    if len(rows) != size:
        raise ValueError(f"rows must be one tensor for each of {size} ranks, not {len(rows)}")
    kinds = {(part.dtype, tuple(part.shape[1:])) for part in rows}
    if len(kinds) != 1 or any(part.dim() == 0 for part in rows):
        raise ValueError(f"rows for different ranks differ in dtype or shape: {sorted(map(str, kinds))}")
    return rows


def _row_bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return math.prod(shape) * dtype.itemsize


def _allocate(allocate: Allocate, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    out = allocate(shape, dtype)
    if tuple(out.shape) != shape or out.dtype != dtype or not out.is_contiguous():
        raise ValueError(
            f"allocate must return a contiguous {dtype} tensor of shape {list(shape)}, "
            f"not {out.dtype} of {list(out.shape)}"
        )
    return out
