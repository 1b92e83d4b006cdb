"""The status board: each rank writes which exchange it enters, so that others can name who is
missing.

The board is a thin layer over torch's key-value store. The store does not answer a ``set``, so
writing does not wait for it. The store may stop answering at any time, because the rank that hosts
it was killed or stopped. So a thread that may be left behind does the reading, and a failure to
read is never an error of its own. Ranks that share memory write there what they enter
(`StatusLines`), and only the rest to the store.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import Enum
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store

from pyg_batchgnn.comm.errors import CommError, PeerError
from pyg_batchgnn.comm.status_lines import StatusLines
from pyg_batchgnn.comm.store_reader import StoreReader

#: The key that the first rank to leave sets.
_LEFT = "left"


class RankPhase(Enum):
    """The last thing that a rank did."""

    JOINED = "joined"
    ENTERED = "entered"
    CLOSED = "closed"
    FAILED = "failed"


@dataclass(frozen=True)
class RankStatus:
    """The last status that a rank wrote.

    Attributes:
        exchange: the number of its last exchange.
        phase: what it did.
        text: what the exchange was for, or why no other one follows.
    """

    exchange: int
    phase: RankPhase
    text: str


@dataclass(frozen=True)
class Failure:
    """The first failure that a rank of the communicator met. All other failures follow from it.

    Attributes:
        rank: the rank that reported it.
        ranks: the ranks at fault.
        exchange: the number of the exchange.
        text: what happened.
    """

    rank: int
    ranks: tuple[int, ...]
    exchange: int
    text: str


class StatusBoard:
    """The status of all ranks of one communicator.

    Args:
        store: torch's key-value store. The board opens connections of its own, because a connection
            that waits for an answer blocks every other use of it.
        prefix: the communicator's namespace in the store, the same on every rank.
        rank, size: as in the process group.
    """

    def __init__(self, store: Store, prefix: str, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._writer = PrefixStore(prefix, _clone(store))
        self._reader = StoreReader(PrefixStore(prefix, _clone(store)))
        self._lost = False  # whether the store has refused a status
        self._lines: StatusLines | None = None

    def join(self, introduction: dict[str, Any], timeout: float) -> list[dict[str, Any]]:
        """Introduces this rank and waits for all others. Collective.

        Args:
            introduction: JSON values about this rank.
            timeout: seconds.

        Returns:
            The introductions of all ranks, by rank.

        Raises:
            PeerError: a rank has not come in time.
        """
        self._writer.set(f"status/{self._rank}", _encode(RankStatus(0, RankPhase.JOINED, "")))
        self._writer.set(f"introduction/{self._rank}", json.dumps(introduction))
        keys = [f"introduction/{rank}" for rank in range(self._size)]
        started, pause = time.monotonic(), 0.002
        while not self._writer.check(keys):
            if time.monotonic() - started > timeout:
                absent = [rank for rank, key in enumerate(keys) if not self._writer.check([key])]
                if absent:
                    raise _never_came(absent, introduction.get("name"), timeout)
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
        return [json.loads(self._writer.get(key)) for key in keys]

    def share(self, lines: StatusLines | None) -> None:
        """Lets this rank write in memory from now on what it enters, or no longer. Every rank does
        the same before its next exchange."""
        self._lines = lines
        if lines is not None:  # what the store has of the exchanges so far would grow old
            self._write(RankStatus(0, RankPhase.JOINED, ""))

    def enter(self, exchange: int, text: str) -> None:
        """Writes that this rank enters an exchange. Called before every exchange."""
        if self._lines is None:
            self._write(RankStatus(exchange, RankPhase.ENTERED, text))
        else:
            self._lines.write(exchange, text)

    def leave(self, phase: RankPhase, exchange: int, text: str) -> None:
        """Writes that this rank will enter no other exchange, and why."""
        self._write(RankStatus(exchange, phase, text))
        self._set(_LEFT, str(self._rank))

    def _write(self, status: RankStatus) -> None:
        self._set(f"status/{self._rank}", _encode(status))

    def _set(self, key: str, value: str) -> None:
        if self._lost:
            return
        try:
            self._writer.set(key, value)
        except RuntimeError:  # the exchange itself will tell whether peers are gone too
            self._lost = True

    def report(self, failure: Failure, seconds: float) -> Failure | None:
        """Writes a failure unless another rank has written one before.

        Returns:
            The failure that is on the board, or None where the store does not answer.
        """
        text = json.dumps(asdict(failure))
        answer = self._reader.ask(lambda store: store.compare_set("failure", "", text), seconds)
        return _failure(answer) if answer else None

    def failure(self, seconds: float) -> Failure | None:
        """Returns the first failure that any rank wrote, or None."""

        def look(store: Store) -> bytes | None:
            return store.get("failure") if store.check(["failure"]) else None

        answer = self._reader.ask(look, seconds)
        return _failure(answer) if answer else None

    def anybody_left(self, seconds: float) -> bool:
        """Returns whether any rank has left (`leave`). It asks for one key, whatever the ranks."""
        return bool(self._reader.ask(lambda store: store.check([_LEFT]), seconds))

    def statuses(self, seconds: float) -> dict[int, RankStatus] | None:
        """Returns the last status of every rank, or None where the store does not answer."""
        keys = [f"status/{rank}" for rank in range(self._size)]
        answer = self._reader.ask(lambda store: store.multi_get(keys), seconds)
        return (
            None if answer is None else {rank: self._latest(rank, text) for rank, text in enumerate(answer)}
        )

    def _latest(self, rank: int, stored: bytes) -> RankStatus:
        """Returns the last status of a rank, given that in the store."""
        status = _decode(stored)
        entered = None if self._lines is None else self._lines.read(rank)
        if entered is None or status.phase in (RankPhase.CLOSED, RankPhase.FAILED):
            return status
        return RankStatus(entered[0], RankPhase.ENTERED, entered[1])


def _never_came(absent: list[int], name: Any, timeout: float) -> PeerError:
    return PeerError(
        f"rank {', '.join(map(str, absent))} never came to make communicator {name!r} within "
        f"{timeout:.0f} s; every rank must make the same communicators in the same order, so see the "
        "output of those ranks, or raise the timeout",
        absent,
        waited=timeout,
    )


def _clone(store: Store) -> Store:
    """Returns a new connection to the store, or the store itself where it has no connections."""
    try:
        copy: Store = store.clone()  # type: ignore[attr-defined]  # not in torch's own stubs
    except (RuntimeError, NotImplementedError):
        return store
    copy.set_timeout(timedelta(seconds=5))  # keys that are read exist: only a stopped store waits
    return copy


def _encode(status: RankStatus) -> str:
    return f"{status.exchange}|{status.phase.value}|{status.text}"


def _decode(text: bytes) -> RankStatus:
    exchange, phase, rest = text.decode().split("|", 2)
    return RankStatus(int(exchange), RankPhase(phase), rest)


def _failure(text: bytes) -> Failure:
    record = json.loads(text)
    try:
        return Failure(int(record["rank"]), tuple(record["ranks"]), record["exchange"], record["text"])
    except (KeyError, TypeError) as error:
        raise CommError(f"the store holds a failure that cannot be read: {text!r}") from error
