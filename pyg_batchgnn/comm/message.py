"""The messages of fixed size with which every exchange begins: numbers, and data that are small.

A message has the same size whatever it carries, so that ranks that diverge still understand each
other.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

#: The first number of every header. Another number comes from another release or from no header.
PROTOCOL = 0x67_6E_6E_02


class MessageKind(IntEnum):
    """The purpose of an exchange, by which rounds, rows and bytes are counted."""

    PARTITION = 0
    TOPOLOGY = 1
    FEATURES = 2
    GRADIENTS = 3
    CONTROL = 4
    LOOKUP = 5  # internal ids of original ids, and back
    INFERENCE = 6  # rows of halo nodes in the inference of all nodes
    EMBEDDINGS = 7  # rows of embedding tables, their ids and their gradients
    PUSH = 8  # rows for the historical embedding caches of other ranks


class Operation(IntEnum):
    EXCHANGE = 0
    REDUCTION = 1
    GATHERING = 2
    BROADCAST = 3
    VALUES = 4
    BARRIER = 5
    GUARD = 6
    AGREEMENT = 7


_NAMES = (
    *("exchange of rows", "sum over ranks", "gathering of rows", "broadcast", "gathering of values"),
    *("barrier", "guarded collectives", "comparison of arguments"),
)


@dataclass(frozen=True)
class Header:
    """The purpose of an exchange and its position in the epoch; -1 for numbers that do not
    apply."""

    kind: MessageKind
    epoch: int = -1
    macrobatch: int = -1
    hop: int = -1

    def __str__(self) -> str:
        position = (("epoch", self.epoch), ("macrobatch", self.macrobatch), ("hop", self.hop))
        return ", ".join([self.kind.name.lower(), *(f"{name} {at}" for name, at in position if at >= 0)])


#: A header, or its kind alone.
HeaderLike = Header | MessageKind


def as_header(header: HeaderLike) -> Header:
    if isinstance(header, Header):
        return header
    if isinstance(header, MessageKind):
        return Header(header)
    raise TypeError(f"header must be a Header or a MessageKind, not {type(header).__name__}")


#: The dtypes that rows may have. A header carries the position in this tuple.
ROW_DTYPES = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
)


def dtype_code(dtype: torch.dtype) -> int:
    if dtype not in ROW_DTYPES:
        raise TypeError(f"rows of {dtype} cannot be exchanged; view them as torch.uint8")
    return ROW_DTYPES.index(dtype)


@dataclass(frozen=True)
class Purpose:
    """The values that must be equal on all ranks before data is moved."""

    exchange: int  # the number of the exchange in its communicator, from 1
    operation: Operation
    header: Header
    row_bytes: int = 0  # bytes per row, 0 where no rows move, 1 for the texts of values
    dtype: int = -1  # the position of the rows' dtype in ROW_DTYPES, -1 where rows have no dtype

    def __str__(self) -> str:
        return _describe(self.operation, self.header, self.row_bytes, self.dtype)

    def numbers(self) -> list[int]:
        header = self.header
        return [
            *(PROTOCOL, self.exchange, self.operation),
            *(header.kind, header.epoch, header.macrobatch, header.hop, self.row_bytes, self.dtype),
        ]


@lru_cache(maxsize=128)  # ranks describe every exchange before they enter it
def _describe(operation: Operation, header: Header, row_bytes: int, dtype: int) -> str:
    text = f"{_NAMES[operation]} ({header})"
    if dtype >= 0:
        name = str(ROW_DTYPES[dtype]).removeprefix("torch.")
        text += f" of {row_bytes} bytes per row, {name}"
    return text


#: The message that begins an exchange begins with AGREED numbers that must be equal on all ranks.
AGREED = 9


def describe(numbers: Sequence[int]) -> str:
    """Describes the numbers of a peer's message in words, also impossible ones."""
    if numbers[0] != PROTOCOL:
        return f"something else (its message begins with {numbers[0]}: another release of pyg_batchgnn?)"
    try:
        header = Header(MessageKind(numbers[3]), *(int(number) for number in numbers[4:7]))
        purpose = Purpose(numbers[1], Operation(numbers[2]), header, numbers[7], numbers[8])
        return f"exchange {purpose.exchange}, {purpose}"
    except (ValueError, IndexError):
        return f"something unknown {list(numbers[1:AGREED])}"


#: All numbers of a message. After the agreed ones come four: the rows that follow for the receiver,
#: the bytes of the sender's largest message to another rank, the bytes of what the sender keeps for
#: itself, and one number of the operation's own (for rows: how many items they hold).
NUMBERS = AGREED + 4
#: The bytes of the numbers.
NUMBERS_BYTES = NUMBERS * 8


class Message:
    """A message in memory of its mailbox: ``numbers`` [NUMBERS] int64, then ``room`` uint8, the
    bytes for data. Both are views of ``words``."""

    def __init__(self, words: NDArray[np.int64]) -> None:
        self.numbers, self.room = words[:NUMBERS], words[NUMBERS:].view(np.uint8)


def write_data(messages: Sequence[Message], data: Tensor, sizes: Sequence[int]) -> None:
    """Writes data behind the messages' numbers. ``data``: [sum(sizes)] uint8, rank 0's first."""
    source, begin = data.numpy(), 0
    for message, size in zip(messages, sizes, strict=True):
        message.room[:size] = source[begin : begin + size]
        begin += size


def read_data(messages: Sequence[Message], out: Tensor, sizes: Sequence[int]) -> None:
    """Reads the data that every rank wrote with `write_data`."""
    target, begin = out.numpy(), 0
    for message, size in zip(messages, sizes, strict=True):
        target[begin : begin + size] = message.room[:size]
        begin += size


@dataclass(frozen=True)
class KindCounts:
    """The counts of one kind of message on one rank, without what it sends to itself."""

    rounds: int = 0  # exchanges of data, cut into pieces or travelling with the counts or not
    count_rounds: int = 0  # fixed-size exchanges of counts, headers and small data
    rows_sent: int = 0  # rows, or items where an exchange said how many its rows hold
    rows_received: int = 0
    bytes_sent: int = 0  # of the rows
    bytes_received: int = 0
    count_bytes: int = 0  # of the count rounds, sent and received, whatever data travel in them
    seconds: float = 0.0  # for which a thread waited for peers or data

    def __add__(self, other: KindCounts) -> KindCounts:
        return KindCounts(*map(operator.add, astuple(self), astuple(other)))

    def __sub__(self, other: KindCounts) -> KindCounts:
        return KindCounts(*map(operator.sub, astuple(self), astuple(other)))


class Counts(dict[MessageKind, KindCounts]):
    """The counts by kind at one moment, or between two moments (``later - earlier``)."""

    def __init__(self, by_kind: Mapping[MessageKind, KindCounts]) -> None:
        super().__init__({kind: by_kind.get(kind, KindCounts()) for kind in MessageKind})

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
    """The running counts of a communicator. They can be read while another thread communicates."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_kind: dict[MessageKind, KindCounts] = {}

    def add(self, kind: MessageKind, **increments: float) -> None:
        """Adds to counts of one kind, by their names in `KindCounts`."""
        with self._lock:
            self._by_kind[kind] = self._by_kind.get(kind, KindCounts()) + KindCounts(**increments)  # type: ignore[arg-type]

    def snapshot(self) -> Counts:
        """Returns the counts since the last `reset`, or since the start."""
        with self._lock:
            return Counts(self._by_kind)

    def reset(self) -> Counts:
        """Sets all counts to zero; returns the counts before."""
        with self._lock:
            counts, self._by_kind = Counts(self._by_kind), {}
            return counts
