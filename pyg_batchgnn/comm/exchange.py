"""One numbered exchange under way: first the counts, with small data, then larger data."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from pyg_batchgnn.comm.counters import CommCounters
from pyg_batchgnn.comm.errors import DivergenceError
from pyg_batchgnn.comm.header import AGREED, MessageKind, Purpose, describe
from pyg_batchgnn.comm.mailbox import Mailbox
from pyg_batchgnn.comm.message import Message, read_data, write_data
from pyg_batchgnn.comm.transport import Transport


@dataclass(frozen=True)
class Link:
    """The part of a channel that an exchange uses.

    Attributes:
        name: the communicator's name, for messages.
        rank: this process's rank.
        hosts: the host number of every rank.
        mailbox: carries the counts, and data that are small.
        transport: moves larger data.
        counters: counts rounds, rows, bytes and seconds.
    """

    name: str
    rank: int
    hosts: Sequence[int]
    mailbox: Mailbox
    transport: Transport
    counters: CommCounters


@dataclass(frozen=True)
class ReceivedCounts:
    """The result of the exchange of counts.

    Attributes:
        rows: the rows that follow, by sender.
        largest: bytes of the largest message between two different ranks, over all ranks.
        kept: the most bytes that any rank keeps for itself.
        numbers: the operation's own number, by sender.
    """

    rows: list[int]
    largest: int
    kept: int
    numbers: list[int]


class Exchange:
    """One numbered exchange under way.

    Attributes:
        purpose: what all ranks must agree on.
        entered: the monotonic clock when this rank entered, in seconds.
        rank, size: this process's rank, and the number of ranks.
        transport: moves data that do not travel with the counts.
    """

    def __init__(self, link: Link, purpose: Purpose) -> None:
        self.purpose, self.entered = purpose, time.monotonic()
        self.rank, self.size = link.rank, len(link.hosts)
        self.transport = link.transport
        self._link = link
        self._along: Sequence[Message] | None = None  # messages that brought the data along

    @property
    def _kind(self) -> MessageKind:
        return self.purpose.header.kind

    def counts(
        self,
        rows: Sequence[int],
        numbers: Sequence[int] | None = None,
        data: Callable[[], Tensor] | None = None,
        sizes: Sequence[int] | None = None,
    ) -> ReceivedCounts:
        """Exchanges messages of a fixed size that say how much data follows. Checks that all ranks
        are in the same exchange.

        Where the data between no two ranks take more than a message has room for, they travel in
        these messages. All ranks know all sizes, so they agree whether it is so.

        Args:
            rows: the rows that will go to each rank.
            numbers: any 64-bit number for each rank, by default 0.
            data: returns the bytes of all rows, those for rank 0 first. They are the next data
                that this exchange moves. By default data never travel with the counts.
            sizes: the bytes of ``data`` for each rank, by default those of the rows.

        Raises:
            DivergenceError: on every rank, where ranks are in different exchanges.
        """
        if sizes is None:
            sizes = [count * self.purpose.row_bytes for count in rows]
        largest = max((size for rank, size in enumerate(sizes) if rank != self.rank), default=0)
        kept = sizes[self.rank]
        agreed = self.purpose.numbers()
        own = [0] * self.size if numbers is None else numbers
        messages = self._link.mailbox.outgoing()
        for message, count, number in zip(messages, rows, own, strict=True):
            message.numbers[:] = [*agreed, count, largest, kept, number]
        if data is not None and self.has_room(largest, kept):
            write_data(messages, data(), sizes)
        answers = self._swap()
        lists: list[list[int]] = [message.numbers.tolist() for message in answers]
        self._check(agreed, lists)
        columns = list(zip(*lists, strict=True))[AGREED:]
        received = ReceivedCounts(list(columns[0]), max(columns[1]), max(columns[2]), list(columns[3]))
        if data is not None and self.has_room(received.largest, received.kept):
            self._along = answers
        return received

    def has_room(self, largest: int, kept: int) -> bool:
        """Returns whether data of these sizes travel with the counts. Data that one call of the
        backend may not carry never do.

        Args:
            largest: the most bytes that one rank sends to another.
            kept: the most bytes that any rank keeps.
        """
        return max(largest, kept) <= self._link.mailbox.room and self.transport.fits(largest, kept)

    def _swap(self) -> Sequence[Message]:
        """Sends the message to every rank and returns those that came."""
        mailbox, started = self._link.mailbox, time.perf_counter()
        answers = mailbox.swap()
        self._link.counters.add(
            self._kind,
            seconds=time.perf_counter() - started,
            count_rounds=1,
            count_bytes=2 * (self.size - 1) * mailbox.message_bytes,
        )
        return answers

    def data(
        self,
        move: Callable[[], None],
        out: Tensor,
        received: Sequence[int],
        *,
        sent: int,
        rows: tuple[int, int] = (0, 0),
    ) -> None:
        """Moves and counts one round of data. Data that came with the counts are only copied, and
        count as a round all the same.

        Args:
            move: fills ``out`` with `transport`.
            out: [sum(received)] bytes, filled by rank.
            received: bytes from each rank, this one included.
            sent: bytes to other ranks.
            rows: rows to and from other ranks.
        """
        started = time.perf_counter()
        if self._along is None:
            move()
        else:
            read_data(self._along, out, received)
            self._along = None
        self._link.counters.add(
            self._kind,
            seconds=time.perf_counter() - started,
            rounds=1,
            rows_sent=rows[0],
            rows_received=rows[1],
            bytes_sent=sent,
            bytes_received=sum(received) - received[self.rank],
        )

    def _check(self, own: list[int], lists: list[list[int]]) -> None:
        """Compares the headers. All ranks see all of them, so where one differs every rank
        raises."""
        headers = [tuple(numbers[:AGREED]) for numbers in lists]
        if len(set(headers)) == 1:
            return
        common, _ = max(Counter(headers).items(), key=lambda item: (item[1], item[0] == tuple(own)))
        odd = [rank for rank, header in enumerate(headers) if header != common]
        positions = "; ".join(
            f"rank {rank} (host {self._link.hosts[rank]}) is in {describe(header)}"
            for rank, header in enumerate(headers)
        )
        raise DivergenceError(
            f"ranks diverged in communicator {self._link.name!r}: {positions}; every rank must make the same "
            "exchanges in the same order",
            odd,
        )
