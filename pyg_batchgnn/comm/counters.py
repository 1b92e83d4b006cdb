"""Counts of what was exchanged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from pyg_batchgnn.comm.header import MessageKind


@dataclass(frozen=True)
class KindCounts:
    """The counts of one kind of message, as one rank sees them.

    Rows and bytes are those that went to other ranks or came from them. What a rank keeps for
    itself is not counted.

    Attributes:
        rounds: exchanges of data. An exchange that is cut into pieces is one round, and so is one
            whose data are so small that they travel with the counts.
        count_rounds: fixed-size exchanges of counts, headers and small data.
        rows_sent, rows_received: rows, or items where an exchange said how many its rows hold.
        bytes_sent, bytes_received: bytes of the rows.
        count_bytes: bytes of the count rounds, sent and received: their fixed size, whatever data
            travel in them.
        seconds: time for which a thread waited for peers or data.
    """

    rounds: int = 0
    count_rounds: int = 0
    rows_sent: int = 0
    rows_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    count_bytes: int = 0
    seconds: float = 0.0

    def __add__(self, other: KindCounts) -> KindCounts:
        return self._each(other, lambda a, b: a + b)

    def __sub__(self, other: KindCounts) -> KindCounts:
        return self._each(other, lambda a, b: a - b)

    def _each(self, other: KindCounts, combine: Callable[[Any, Any], Any]) -> KindCounts:
        return KindCounts(*(combine(getattr(self, at.name), getattr(other, at.name)) for at in fields(self)))


class Counts(Mapping[MessageKind, KindCounts]):
    """The counts by kind at one moment, or between two moments (``later - earlier``)."""

    def __init__(self, by_kind: Mapping[MessageKind, KindCounts] | None = None) -> None:
        self._by_kind = {kind: (by_kind or {}).get(kind, KindCounts()) for kind in MessageKind}

    def __getitem__(self, kind: MessageKind) -> KindCounts:
        return self._by_kind[kind]

    def __iter__(self) -> Iterator[MessageKind]:
        return iter(self._by_kind)

    def __len__(self) -> int:
        return len(self._by_kind)

    def __add__(self, other: Counts) -> Counts:
        return Counts({kind: self[kind] + other[kind] for kind in self})

    def __sub__(self, other: Counts) -> Counts:
        return Counts({kind: self[kind] - other[kind] for kind in self})

    @property
    def total(self) -> KindCounts:
        """The sum over all kinds."""
        return sum(self.values(), KindCounts())

    def as_dict(self) -> dict[str, dict[str, float]]:
        """Returns plain numbers by the kind's name in lower case, for JSON."""
        return {kind.name.lower(): asdict(counts) for kind, counts in self.items()}

    def __str__(self) -> str:
        """Returns a table with one line per kind that was used, and a line for the total."""
        used = [(kind.name.lower(), counts) for kind, counts in self.items() if counts != KindCounts()]
        head = f"{'kind':<10}{'rounds':>9}{'counts':>9}{'rows out':>13}{'rows in':>13}"
        head += f"{'MB out':>11}{'MB in':>11}{'MB counts':>11}{'waited s':>10}"
        lines = [
            f"{name:<10}{row.rounds:>9,}{row.count_rounds:>9,}{row.rows_sent:>13,}{row.rows_received:>13,}"
            f"{row.bytes_sent / 1e6:>11,.2f}{row.bytes_received / 1e6:>11,.2f}"
            f"{row.count_bytes / 1e6:>11,.2f}{row.seconds:>10,.2f}"
            for name, row in [*used, ("total", self.total)]
        ]
        return "\n".join([head, *lines])


class CommCounters:
    """The growing counts of a communicator. Safe to read while another thread communicates."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_kind = _zeros()

    def add(self, kind: MessageKind, **increments: float) -> None:
        """Adds to some counts of one kind. The names are those of `KindCounts`."""
        with self._lock:
            counts = self._by_kind[kind]
            for name, value in increments.items():
                counts[name] += value

    def snapshot(self) -> Counts:
        """Returns the counts since the beginning or since the last `reset`."""
        with self._lock:
            return _frozen(self._by_kind)

    def reset(self) -> Counts:
        """Sets all counts to zero. Returns what had been counted."""
        with self._lock:
            counts = _frozen(self._by_kind)
            self._by_kind = _zeros()
            return counts


def _zeros() -> dict[MessageKind, dict[str, Any]]:
    return {kind: asdict(KindCounts()) for kind in MessageKind}


def _frozen(by_kind: dict[MessageKind, dict[str, Any]]) -> Counts:
    return Counts({kind: KindCounts(**counts) for kind, counts in by_kind.items()})
