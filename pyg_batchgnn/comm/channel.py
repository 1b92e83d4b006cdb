"""One process group with its status board and its counters. Every `Exchange` begins here."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor

from pyg_batchgnn.comm.diagnosis import (
    LINE_BYTES,
    BrokenCommunicatorError,
    CommError,
    DivergenceError,
    Evidence,
    Failure,
    Liveness,
    Peer,
    PeerError,
    RankPhase,
    StatusBoard,
    StatusLines,
    diagnose,
)
from pyg_batchgnn.comm.message import (
    AGREED,
    INT_LIMIT,
    BackendMailbox,
    CommCounters,
    Header,
    Mailbox,
    Message,
    Operation,
    Purpose,
    SharedMailbox,
    Transport,
    TransportError,
    TransportTimeout,
    describe,
    read_data,
    write_data,
)

#: Seconds between two checks of the peers while this rank waits.
_CHECK_INTERVAL = 0.5

#: The channels of this process. What a silent peer does in another channel helps to explain a
#: failure.
_CHANNELS: weakref.WeakSet[Channel] = weakref.WeakSet()


class PeerFailure(Exception):  # noqa: N818
    """Another rank has reported a failure, or a process of this machine has ended."""

    def __init__(self, failure: Failure | None) -> None:
        super().__init__("a peer failed")
        self.failure = failure


class Channel:
    """The numbered exchanges of one process group. A wait ends a little before ``timeout`` seconds
    (a twentieth, at most one second), so that the error that names the peer comes in time."""

    def __init__(
        self,
        name: str,  # what users call the communicator
        group: dist.ProcessGroup | None,  # None in a world of one rank
        board: StatusBoard | None,  # where ranks write what they enter; None in a world of one rank
        peers: Sequence[Peer],  # all ranks, this one included
        rank: int,
        timeout: float,
        limit: int = INT_LIMIT,  # bytes that one call of the backend may carry
    ) -> None:
        self.name, self.rank, self.size = name, rank, len(peers)
        self.peers, self.timeout, self.group, self.board = list(peers), timeout, group, board
        self.counters = CommCounters()
        self.last_exchange = 0  # the number of the last exchange that was entered
        self.broken: CommError | None = None
        self.stopping = threading.Event()
        self._reserve = min(1.0, timeout / 20)
        self._last_check = 0.0
        #: moves data that do not travel with the counts
        self.transport = Transport(group, rank, self.size, timeout - self._reserve, self._check_peers, limit)
        self._backend = BackendMailbox(self.transport, self.size)
        self.mailbox: Mailbox = self._backend  # carries the counts, and data that are small
        _CHANNELS.add(self)

    @contextlib.contextmanager
    def exchange(
        self, operation: Operation, header: Header, row_bytes: int = 0, dtype: int = -1
    ) -> Iterator[Exchange]:
        """Enters the next exchange. An error inside breaks the channel, since the ranks are then in
        different exchanges. Raises a CommError that names the peer."""
        if self.broken is not None:
            raise BrokenCommunicatorError(
                f"communicator {self.name!r} cannot be used any more: {self.broken}", self.broken.ranks
            )
        self.last_exchange += 1
        purpose = Purpose(self.last_exchange, operation, header, row_bytes, dtype)
        if self.board is not None:
            self.board.enter(self.last_exchange, str(purpose))
        exchange = Exchange(self, purpose)
        try:
            yield exchange
        except (TransportError, TransportTimeout, PeerFailure) as error:
            report, explained = self._explain(exchange, error)
            raise self.fail(explained, report) from error
        except BaseException as error:
            text = f"rank {self.rank} met {named(error)} in exchange {purpose.exchange} ({purpose})"
            self.fail(error if isinstance(error, CommError) else CommError(text, [self.rank]))
            raise

    def share_messages(self, blocks: Mapping[int, Tensor]) -> None:
        """Sends messages (`SharedMailbox`) and statuses (`StatusLines`) through memory from now
        on."""
        self.mailbox = SharedMailbox(blocks, self.rank, self.timeout - self._reserve, self._check_peers)
        if self.board is not None:
            lines = {rank: block[-LINE_BYTES:] for rank, block in blocks.items()}
            self.board.share(StatusLines(lines, self.rank))

    def _release_memory(self) -> None:
        """Drops the memory of `share_messages`; an exchange under way keeps its mailbox."""
        self.mailbox = self._backend
        if self.board is not None:
            self.board.share(None)

    def fail(self, error: CommError, report: str = "") -> CommError:
        """Breaks the channel and sends the other ranks ``report``, by default the error's text.
        Returns the error."""
        if self.broken is None:
            self.broken = error
            if self.board is not None:
                report = report or str(error)
                failure = Failure(self.rank, error.ranks, self.last_exchange, report)
                self.board.report(failure, self._reserve)
                self.board.leave(RankPhase.FAILED, self.last_exchange, report)
            if self.group is not None:  # kept for ever: destroying it would wait for its collective
                ABANDONED.append(self.name)
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.group))
            self._release_memory()
        return error

    def close(self, reason: str = "") -> None:
        """Leaves the channel without waiting for peers, and destroys the process group. A broken
        channel's group was abandoned before."""
        if self.broken is not None:
            return
        self.broken = CommError(reason or "it was closed", [self.rank])
        self.stopping.set()
        if self.board is not None:
            self.board.leave(RankPhase.CLOSED, self.last_exchange, reason)
        if self.group is not None and dist.is_initialized():  # the user may have destroyed all groups
            dist.destroy_process_group(self.group)
        self.group = None
        self._release_memory()

    def _check_peers(self, waited: float) -> None:
        """Called by `Transport` after each slice of a wait; raises if a peer failed."""
        if self.stopping.is_set():
            raise TransportError("this process is ending")
        if waited < _CHECK_INTERVAL:
            self._last_check = 0.0
        if waited - self._last_check < _CHECK_INTERVAL or self.board is None:
            return
        self._last_check = waited
        failure = self.board.failure(self._reserve)
        if failure is not None or self._somebody_is_missing(self.board):
            raise PeerFailure(failure)

    def _somebody_is_missing(self, board: StatusBoard) -> bool:
        """Returns whether a process of this machine ended, or a rank closed the channel, before the
        exchange was finished."""
        missing = {peer.rank for peer in self.peers if peer.process.liveness() is Liveness.GONE}
        if not missing and not board.anybody_left(self._reserve):
            return False
        statuses = board.statuses(self._reserve)
        if statuses is None:
            return bool(missing)
        missing.update(rank for rank, status in statuses.items() if status.phase is RankPhase.CLOSED)
        return any(not statuses[rank].finished(self.last_exchange) for rank in missing)

    def _explain(self, exchange: Exchange, error: Exception) -> tuple[str, PeerError]:
        """Returns the report for others and the error to raise. Another rank's report counts
        first."""
        waited = time.monotonic() - exchange.entered
        failure = error.failure if isinstance(error, PeerFailure) else None
        if failure is None and self.board is not None:
            failure = self.board.failure(self._reserve / 2)
        if failure is None:
            failure = self._diagnose(exchange, error, waited)
            if self.board is not None:  # a rank that reported and ended meanwhile is not at fault
                failure = self.board.failure(self._reserve / 2) or failure
        if failure.rank == self.rank:
            ranks, text = failure.ranks, failure.text
        else:
            ranks = failure.ranks or (failure.rank,)
            text = f"{failure.text} (reported by rank {failure.rank} in exchange {failure.exchange}; "
            text += f"rank {self.rank} waited {waited:.1f} s of {self.timeout:.0f} s)"
        where = f"exchange {self.last_exchange} of communicator {self.name!r} ({exchange.purpose}) failed"
        remedy = "see the output of the rank that is named; start again from the last checkpoint"
        return failure.text, PeerError(f"{where}: {text}; {remedy}", ranks, self.last_exchange, waited)

    def _diagnose(self, exchange: Exchange, error: Exception, waited: float) -> Failure:
        text, seconds = str(error) if isinstance(error, TransportError) else "", self._reserve / 2
        statuses = None if self.board is None else self.board.statuses(seconds)
        evidence = Evidence(
            rank=self.rank,
            communicator=self.name,
            exchange=self.last_exchange,
            purpose=str(exchange.purpose),
            waited=waited,
            timeout=self.timeout,
            timed_out=isinstance(error, TransportTimeout) or "timed out" in text.lower(),
            text=text,
            statuses=statuses,
            elsewhere=self._elsewhere(seconds) if statuses else {},
        )
        return diagnose(evidence, self.peers)

    def _elsewhere(self, seconds: float) -> dict[int, str]:
        """Returns by rank what it last did in other communicators of this process."""
        found: dict[int, list[str]] = {}
        for other in sorted(_CHANNELS, key=lambda other: other.name):
            if other is self or other.board is None:
                continue
            for rank, status in (other.board.statuses(seconds) or {}).items():
                if status.phase is RankPhase.ENTERED:
                    text = f"exchange {status.exchange} of communicator {other.name!r} ({status.text})"
                    found.setdefault(rank, []).append(f"last entered {text}")
        return {rank: " and ".join(texts) for rank, texts in found.items()}


def named(error: BaseException) -> str:
    return ": ".join(filter(None, [type(error).__name__, str(error)]))


@dataclass(frozen=True)
class ReceivedCounts:
    rows: list[int]  # the rows that follow, by sender
    largest: int  # bytes of the largest message between two different ranks, over all ranks
    kept: int  # the most bytes that any rank keeps for itself
    numbers: list[int]  # the operation's own number, by sender


class Exchange:
    """One numbered exchange. All ranks must agree on its ``purpose``."""

    def __init__(self, channel: Channel, purpose: Purpose) -> None:
        self.purpose, self.entered = purpose, time.monotonic()
        self.rank, self.size, self.transport = channel.rank, channel.size, channel.transport
        self._channel, self._mailbox = channel, channel.mailbox
        self._along: Sequence[Message] | None = None  # messages that brought the data along

    def counts(
        self,
        rows: Sequence[int],
        numbers: Sequence[int] | None = None,
        data: Callable[[], Tensor] | None = None,
        sizes: Sequence[int] | None = None,
    ) -> ReceivedCounts:
        """Exchanges messages of a fixed size that say how much data follows, and checks that all
        ranks are in the same exchange; else raises DivergenceError on every rank. Data that fit
        into these messages for any two ranks travel in them. All ranks know all sizes, so they
        agree.

        ``rows``: the number for each rank. ``numbers``: any 64-bit number for each rank, by default
        0. ``data``: returns the bytes of all rows, by rank, that this exchange moves next; by
        default data never travel with the counts. ``sizes``: the bytes of ``data`` for each rank,
        by default the rows'.
        """
        if sizes is None:
            sizes = [count * self.purpose.row_bytes for count in rows]
        largest = max((size for rank, size in enumerate(sizes) if rank != self.rank), default=0)
        kept = sizes[self.rank]
        agreed = self.purpose.numbers()
        own = [0] * self.size if numbers is None else numbers
        messages = self._mailbox.outgoing()
        for message, count, number in zip(messages, rows, own, strict=True):
            message.numbers[:] = [*agreed, count, largest, kept, number]
        if data is not None and self.has_room(largest, kept):
            write_data(messages, data(), sizes)
        started = time.perf_counter()
        found = self._mailbox.swap()
        self._channel.counters.add(
            self.purpose.header.kind,
            seconds=time.perf_counter() - started,
            count_rounds=1,
            count_bytes=2 * (self.size - 1) * self._mailbox.message_bytes,
        )
        lists: list[list[int]] = [message.numbers.tolist() for message in found]
        self._check(agreed, lists)
        for rank, (count, most, kept) in enumerate(one[AGREED : AGREED + 3] for one in lists):
            if not 0 <= count * self.purpose.row_bytes <= (kept if rank == self.rank else most):
                said = f"rank {rank} announces {count} rows in messages of at most {most} bytes"
                raise CommError(f"{said}; does it run another release?", [rank])
        columns = list(zip(*lists, strict=True))[AGREED:]
        received = ReceivedCounts(list(columns[0]), max(columns[1]), max(columns[2]), list(columns[3]))
        if data is not None and self.has_room(received.largest, received.kept):
            self._along = found
        return received

    def has_room(self, largest: int, kept: int) -> bool:
        """Returns whether data fit into the counts' messages: at most ``largest`` bytes to another
        rank, ``kept`` to itself. Data beyond one call of the backend never do."""
        return max(largest, kept) <= self._mailbox.room and self.transport.fits(largest, kept)

    def data(
        self,
        move: Callable[[], None],
        out: Tensor,
        received: Sequence[int],
        *,
        sent: int,
        rows: tuple[int, int] = (0, 0),
    ) -> None:
        """Moves and counts one round of data. Data that came with the counts are copied, and count
        as a round, too. ``move``: fills ``out`` [sum(received)] uint8, by rank, with `transport`.
        ``received``: bytes from each rank, this one included. ``sent``: bytes to other ranks.
        ``rows``: numbers to and from other ranks."""
        started = time.perf_counter()
        if self._along is None:
            move()
        elif max(received) > self._mailbox.room:
            raise CommError("a rank sent less than the exchange needs; does it run another release?")
        else:
            read_data(self._along, out, received)
            self._along = None
        self._channel.counters.add(
            self.purpose.header.kind,
            seconds=time.perf_counter() - started,
            rounds=1,
            rows_sent=rows[0],
            rows_received=rows[1],
            bytes_sent=sent,
            bytes_received=sum(received) - received[self.rank],
        )

    def _check(self, own: list[int], lists: list[list[int]]) -> None:
        """Raises DivergenceError on every rank if their headers differ."""
        headers = [tuple(numbers[:AGREED]) for numbers in lists]
        if len(set(headers)) == 1:
            return
        common, _ = max(Counter(headers).items(), key=lambda item: (item[1], item[0] == tuple(own)))
        odd = [rank for rank, header in enumerate(headers) if header != common]
        positions = "; ".join(
            f"rank {peer.rank} (host {peer.host}) is in {describe(header)}"
            for peer, header in zip(self._channel.peers, headers, strict=True)
        )
        raise DivergenceError(
            f"ranks diverged in communicator {self._channel.name!r}: {positions}; every rank must make the "
            "same exchanges in the same order",
            odd,
        )


#: The channels whose process groups broke in the middle of a collective.
ABANDONED: list[str] = []
