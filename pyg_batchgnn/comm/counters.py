"""What was exchanged, counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from pyg_batchgnn.comm.header import MessageKind


@dataclass(frozen=True)
class KindCounts:
    """Counts of one kind, as one rank sees them. Rows and bytes are those that went to, or came from, other
    ranks: what a rank keeps for itself crosses no wire."""

    rounds: int = 0  # exchanges of data; one cut into pieces is one round
    count_rounds: int = 0  # fixed-size exchanges of counts and headers
    rows_sent: int = 0  # or items, where an exchange said how many its rows hold
    rows_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    count_bytes: int = 0  # bytes of the count rounds, sent and received
    seconds: float = 0.0  # time that a thread waited for peers or data

    def __add__(self, other: KindCounts) -> KindCounts:
        return self._each(other, lambda a, b: a + b)

    def __sub__(self, other: KindCounts) -> KindCounts:
        return self._each(other, lambda a, b: a - b)

    def _each(self, other: KindCounts, combine: Callable[[Any, Any], Any]) -> KindCounts:
        return KindCounts(*(combine(getattr(self, at.name), getattr(other, at.name)) for at in fields(self)))


class Counts(Mapping[MessageKind, KindCounts]):
    """Counts by kind at one moment, or between two (``later - earlier``)."""

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
        return sum(self.values(), KindCounts())

    def as_dict(self) -> dict[str, dict[str, float]]:
        """Plain numbers by the kind's name in lower case, for JSON."""
        return {kind.name.lower(): asdict(counts) for kind, counts in self.items()}

    def __str__(self) -> str:
        """A table: a line for each kind that was used, and the total."""
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
    """Counts that grow; safe to read while another thread communicates."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_kind = _zeros()

    def add(self, kind: MessageKind, **increments: float) -> None:
        """Adds to some of a kind's counts, named as in `KindCounts`."""
        with self._lock:
            counts = self._by_kind[kind]
            for name, value in increments.items():
                counts[name] += value

    def snapshot(self) -> Counts:
        """The counts since the beginning or the last `reset`."""
        with self._lock:
            return _frozen(self._by_kind)

    def reset(self) -> Counts:
        """Starts anew from zero; returns what had been counted."""
        with self._lock:
            counts = _frozen(self._by_kind)
            self._by_kind = _zeros()
            return counts


def _zeros() -> dict[MessageKind, dict[str, Any]]:
    return {kind: asdict(KindCounts()) for kind in MessageKind}


def _frozen(by_kind: dict[MessageKind, dict[str, Any]]) -> Counts:
    return Counts({kind: KindCounts(**counts) for kind, counts in by_kind.items()})
