"""The messages of fixed size with which every exchange begins: numbers, and data that are small.

A message has the same size whatever it carries, so that ranks that diverge still understand each
other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_batchgnn.comm.header import AGREED

#: All numbers of a message. After the agreed ones come four: the rows that follow for the receiver,
#: the bytes of the sender's largest message to another rank, the bytes of what the sender keeps for
#: itself, and one number of the operation's own (for rows: how many items they hold).
NUMBERS = AGREED + 4
#: Bytes of data that have room after the numbers. With them a message fits one packet of a network
#: with frames of 1500 bytes, and on loopback it takes as long as the numbers alone.
ROOM = 512
#: All bytes of a message.
MESSAGE_BYTES = NUMBERS * 8 + ROOM

#: Messages to or from every rank: [ranks, MESSAGE_BYTES / 8].
Messages = NDArray[np.int64]


def empty_messages(ranks: int) -> tuple[Tensor, Messages]:
    """Returns messages of zeros, as the vector that moves and as one row per rank."""
    flat = np.zeros(ranks * (MESSAGE_BYTES // 8), np.int64)
    return torch.from_numpy(flat), flat.reshape(ranks, -1)


def write_data(messages: Messages, data: Tensor, sizes: Sequence[int]) -> None:
    """Writes data behind the numbers.

    Args:
        messages: the messages to every rank.
        data: [sum(sizes)] uint8, the data for rank 0 first.
        sizes: bytes by rank, at most ROOM each.
    """
    source, begin = data.numpy(), 0
    for room, size in zip(_rooms(messages), sizes, strict=True):
        room[:size] = source[begin : begin + size]
        begin += size


def read_data(messages: Messages, out: Tensor, sizes: Sequence[int]) -> None:
    """Reads the data that `write_data` wrote on every rank.

    Args:
        messages: the messages from every rank.
        out: [sum(sizes)] uint8, filled with the data of rank 0 first.
        sizes: bytes by rank, at most ROOM each.
    """
    target, begin = out.numpy(), 0
    for room, size in zip(_rooms(messages), sizes, strict=True):
        target[begin : begin + size] = room[:size]
        begin += size


def _rooms(messages: Messages) -> NDArray[np.uint8]:
    return messages.view(np.uint8)[:, NUMBERS * 8 :]
