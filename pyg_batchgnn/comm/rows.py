"""Moving rows: the uneven all-to-all and the uneven all-gather."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.comm.channel import Channel, Exchange, ReceivedCounts
from pyg_batchgnn.comm.mailbox import as_bytes
from pyg_batchgnn.comm.message import Header, Operation, dtype_code

#: An all-gather of at most this many bytes in total is one call, with one copy of the rows per
#: peer.
_COPIES = 1 << 16

#: Makes the tensor to receive into, from its shape and dtype.
Allocate = Callable[[tuple[int, ...], torch.dtype], Tensor]


def allocate_empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype)


@dataclass(frozen=True)
class Received:
    """Rows that came from all ranks.

    Attributes:
        rows: [sum(counts), ...], the rows of rank 0 first, then those of rank 1, and so on.
        counts: the number of rows, by sender.
        items: the number of items that the rows hold, by sender. Equal to ``counts`` where a sender
            gave no items.
    """

    rows: Tensor
    counts: list[int]
    items: list[int]

    def split(self) -> list[Tensor]:
        """Returns views of the rows, by sender."""
        return list(self.rows.split(self.counts))


def exchange_rows(
    channel: Channel,
    rows: Tensor | Sequence[Tensor],
    counts: Sequence[int] | None,
    header: Header,
    allocate: Allocate,
    items: Sequence[int] | None = None,
) -> Received:
    parts = _parts(rows, counts, channel.size)
    counts = [len(part) for part in parts]
    items = counts if items is None else list(items)
    if len(items) != channel.size:
        raise ValueError(f"items must give a number for each of {channel.size} ranks; got {len(items)}")
    shape, dtype = tuple(parts[0].shape[1:]), parts[0].dtype
    with channel.exchange(
        Operation.EXCHANGE, header, _row_bytes(shape, dtype), dtype_code(dtype)
    ) as exchange:
        whole = rows if isinstance(rows, Tensor) else None

        def joined() -> Tensor:
            return as_bytes(torch.cat(list(parts)) if whole is None else whole.contiguous())

        arriving = exchange.counts(counts, items, joined)
        out = _allocate(allocate, (sum(arriving.rows), *shape), dtype)
        width = exchange.purpose.row_bytes
        sent, received = [count * width for count in counts], [count * width for count in arriving.rows]
        flat = as_bytes(out)

        def move() -> None:
            if exchange.transport.fits(arriving.largest, arriving.kept):
                exchange.transport.all_to_all(flat, joined(), received, sent)
            else:
                sends = [as_bytes(part.contiguous()) for part in parts]
                exchange.transport.pairwise_exchange(flat.split(received), sends, arriving.largest)

        own = channel.rank
        exchange.data(
            move,
            flat,
            received,
            sent=sum(sent) - sent[own],
            rows=(sum(items) - items[own], sum(arriving.numbers) - arriving.numbers[own]),
        )
    return Received(out, arriving.rows, arriving.numbers)


def gather_rows(channel: Channel, rows: Tensor, operation: Operation, header: Header) -> Received:
    """Implements `Collectives.all_gather`."""
    if rows.dim() == 0:
        raise ValueError("rows must have a first dimension; give a scalar as a tensor of shape [1]")
    shape, dtype = tuple(rows.shape[1:]), rows.dtype
    with channel.exchange(operation, header, _row_bytes(shape, dtype), dtype_code(dtype)) as exchange:
        own = as_bytes(rows.contiguous())
        arriving = count_to_all(exchange, own, len(rows))
        out = torch.empty((sum(arriving.rows), *shape), dtype=dtype)
        received = [count * exchange.purpose.row_bytes for count in arriving.rows]
        others = sum(arriving.rows) - len(rows)
        send_to_all(exchange, as_bytes(out), own, received, (len(rows), others))
    return Received(out, arriving.rows, arriving.rows)


def count_to_all(exchange: Exchange, own: Tensor, rows: int, number: int = 0) -> ReceivedCounts:
    """Exchanges the counts for `send_to_all`; ``number`` is the operation's own, for all ranks."""
    size = exchange.size
    return exchange.counts([rows] * size, [number] * size, lambda: torch.cat([own] * size))


def send_to_all(
    exchange: Exchange, out: Tensor, own: Tensor, received: Sequence[int], rows: tuple[int, int] = (0, 0)
) -> None:
    """Runs one round in which every rank sends the same bytes to all others.

    Args:
        out: [sum(received)] bytes, filled by rank.
        own: this rank's bytes. They may be its own part of ``out``.
        received: bytes by rank, known to all ranks.
        rows: rows of this rank and of all others, for the counters.
    """
    size, largest = exchange.size, max(received)

    def move() -> None:
        if largest * size <= _COPIES and exchange.transport.fits(largest, largest):
            exchange.transport.all_to_all(out, torch.cat([own] * size), received, [len(own)] * size)
        else:
            exchange.transport.pairwise_exchange(out.split(list(received)), [own] * size, largest)

    exchange.data(move, out, received, sent=len(own) * (size - 1), rows=(rows[0] * (size - 1), rows[1]))


def _parts(rows: Tensor | Sequence[Tensor], counts: Sequence[int] | None, size: int) -> Sequence[Tensor]:
    if isinstance(rows, Tensor):
        if counts is None or len(counts) != size:
            given = "none" if counts is None else len(counts)
            raise ValueError(f"counts must give the rows for each of {size} ranks; got {given}")
        if rows.dim() == 0:
            raise ValueError("rows must have a first dimension; give a scalar as a tensor of shape [1]")
        if sum(counts) != len(rows) or min(counts) < 0:
            raise ValueError(f"counts {list(counts)} do not add up to the {len(rows)} rows that were given")
        return rows.split(list(counts))
    if counts is not None:
        raise ValueError("counts must be None where rows is a list of tensors: their lengths are the counts")
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
