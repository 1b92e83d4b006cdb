"""The collective operations of a communicator."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from pyg_batchgnn.comm.channel import Channel, Exchange, ReceivedCounts
from pyg_batchgnn.comm.diagnosis import AgreementError, CommError, DivergenceError
from pyg_batchgnn.comm.message import (
    Header,
    HeaderLike,
    MessageKind,
    Operation,
    as_bytes,
    as_header,
    dtype_code,
)
from pyg_batchgnn.comm.serial_executor import Handle, SerialExecutor

T = TypeVar("T")

#: Makes the tensor to receive into, from its shape and dtype.
Allocate = Callable[[tuple[int, ...], torch.dtype], Tensor]


def allocate_empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype)


@dataclass(frozen=True)
class Received:
    """Rows received from all ranks."""

    rows: Tensor  # [sum(counts), ...], the rows of rank 0 first, then those of rank 1, and so on
    counts: list[int]  # the number of rows, by sender
    # The number of items that the rows hold, by sender. Equal to ``counts`` where a sender gave no
    # items.
    items: list[int]

    def split(self) -> list[Tensor]:
        """Returns views of the rows, by sender."""
        return list(self.rows.split(self.counts))


class Collectives:
    """The collective operations over one channel. ``hosts``: the host number of every rank, as the
    launcher counts."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._exchanges = SerialExecutor(f"communicator {channel.name!r}")
        self.rank, self.size = channel.rank, channel.size
        self.hosts = [peer.host for peer in channel.peers]
        self.host = self.hosts[self.rank]

    def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs one operation, after those that were started before."""
        return self._exchanges.run(lambda: work(self._channel, *arguments))

    @property
    def ranks_of_host(self) -> list[int]:
        """The ranks that share this rank's host, ascending, this rank included."""
        return [rank for rank, host in enumerate(self.hosts) if host == self.host]

    def exchange(
        self,
        rows: Tensor | Sequence[Tensor],
        counts: Sequence[int] | None,
        header: HeaderLike,
        allocate: Allocate = allocate_empty,
        items: Sequence[int] | None = None,
    ) -> Received:
        """Sends rows to every rank and receives rows from every rank.

        Args:
            rows: [sum(counts), ...], the rows for rank 0 first; or one tensor per rank. Any dtype.
                The dtype and the bytes per row must be equal on all ranks.
            counts: the number of rows for each rank. None if ``rows`` is one tensor per rank.
            header: the purpose of the exchange, equal on all ranks.
            allocate: makes the contiguous tensor to receive into, from shape and dtype.
            items: how many items the rows for each rank hold, if a row is not one item (packed
                words, for example). They are counted instead of rows, and sent along.
        """
        return self._run(exchange_rows, rows, counts, as_header(header), allocate, items)

    def start_exchange(
        self,
        rows: Tensor | Sequence[Tensor],
        counts: Sequence[int] | None,
        header: HeaderLike,
        allocate: Allocate = allocate_empty,
        items: Sequence[int] | None = None,
    ) -> Handle[Received]:
        """Starts an `exchange` on the communicator's thread. Write to no row before its end."""
        whole = as_header(header)
        return self._exchanges.start(
            lambda: exchange_rows(self._channel, rows, counts, whole, allocate, items)
        )

    def all_gather(self, tensor: Tensor, header: HeaderLike = MessageKind.CONTROL) -> Received:
        """Returns the rows of every rank. Ranks may have different numbers of rows, but the same
        dtype and bytes per row."""
        return self._run(gather_rows, tensor, Operation.GATHERING, as_header(header))

    def broadcast(self, tensor: Tensor, source: int = 0, header: HeaderLike = MessageKind.CONTROL) -> Tensor:
        """Overwrites a contiguous tensor with rank ``source``'s, of the same size and dtype."""
        return self._run(broadcast, tensor, source, as_header(header))

    def all_reduce(
        self, tensor: Tensor, header: HeaderLike = MessageKind.CONTROL, weight: float | None = None
    ) -> Tensor:
        """Overwrites a contiguous tensor with the sum over ranks, added in the order of ranks;
        16-bit floats are added in float32. ``weight``: of this rank's tensor, finite and not
        negative. Tensors are then multiplied by weight / (the sum of all weights). Weight 0 leaves
        a tensor out, whatever it holds. If all weights are 0, so is the sum."""
        return self._run(sum_over_ranks, tensor, as_header(header), weight)

    def all_gather_json(self, value: Any) -> list[Any]:
        """Returns a small value of every rank, by rank, sent as JSON: tuples become lists, and keys
        strings."""
        return self._run(gather_values, value, Header(MessageKind.CONTROL))

    def sum(self, value: Any) -> Any:
        """Returns the sum of a number over ranks, added in the order of ranks."""
        return sum(self.all_gather_json(value))

    def max(self, value: Any) -> Any:
        """Returns the largest value of a number over ranks."""
        return max(self.all_gather_json(value))

    def min(self, value: Any) -> Any:
        """Returns the smallest value of a number over ranks."""
        return min(self.all_gather_json(value))

    def barrier(self, header: HeaderLike = MessageKind.CONTROL) -> None:
        """Waits until every rank is here."""
        self._run(barrier, as_header(header))

    def check_agreement(self, arguments: Mapping[str, Any]) -> None:
        """Raises AgreementError on every rank unless all ranks give the same JSON values by name.
        The error has the names that differ and every rank's values."""
        self._run(check_agreement, arguments, Header(MessageKind.CONTROL))

    def run_together(
        self,
        work: Callable[[], T],
        *,
        catch: tuple[type[Exception], ...] = (OSError, ValueError),
        error: MakeError | None = None,
    ) -> T:
        """Runs ``work``, which must make no exchange, on every rank. If it fails on one rank, all
        ranks raise, so that none waits for it. The ranks wait for each other once, after the work.

        ``catch``: the exceptions that count as a failure; others are raised at once, on this rank
        alone. ``error``: makes the error that all ranks raise from the texts of the failed ranks,
        by rank; by default a `CommError` that names ranks, hosts and causes.
        """
        result: list[T] = []
        cause: Exception | None = None
        try:
            result.append(work())
        except catch as caught:
            cause = caught
        text = "" if cause is None else str(cause) or type(cause).__name__
        problems = {rank: theirs for rank, theirs in enumerate(self.all_gather_json(text)) if theirs}
        if not problems:
            return result[0]
        if error is None:
            raise CommError(name_failures(problems, self.hosts), problems) from cause
        raise error(problems) from cause


#: An all-gather of at most this many bytes in total is one call, with one copy of the rows per
#: peer.
_COPIES = 1 << 16


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
        wanted = (sum(arriving.rows), *shape)
        out = allocate(wanted, dtype)
        if tuple(out.shape) != wanted or out.dtype != dtype or not out.is_contiguous():
            raise ValueError(
                f"allocate must return a contiguous {dtype} tensor of shape {list(wanted)}, "
                f"not {out.dtype} of {list(out.shape)}"
            )
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
    """Does `Collectives.all_gather` over a channel."""
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
    """Exchanges the counts before `send_to_all`. ``number``: the operation's own, for all ranks."""
    size = exchange.size
    return exchange.counts([rows] * size, [number] * size, lambda: torch.cat([own] * size))


def send_to_all(
    exchange: Exchange, out: Tensor, own: Tensor, received: Sequence[int], rows: tuple[int, int] = (0, 0)
) -> None:
    """Sends every rank's bytes ``own`` (which may be a part of ``out``) to all others, in one
    round. ``received``: bytes by rank, known to all ranks. ``rows``: numbers of this rank and of
    all others, for the counters."""
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


# Sums over ranks, always added in the order of ranks, so that the bits do not depend on timing.
#
# Every element is w_0 x_0 + w_1 x_1 + ..., added from rank 0 up. A small tensor is gathered and
# added by every rank. Of a large tensor each rank adds one piece. A backend's own all-reduce adds
# in an order that depends on the position of the element in the message, so that another grouping
# of tensors would change the last bits.


#: Tensors of at most this many bytes are gathered and added by every rank, in one round instead of
#: two.
_SMALL = 1 << 13


def sum_over_ranks(channel: Channel, tensor: Tensor, header: Header, weight: float | None) -> Tensor:
    code = dtype_code(tensor.dtype)
    if not tensor.is_contiguous():
        raise ValueError("the tensor must be contiguous; call .contiguous() first")
    if weight is not None and not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"weight must be finite and not negative, not {weight}")
    if weight is not None and not tensor.dtype.is_floating_point:
        raise TypeError(f"only floating-point tensors can be weighted, not {tensor.dtype}")
    flat = tensor.detach().view(-1)
    size = flat.numel() * flat.itemsize
    with channel.exchange(Operation.REDUCTION, header, size, code) as exchange:
        bits = 0 if weight is None else struct.unpack("<q", struct.pack("<d", weight))[0]
        if size <= _SMALL:
            arriving = count_to_all(exchange, as_bytes(flat), 1, bits)
            everyone = flat.new_empty(exchange.size, flat.numel())
            send_to_all(exchange, as_bytes(everyone), as_bytes(flat), [size] * exchange.size)
            flat.copy_(ordered_sum(list(everyone), _shares(arriving, weight)))
        else:
            sizes = [piece.numel() * flat.itemsize for piece in flat.tensor_split(exchange.size)]
            arriving = exchange.counts(
                [0] * exchange.size, [bits] * exchange.size, lambda: as_bytes(flat), sizes
            )
            _sum_pieces(exchange, flat, sizes, _shares(arriving, weight))
    return tensor


def _shares(received: ReceivedCounts, weight: float | None) -> list[float] | None:
    """Returns every rank's share of the weights; 0 if all weights are 0. A weight travels with the
    counts, as the bits of a double."""
    if weight is None:
        return None
    weights = [struct.unpack("<d", struct.pack("<q", bits))[0] for bits in received.numbers]
    total = math.fsum(weights)
    return [each / total if total else 0.0 for each in weights]


def _sum_pieces(exchange: Exchange, flat: Tensor, sent: list[int], weights: list[float] | None) -> None:
    """Adds piece r of all ranks' tensors on rank r, then gathers the sums. Small pieces came with
    the counts, and their sums are sent in messages, too."""
    pieces = flat.tensor_split(exchange.size)
    own = pieces[exchange.rank]
    everyone = flat.new_empty(exchange.size, own.numel())
    received = [own.numel() * flat.itemsize] * exchange.size

    def move() -> None:
        if exchange.transport.fits(max(sent), max(sent)):
            exchange.transport.all_to_all(as_bytes(everyone), as_bytes(flat), received, sent)
        else:
            sends = [as_bytes(piece) for piece in pieces]
            exchange.transport.pairwise_exchange(as_bytes(everyone).split(received), sends, max(sent))

    away = sum(sent) - sent[exchange.rank]
    exchange.data(move, as_bytes(everyone), received, sent=away)
    own.copy_(ordered_sum(list(everyone), weights))
    if exchange.has_room(max(sent), max(sent)):
        nothing = [0] * exchange.size
        exchange.counts(nothing, None, lambda: torch.cat([as_bytes(own)] * exchange.size), received)
    send_to_all(exchange, as_bytes(flat), as_bytes(own), sent)


def ordered_sum(terms: list[Tensor], weights: list[float] | None) -> Tensor:
    """Returns terms[0] + terms[1] + ..., added from the left. Terms of weight 0 are left out, and
    16-bit floats added in float32 and rounded once."""
    dtype = terms[0].dtype
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    if weights is not None:
        pairs = [(term, weight) for term, weight in zip(terms, weights, strict=True) if weight]
        terms = [term.to(wide) * weight for term, weight in pairs]
    if not terms:
        return torch.zeros((), dtype=dtype)
    total = terms[0].to(wide, copy=True)
    for term in terms[1:]:
        total += term.to(wide)
    return total.to(dtype)


def gather_values(
    channel: Channel, value: Any, header: Header, operation: Operation = Operation.VALUES
) -> list[Any]:
    text = json.dumps(value).encode()
    own = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    with channel.exchange(operation, header, row_bytes=1) as exchange:
        sizes = count_to_all(exchange, own, len(text)).rows
        out = torch.empty(sum(sizes), dtype=torch.uint8)
        send_to_all(exchange, out, own, sizes)
        try:
            return [json.loads(part.numpy().tobytes()) for part in out.split(sizes)]
        except ValueError as error:
            raise CommError(f"a rank sent no JSON ({error}); does it run another release?") from error


def broadcast(channel: Channel, tensor: Tensor, source: int, header: Header) -> Tensor:
    if not 0 <= source < channel.size:
        raise ValueError(f"source must be a rank below {channel.size}, not {source}")
    if not tensor.is_contiguous():
        raise ValueError("the tensor must be contiguous; call .contiguous() first")
    flat = as_bytes(tensor)
    with channel.exchange(Operation.BROADCAST, header, len(flat), dtype_code(tensor.dtype)) as exchange:
        own = flat if channel.rank == source else flat[:0]
        sources = count_to_all(exchange, own, int(channel.rank == source), source).numbers
        if len(set(sources)) > 1:
            odd = [rank for rank, theirs in enumerate(sources) if theirs != source]
            raise DivergenceError(
                f"ranks broadcast from different sources: {dict(enumerate(sources))} (by rank)", odd
            )
        received = [len(flat) if rank == source else 0 for rank in range(channel.size)]
        send_to_all(exchange, flat, own, received)
    return tensor


def barrier(channel: Channel, header: Header) -> None:
    with channel.exchange(Operation.BARRIER, header) as exchange:
        exchange.counts([0] * channel.size)


def check_agreement(channel: Channel, values: Mapping[str, Any], header: Header) -> None:
    """As `Collectives.check_agreement`, over a channel."""
    texts = {name: json.dumps(value, sort_keys=True) for name, value in values.items()}
    answers: list[dict[str, str]] = gather_values(channel, texts, header, Operation.AGREEMENT)
    names = sorted({name for answer in answers for name in answer})
    said = {name: [answer.get(name, "nothing") for answer in answers] for name in names}
    said = {name: by_rank for name, by_rank in said.items() if len(set(by_rank)) > 1}
    if not said:
        return
    lines, odd = list[str](), set[int]()
    for name, by_rank in said.items():
        common, ranks = max(by_rank, key=by_rank.count), dict[str, list[int]]()
        for rank, text in enumerate(by_rank):
            ranks.setdefault(text, []).append(rank)
        odd.update(rank for text, of in ranks.items() if text != common for rank in of)
        words = (
            f"{text} on rank{'s' if len(of) > 1 else ''} {', '.join(map(str, of))}"
            for text, of in ranks.items()
        )
        lines.append(f"{name}: {', '.join(words)}")
    raise AgreementError(
        f"ranks were given different arguments: {'; '.join(lines)}; start every rank with the same",
        sorted(odd),
    )


#: Makes the error that every rank raises, from the text of each rank that failed, by rank.
MakeError = Callable[[Mapping[int, str]], Exception]


def name_failures(problems: Mapping[int, str], hosts: Sequence[int]) -> str:
    return "; ".join(f"rank {rank} (host {hosts[rank]}): {text}" for rank, text in problems.items())
