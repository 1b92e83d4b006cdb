"""One numbered exchange under way: counts first, then data."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pyg_batchgnn.comm.errors import DivergenceError
from pyg_batchgnn.comm.header import AGREED, NUMBERS, MessageKind, Purpose, describe

if TYPE_CHECKING:
    from pyg_batchgnn.comm.channel import Channel


@dataclass(frozen=True)
class Arrivals:
    """What the exchange of counts brought from every rank."""

    rows: list[int]  # rows that follow, by sender
    largest: int  # bytes of the largest message between two different ranks, over all ranks
    kept: int  # bytes of the most that a rank keeps for itself
    numbers: list[int]  # the operation's own number, by sender


class Step:
    """One numbered exchange under way."""

    def __init__(self, channel: Channel, purpose: Purpose) -> None:
        self.purpose, self.entered = purpose, time.monotonic()
        self._channel = channel

    @property
    def _kind(self) -> MessageKind:
        return self.purpose.header.kind

    def counts(self, rows: Sequence[int], numbers: Sequence[int] | None = None) -> Arrivals:
        """The fixed-size exchange before the data: who sends how much, and whether all are here for the same.

        Args:
            rows: rows that will go to each rank.
            numbers: any 64-bit number for each rank to know; 0 where None.
        """
        channel, row_bytes = self._channel, self.purpose.row_bytes
        away = [count for rank, count in enumerate(rows) if rank != channel.rank]
        largest, kept = max(away, default=0) * row_bytes, rows[channel.rank] * row_bytes
        agreed = self.purpose.numbers()
        said = [0] * channel.size if numbers is None else numbers
        messages = torch.tensor(
            [[*agreed, count, largest, kept, number] for count, number in zip(rows, said, strict=True)]
        )
        answers = torch.empty_like(messages)
        each = [NUMBERS] * channel.size
        with self._waiting():
            channel.transport.together(answers.view(-1), messages.view(-1), each, each)
        away_bytes = 2 * (channel.size - 1) * NUMBERS * messages.itemsize
        channel.counters.add(self._kind, count_rounds=1, count_bytes=away_bytes)
        lists: list[list[int]] = answers.tolist()
        self._check(agreed, lists)
        columns = list(zip(*lists, strict=True))[AGREED:]
        return Arrivals(list(columns[0]), max(columns[1]), max(columns[2]), list(columns[3]))

    def data(
        self, move: Callable[[], None], *, sent: int, received: int, rows: tuple[int, int] = (0, 0)
    ) -> None:
        """One round of data, counted.

        Args:
            move: moves them, by the channel's transport.
            sent, received: bytes to and from other ranks.
            rows: rows to and from other ranks.
        """
        with self._waiting():
            move()
        self._channel.counters.add(
            self._kind,
            rounds=1,
            rows_sent=rows[0],
            rows_received=rows[1],
            bytes_sent=sent,
            bytes_received=received,
        )

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - started
            self._channel.counters.add(self._kind, seconds=seconds)

    def _check(self, mine: list[int], lists: list[list[int]]) -> None:
        """All ranks see all headers: where one differs, every rank raises."""
        theirs = [tuple(numbers[:AGREED]) for numbers in lists]
        if len(set(theirs)) == 1:
            return
        common, _ = max(Counter(theirs).items(), key=lambda item: (item[1], item[0] == tuple(mine)))
        odd = [rank for rank, numbers in enumerate(theirs) if numbers != common]
        said = "; ".join(
            f"rank {rank} (host {self._channel.peers[rank].host}) is in {describe(numbers)}"
            for rank, numbers in enumerate(theirs)
        )
        raise DivergenceError(
            f"ranks diverged in communicator {self._channel.name!r}: {said}; every rank must make the same "
            "exchanges in the same order",
            odd,
        )
