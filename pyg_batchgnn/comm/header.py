"""The header of an exchange: what it is for. Every rank sends its header, and every rank checks
all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import torch

#: The first number of every header. Another number comes from another release or from no header.
PROTOCOL = 0x67_6E_6E_02


class MessageKind(IntEnum):
    """The purpose of an exchange. Rounds, rows and bytes are counted by kind."""

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
    """The collective operation that an exchange is part of."""

    EXCHANGE = 0
    REDUCTION = 1
    GATHERING = 2
    BROADCAST = 3
    VALUES = 4
    BARRIER = 5
    GUARD = 6
    AGREEMENT = 7


_NAMES = {
    Operation.EXCHANGE: "exchange of rows",
    Operation.REDUCTION: "sum over ranks",
    Operation.GATHERING: "gathering of rows",
    Operation.BROADCAST: "broadcast",
    Operation.VALUES: "gathering of values",
    Operation.BARRIER: "barrier",
    Operation.GUARD: "guarded collectives",
    Operation.AGREEMENT: "comparison of arguments",
}


@dataclass(frozen=True)
class Header:
    """The purpose of an exchange and its position in the epoch.

    Attributes:
        kind: the purpose.
        epoch, macrobatch, hop: the position, -1 where a number does not apply.
    """

    kind: MessageKind
    epoch: int = -1
    macrobatch: int = -1
    hop: int = -1

    def __str__(self) -> str:
        position = {"epoch": self.epoch, "macrobatch": self.macrobatch, "hop": self.hop}
        return ", ".join(
            [self.kind.name.lower(), *(f"{name} {at}" for name, at in position.items() if at >= 0)]
        )


#: A header, or its kind alone.
HeaderLike = Header | MessageKind


def as_header(header: HeaderLike) -> Header:
    """Returns a header. A kind alone becomes a header without a position."""
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
    """Returns the number by which headers name a dtype."""
    if dtype not in ROW_DTYPES:
        raise TypeError(f"rows of {dtype} cannot be exchanged; view them as torch.uint8")
    return ROW_DTYPES.index(dtype)


@dataclass(frozen=True)
class Purpose:
    """Everything that must be equal on all ranks before data moves.

    Attributes:
        exchange: the number of the exchange in its communicator, from 1.
        operation: the collective operation.
        header: the header that the caller gave.
        row_bytes: bytes per row, 0 where no rows move, 1 for the texts of values.
        dtype: the position of the rows' dtype in ROW_DTYPES, -1 where rows have no dtype.
    """

    exchange: int
    operation: Operation
    header: Header
    row_bytes: int = 0
    dtype: int = -1

    def __str__(self) -> str:
        return _describe(self.operation, self.header, self.row_bytes, self.dtype)

    def numbers(self) -> list[int]:
        """Returns the purpose as numbers, AGREED of them."""
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
    """Describes a peer's numbers in words. Never raises, whatever a diverged peer sent."""
    if numbers[0] != PROTOCOL:
        return f"something else (its message begins with {numbers[0]}: another release of pyg_batchgnn?)"
    try:
        header = Header(MessageKind(numbers[3]), *(int(number) for number in numbers[4:7]))
        purpose = Purpose(numbers[1], Operation(numbers[2]), header, numbers[7], numbers[8])
        return f"exchange {purpose.exchange}, {purpose}"
    except (ValueError, IndexError):
        return f"something unknown {list(numbers[1:AGREED])}"
