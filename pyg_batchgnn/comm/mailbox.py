"""The ways of messages of fixed size: through the backend, or through memory that ranks share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_batchgnn.comm.message import NUMBERS_BYTES, Message
from pyg_batchgnn.comm.transport import Transport
from pyg_batchgnn.comm.wait import wait_for
from pyg_batchgnn.ops import Turns

#: Bytes of data that have room in a message of the backend. With them it fits one packet of a
#: network with frames of 1500 bytes, and on loopback it takes as long as the numbers alone.
ROOM = 512

#: The bytes that all messages of one rank take in shared memory, while there are fewer than 3,000
#: ranks. If there are 4 ranks, a message has room for 512 KB.
_ALL_MESSAGES = 4 << 20
#: Bytes of a cache line. A rank's word has one of its own, before the messages.
_LINE = 64


class Mailbox(Protocol):
    """Carries one message from every rank to every rank at a time.

    Attributes:
        room: bytes of data that a message has room for, equal on all ranks.
        message_bytes: bytes that a message takes whatever it carries, for the counters.
    """

    room: int
    message_bytes: int

    def outgoing(self) -> Sequence[Message]:
        """Returns the messages to every rank, for the caller to write. What is in them before is
        undefined."""
        ...

    def swap(self) -> Sequence[Message]:
        """Sends the messages that `outgoing` returned last, and waits for those of all ranks.

        Returns:
            The messages from every rank. They are valid until the next `swap`.
        """
        ...


class BackendMailbox:
    """Messages that the backend carries, all in one call.

    Args:
        transport: moves the bytes.
        size: the number of ranks.
    """

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
        self._transport.all_to_all(_flat(receives), _flat(self._sends), [each] * ranks, [each] * ranks)
        return [Message(words) for words in receives]


def _flat(messages: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(messages.reshape(-1))


class SharedMailbox:
    """Messages in memory that all ranks map. They have more room, and need no copy of the system's.

    Every rank writes its messages into its own block and then announces its turn in the block's
    word. There are places for the messages of two turns, so those of turn t + 1 go over those of
    turn t - 1. A rank does so when it has seen turn t of all others, which they announced after
    they had read the messages of turn t - 1.

    Args:
        blocks: uint8 [block_bytes(ranks)] by rank, zeros at first, of all ranks of the channel.
        rank: this process's rank.
        timeout: seconds that one swap may take.
        check: called while waiting (`wait_for`).
    """

    def __init__(
        self, blocks: Mapping[int, Tensor], rank: int, timeout: float, check: Callable[[float], None]
    ) -> None:
        size, whole = len(blocks), _whole_message(len(blocks))
        self.room, self.message_bytes = whole - NUMBERS_BYTES, NUMBERS_BYTES
        self._timeout, self._check, self._turn = timeout, check, 0
        words = {at: block[:4].view(torch.int32) for at, block in blocks.items()}
        own = words.pop(rank)
        self._turns = Turns(own, list(words.values()))
        places = [_places(block, size, whole) for _, block in sorted(blocks.items())]
        self._outgoing = [[Message(words) for words in half] for half in places[rank]]
        self._incoming = [[Message(theirs[half][rank]) for theirs in places] for half in (0, 1)]

    def outgoing(self) -> Sequence[Message]:
        return self._outgoing[(self._turn + 1) % 2]

    def swap(self) -> Sequence[Message]:
        self._turn += 1
        self._turns.announce(self._turn)
        wait_for(_OneTurn(self._turns, self._turn), self._timeout, self._check)
        return self._incoming[self._turn % 2]


def block_bytes(ranks: int) -> int:
    """Returns the bytes of a rank's block for a `SharedMailbox`."""
    return _LINE + 2 * ranks * _whole_message(ranks)


def _whole_message(ranks: int) -> int:
    """Returns the bytes of a message in shared memory, its room included: whole cache lines."""
    least = -(-(NUMBERS_BYTES + ROOM) // _LINE) * _LINE
    return max(_ALL_MESSAGES // (2 * ranks) // _LINE * _LINE, least)


def _places(block: Tensor, size: int, whole: int) -> NDArray[np.int64]:
    """Returns the places of a block's messages: [2, size, whole / 8]."""
    places: NDArray[np.int64] = block[_LINE : _LINE + 2 * size * whole].numpy().view(np.int64)
    return places.reshape(2, size, -1)


class _OneTurn:
    """The wait for one turn of all other ranks, as `wait_for` takes it."""

    def __init__(self, turns: Turns, turn: int) -> None:
        self._turns, self._turn = turns, turn

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        if not self._turns.wait(self._turn, timeout.total_seconds()):
            raise RuntimeError("not all ranks have sent their messages")
        return True

    def is_completed(self) -> bool:
        return self._turns.wait(self._turn, 0.0)
