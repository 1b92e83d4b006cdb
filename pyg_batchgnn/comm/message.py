"""The messages of fixed size with which every exchange begins: numbers, and data that are small.

A message has the same size whatever it carries, so that ranks that diverge still understand each
other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pyg_batchgnn.comm.header import AGREED

#: All numbers of a message. After the agreed ones come four: the rows that follow for the receiver,
#: the bytes of the sender's largest message to another rank, the bytes of what the sender keeps for
#: itself, and one number of the operation's own (for rows: how many items they hold).
NUMBERS = AGREED + 4
#: The bytes of the numbers.
NUMBERS_BYTES = NUMBERS * 8


class Message:
    """A message, in memory of the mailbox that it came from.

    Args:
        words: [NUMBERS + the room behind them, in words of 8 bytes] int64.

    Attributes:
        numbers: [NUMBERS] int64, a view.
        room: uint8, a view of the bytes behind the numbers.
    """

    def __init__(self, words: NDArray[np.int64]) -> None:
        self.numbers, self.room = words[:NUMBERS], words[NUMBERS:].view(np.uint8)


def write_data(messages: Sequence[Message], data: Tensor, sizes: Sequence[int]) -> None:
    """Writes data behind the numbers.

    Args:
        messages: the messages to every rank.
        data: [sum(sizes)] uint8, the data for rank 0 first.
        sizes: bytes by rank, at most the room of a message each.
    """
    source, begin = data.numpy(), 0
    for message, size in zip(messages, sizes, strict=True):
        message.room[:size] = source[begin : begin + size]
        begin += size


def read_data(messages: Sequence[Message], out: Tensor, sizes: Sequence[int]) -> None:
    """Reads the data that `write_data` wrote on every rank.

    Args:
        messages: the messages from every rank.
        out: [sum(sizes)] uint8, filled with the data of rank 0 first.
        sizes: bytes by rank, at most the room of a message each.
    """
    target, begin = out.numpy(), 0
    for message, size in zip(messages, sizes, strict=True):
        target[begin : begin + size] = message.room[:size]
        begin += size
