"""The board: where each rank writes down what it enters, so that others can say who is missing.

A thin layer over torch's key-value store. A note costs 2-4 us on loopback: the store does not answer a
``set``. The store may stop answering at any time, because the rank that hosts it was killed or stopped:
reading is done by a thread that may be left behind, and its failure is never an error of its own.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, TypeVar

from torch._C._distributed_c10d import PrefixStore, Store

from pyg_batchgnn.comm.errors import CommError, PeerError

T = TypeVar("T")


class RankState(Enum):
    """What a rank last did."""

    JOINED = "joined"
    ENTERED = "entered"
    CLOSED = "closed"
    FAILED = "failed"


@dataclass(frozen=True)
class Note:
    """A rank's last note: the number of its last exchange, and what that was or why there is no next one."""

    exchange: int
    state: RankState
    text: str


@dataclass(frozen=True)
class Failure:
    """The first failure that a rank of the communicator met; everybody else's follow from it."""

    rank: int  # who wrote it
    ranks: tuple[int, ...]  # whom it is about
    exchange: int
    text: str


class Board:
    """Notes of all ranks of one communicator.

    Args:
        store: torch's key-value store; the board opens connections of its own, because one that waits for an
            answer blocks every other use of it.
        prefix: the communicator's namespace in the store, the same on every rank.
        rank, size: as in the process group.
    """

    def __init__(self, store: Store, prefix: str, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._writer = PrefixStore(prefix, _clone(store))
        self._reader = _Reader(PrefixStore(prefix, _clone(store)))
        self.lost = ""  # why nothing can be written any more

    def join(self, card: dict[str, Any], timeout: float) -> list[dict[str, Any]]:
        """Shows this rank's card and waits for everyone's; cards come back by rank."""
        self._writer.set(f"note/{self._rank}", _encode(Note(0, RankState.JOINED, "")))
        self._writer.set(f"card/{self._rank}", json.dumps(card))
        keys = [f"card/{rank}" for rank in range(self._size)]
        started, pause = time.monotonic(), 0.002
        while not self._writer.check(keys):
            if time.monotonic() - started > timeout:
                absent = [rank for rank, key in enumerate(keys) if not self._writer.check([key])]
                if absent:
                    raise PeerError(
                        f"rank {_list(absent)} never came to make communicator {card.get('name')!r} within "
                        f"{timeout:.0f} s; every rank must make the same communicators in the same order, "
                        "so see the output of those ranks, or raise the timeout",
                        absent,
                        waited=timeout,
                    )
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
        return [json.loads(self._writer.get(key)) for key in keys]

    def enter(self, exchange: int, text: str) -> None:
        """Notes that this rank enters an exchange; called before every one."""
        self._write(Note(exchange, RankState.ENTERED, text))

    def leave(self, state: RankState, exchange: int, text: str) -> None:
        """Notes that this rank will enter no further exchange, and why."""
        self._write(Note(exchange, state, text))

    def _write(self, note: Note) -> None:
        if self.lost:
            return
        try:
            self._writer.set(f"note/{self._rank}", _encode(note))
        except RuntimeError as error:  # the exchange itself will say whether peers are gone too
            self.lost = str(error).splitlines()[0]

    def report(self, failure: Failure, seconds: float) -> Failure | None:
        """Writes down a failure unless another rank did so before; returns the one that stands."""
        text = json.dumps(asdict(failure))
        answer = self._reader.ask(lambda store: store.compare_set("failure", "", text), seconds)
        return _failure(answer) if answer else None

    def failure(self, seconds: float) -> Failure | None:
        """The first failure that any rank wrote down."""

        def look(store: Store) -> bytes | None:
            return store.get("failure") if store.check(["failure"]) else None

        answer = self._reader.ask(look, seconds)
        return _failure(answer) if answer else None

    def notes(self, seconds: float) -> dict[int, Note] | None:
        """Everyone's last note; None where the store does not answer."""
        keys = [f"note/{rank}" for rank in range(self._size)]
        answer = self._reader.ask(lambda store: store.multi_get(keys), seconds)
        return None if answer is None else {rank: _decode(text) for rank, text in enumerate(answer)}


class _Reader:
    """Asks the store without ever waiting longer than told.

    A question that is not answered in time keeps its thread and the connection; until it is answered, later
    questions get no answer at once.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending: threading.Thread | None = None

    def ask(self, question: Callable[[Store], T], seconds: float) -> T | None:
        if self._pending is not None and self._pending.is_alive():
            return None
        answers: list[T] = []

        def run() -> None:
            with contextlib.suppress(RuntimeError):  # the store is gone: no answer
                answers.append(question(self._store))

        self._pending = threading.Thread(target=run, name="comm board", daemon=True)
        self._pending.start()
        self._pending.join(seconds)
        return answers[0] if answers else None


def _clone(store: Store) -> Store:
    """A connection of one's own, where the kind of store has connections."""
    try:
        copy: Store = store.clone()  # type: ignore[attr-defined]  # not in torch's own stubs
    except (RuntimeError, NotImplementedError):
        return store
    copy.set_timeout(timedelta(seconds=5))  # keys that are read exist: only a stopped store lets one wait
    return copy


def _encode(note: Note) -> str:
    return f"{note.exchange}|{note.state.value}|{note.text}"


def _decode(text: bytes) -> Note:
    exchange, state, rest = text.decode().split("|", 2)
    return Note(int(exchange), RankState(state), rest)


def _failure(text: bytes) -> Failure:
    record = json.loads(text)
    try:
        return Failure(int(record["rank"]), tuple(record["ranks"]), record["exchange"], record["text"])
    except (KeyError, TypeError) as error:
        raise CommError(f"the store holds a failure that cannot be read: {text!r}") from error


def _list(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))
