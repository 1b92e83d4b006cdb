"""What an exchange is, said the same way on every rank and checked by every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch

#: The first number of every header; another one comes from another release or is no header at all.
PROTOCOL = 0x67_6E_6E_01


class MessageKind(IntEnum):
    """What an exchange is for. Rounds, rows and bytes are counted by kind."""

    PARTITION = 0
    TOPOLOGY = 1
    FEATURES = 2
    GRADIENTS = 3
    CONTROL = 4
    LOOKUP = 5  # internal ids of original ids, and back


class Operation(IntEnum):
    """The collective operation that an exchange is part of."""

    EXCHANGE = 0
    REDUCTION = 1
    GATHERING = 2
    BROADCAST = 3
    VALUES = 4
    BARRIER = 5
    GUARD = 6


_WORDS = {
    Operation.EXCHANGE: "exchange of rows",
    Operation.REDUCTION: "sum over ranks",
    Operation.GATHERING: "gathering of rows",
    Operation.BROADCAST: "broadcast",
    Operation.VALUES: "gathering of values",
    Operation.BARRIER: "barrier",
    Operation.GUARD: "guarded collectives",
}


@dataclass(frozen=True)
class Header:
    """What an exchange is for, and where in the epoch it stands; -1 where a place does not apply."""

    kind: MessageKind
    epoch: int = -1
    macrobatch: int = -1
    hop: int = -1

    def __str__(self) -> str:
        places = {"epoch": self.epoch, "macrobatch": self.macrobatch, "hop": self.hop}
        return ", ".join(
            [self.kind.name.lower(), *(f"{name} {at}" for name, at in places.items() if at >= 0)]
        )


#: What the caller may give where a header is asked for.
HeaderLike = Header | MessageKind


def as_header(header: HeaderLike) -> Header:
    """A kind alone is a header without a place."""
    if isinstance(header, Header):
        return header
    if isinstance(header, MessageKind):
        return Header(header)
    raise TypeError(f"header must be a Header or a MessageKind, not {type(header).__name__}")


#: Element types that rows may have; a header carries the position in this tuple.
DTYPES = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
)


def dtype_code(dtype: torch.dtype) -> int:
    if dtype not in DTYPES:
        raise TypeError(f"rows of {dtype} cannot be exchanged; view them as torch.uint8")
    return DTYPES.index(dtype)


@dataclass(frozen=True)
class Purpose:
    """All that must be equal on every rank before data may move."""

    exchange: int  # number of the exchange in its communicator, from 1
    operation: Operation
    header: Header
    row_bytes: int = 0
    dtype: int = -1  # position in DTYPES; -1 where rows have no type

    def __str__(self) -> str:
        text = f"{_WORDS[self.operation]} ({self.header})"
        if self.dtype >= 0:
            text += f" of {self.row_bytes} bytes a row, {str(DTYPES[self.dtype]).removeprefix('torch.')}"
        return text

    def numbers(self) -> list[int]:
        place = self.header
        return [
            *(PROTOCOL, self.exchange, self.operation),
            *(place.kind, place.epoch, place.macrobatch, place.hop, self.row_bytes, self.dtype),
        ]


#: Numbers at the start of a count message that must agree, and all its numbers: those, then the rows that
#: follow for the receiver, the bytes of the sender's largest message to another rank and of what it keeps for
#: itself, and a number of the operation's own (of rows: how many things they hold).
AGREED = 9
NUMBERS = 13


def describe(numbers: Sequence[int]) -> str:
    """A peer's numbers in words; never raises, whatever a diverged peer sent."""
    if numbers[0] != PROTOCOL:
        return f"something else (its message begins with {numbers[0]}: another release of pyg_batchgnn?)"
    try:
        header = Header(MessageKind(numbers[3]), *(int(number) for number in numbers[4:7]))
        purpose = Purpose(numbers[1], Operation(numbers[2]), header, numbers[7], numbers[8])
        return f"exchange {purpose.exchange}, {purpose}"
    except (ValueError, IndexError):
        return f"something unknown {list(numbers[1:AGREED])}"
