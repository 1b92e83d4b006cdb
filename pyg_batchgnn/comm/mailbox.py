"""The ways of messages of fixed size: through the backend, or through memory that ranks share."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import AllToAllOptions

from pyg_batchgnn.comm.message import NUMBERS_BYTES, Message
from pyg_batchgnn.ops import Turns
from pyg_batchgnn.versions import private

#: Bytes that one call may send or receive: some backends take them as C ints.
INT_LIMIT = 2**31 - 1

#: The timeout of backends that count clock time, also while the whole job is suspended. `wait_for`
#: bounds the call instead, and does not count that time.
_NO_TIMEOUT = timedelta(days=365)
_TAKES_TIMEOUT = {"gloo", "ccl"}
_backend = private(dist.ProcessGroup, "_get_backend")


class Transport:
    """Moves bytes between the ranks of one process group by the uneven all-to-all alone, so that it
    works on any backend with ``alltoall_base`` on the CPU."""

    def __init__(
        self,
        group: dist.ProcessGroup | None,  # None in a world of one rank, where nothing moves
        rank: int,
        size: int,
        timeout: float,  # seconds that one call may take
        check: Callable[[float], None],  # called while waiting (`wait_for`)
        limit: int = INT_LIMIT,  # larger messages are cut into pieces
    ) -> None:
        if not size <= limit <= INT_LIMIT:
            raise ValueError(f"limit must be from {size} (the ranks) to {INT_LIMIT} bytes, not {limit}")
        self._group, self._rank, self._size = group, rank, size
        self._timeout, self._check, self._limit = timeout, check, limit
        self._takes_timeout = (
            group is not None and _backend(group, torch.device("cpu")).name() in _TAKES_TIMEOUT
        )

    def fits(self, largest: int, kept: int) -> bool:
        """Returns whether ``largest`` bytes to one rank and ``kept`` to itself fit one call."""
        return largest * (self._size - 1) + kept <= self._limit

    def all_to_all(self, out: Tensor, rows: Tensor, received: Sequence[int], sent: Sequence[int]) -> None:
        """Exchanges messages with all peers in one call. ``out`` [sum(received)] and ``rows``
        [sum(sent)] are by rank, of one dtype."""
        if self._group is None:
            out.copy_(rows)
        else:
            self._wait(self._start(out, rows, received, sent))

    def pairwise_exchange(self, receives: Sequence[Tensor], sends: Sequence[Tensor], largest: int) -> None:
        """Exchanges messages [bytes] with one pair of peers per call: in step s with rank + s and
        rank - s. Messages too large for one call are cut into pieces. ``largest``: the most bytes
        that any rank sends to another."""
        receives[self._rank].copy_(sends[self._rank])
        for begin in range(0, largest, self._limit):
            piece, steps = slice(begin, begin + self._limit), []
            for step in range(1, self._size):
                to, source = (self._rank + step) % self._size, (self._rank - step) % self._size
                rows, out = sends[to][piece], receives[source][piece]
                sent, received = [0] * self._size, [0] * self._size
                sent[to], received[source] = len(rows), len(out)
                steps.append(self._start(out, rows, received, sent))
            for work in steps:
                self._wait(work)

    def _start(self, out: Tensor, rows: Tensor, received: Sequence[int], sent: Sequence[int]) -> Work:
        assert self._group is not None
        options = AllToAllOptions()
        options.asyncOp = True
        if self._takes_timeout:
            options.timeout = _NO_TIMEOUT
        try:
            return self._group.alltoall_base(out, rows, list(received), list(sent), options)
        except RuntimeError as error:  # a connection that is known to be gone refuses at once
            raise TransportError(str(error)) from error

    def _wait(self, work: Work) -> None:
        wait_for(functools.partial(has_ended, work), self._timeout, self._check)


def as_bytes(rows: Tensor) -> Tensor:
    """Returns a contiguous tensor's memory as a uint8 vector, without a copy."""
    flat = rows.detach().reshape(-1)
    if flat.numel() < 2:
        flat = flat.as_strided((flat.numel(),), (1,))  # the stride of a single element may be anything
    return flat if flat.dtype == torch.uint8 else flat.view(torch.uint8)


#: Bytes of data that have room in a message of the backend. With them it fits one packet of a
#: network with frames of 1500 bytes, and on loopback it takes as long as the numbers alone.
ROOM = 512

#: The bytes that all messages of one rank take in shared memory, while there are fewer than 3,000
#: ranks. If there are 4 ranks, a message has room for 512 KB.
_ALL_MESSAGES = 4 << 20
#: Bytes of a cache line. A rank's word has one of its own, before the messages.
_LINE = 64


class Mailbox(Protocol):
    """Carries one message of fixed size from every rank to every rank at a time."""

    room: int  # bytes of data that a message has room for, equal on all ranks
    message_bytes: int  # bytes that a message takes whatever it carries, for the counters

    def outgoing(self) -> Sequence[Message]:
        """Returns the messages to all ranks, to be overwritten by the caller."""
        ...

    def swap(self) -> Sequence[Message]:
        """Sends the `outgoing` messages; returns all ranks' messages, valid until the next swap."""
        ...


class BackendMailbox:
    """Messages through the backend, all in one call."""

    def __init__(self, transport: Transport, size: int) -> None:
        self.room, self.message_bytes = ROOM, NUMBERS_BYTES + ROOM
        self._transport, self._shape = transport, (size, self.message_bytes // 8)
        self._sends = np.zeros(self._shape, np.int64)

    def outgoing(self) -> Sequence[Message]:
        self._sends = np.zeros(self._shape, np.int64)  # what is left of an earlier exchange stays here
        return [Message(words) for words in self._sends]

    def swap(self) -> Sequence[Message]:
        receives = np.empty(self._shape, np.int64)
        ranks, each = self._shape
        out, rows = (torch.from_numpy(words.reshape(-1)) for words in (receives, self._sends))
        self._transport.all_to_all(out, rows, [each] * ranks, [each] * ranks)
        return [Message(words) for words in receives]


class SharedMailbox:
    """Messages in memory that all ranks map, with more room and no copy by the system. Every rank
    writes its messages into its own block and then announces its turn in a word of the block. The
    block holds two turns, so that messages of turn t + 1 overwrite those of turn t - 1. A rank
    writes them after it has seen turn t of all others, who announce it after reading turn t - 1.
    ``blocks``: uint8 [block_bytes(ranks)] by rank, zeros at first."""

    def __init__(
        self, blocks: Mapping[int, Tensor], rank: int, timeout: float, check: Callable[[float], None]
    ) -> None:
        size, whole = len(blocks), _whole_message(len(blocks))
        self.room, self.message_bytes = whole - NUMBERS_BYTES, NUMBERS_BYTES
        self._timeout, self._check, self._turn = timeout, check, 0
        words = {at: block[:4].view(torch.int32) for at, block in blocks.items()}
        own = words.pop(rank)
        self._turns = Turns(own, list(words.values()))
        places = [
            block[_LINE : _LINE + 2 * size * whole].numpy().view(np.int64).reshape(2, size, -1)
            for _, block in sorted(blocks.items())
        ]
        self._outgoing = [[Message(words) for words in half] for half in places[rank]]
        self._incoming = [[Message(theirs[half][rank]) for theirs in places] for half in (0, 1)]

    def outgoing(self) -> Sequence[Message]:
        return self._outgoing[(self._turn + 1) % 2]

    def swap(self) -> Sequence[Message]:
        self._turn += 1
        self._turns.announce(self._turn)
        wait_for(functools.partial(self._turns.wait, self._turn), self._timeout, self._check)
        return self._incoming[self._turn % 2]


def block_bytes(ranks: int) -> int:
    return _LINE + 2 * ranks * _whole_message(ranks)


def _whole_message(ranks: int) -> int:
    least = -(-(NUMBERS_BYTES + ROOM) // _LINE) * _LINE
    return max(_ALL_MESSAGES // (2 * ranks) // _LINE * _LINE, least)


#: Seconds.
_SLICE = 0.1

#: The most seconds that one slice counts. When the whole job was stopped for a while (suspended by
#: a batch system, or SIGSTOP to all ranks), the time in between must not count against a peer.
_LONGEST = 1.0


class TransportError(RuntimeError):
    """A collective failed. The text is the backend's."""


class TransportTimeout(RuntimeError):  # noqa: N818
    """A collective did not end in time."""


class Work(Protocol):
    def wait(self, timeout: timedelta = ...) -> bool: ...
    def is_completed(self) -> bool: ...


def wait_for(ended: Callable[[float], bool], timeout: float, check: Callable[[float], None]) -> None:
    """Calls ``ended``, which waits for some seconds, until it returns True. Between these slices of
    the wait Ctrl-C takes effect, which a wait inside torch would delay to its end, and ``check`` is
    called with the seconds waited; it may raise. Raises TransportTimeout. (A backend whose ``wait``
    ignores its timeout is bounded by the process group's timeout alone.)"""
    waited, last = 0.0, time.monotonic()
    while not ended(_SLICE):
        now = time.monotonic()
        waited, last = waited + min(now - last, _LONGEST), now
        check(waited)
        if waited >= timeout:
            raise TransportTimeout(f"not ended after {waited:.1f} s")


def has_ended(work: Work, seconds: float) -> bool:
    """Waits ``seconds`` for a collective; returns whether it has ended. Raises TransportError if
    the backend reports a failure."""
    try:
        work.wait(timedelta(seconds=seconds))
    except RuntimeError as error:
        if not work.is_completed():
            return False
        try:
            work.wait()
        except RuntimeError as final:
            raise TransportError(str(final)) from error
    return True
