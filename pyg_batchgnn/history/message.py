"""The message in which a rank pushes rows to a peer.

A message is a list of bytes. It begins with numbers of 64 bits: the number of layers, and for each
layer the number of rows, their columns and the code of their type. The original ids of all layers
follow, then the rows of each layer, filled up to a multiple of eight bytes. A message without rows
is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_WORD = 8
_PER_LAYER = 3


@dataclass(frozen=True, eq=False)
class PushedRows:
    """Rows of one layer.

    Attributes:
        node: [n] int64 original ids.
        rows: [n, F].
    """

    node: Tensor
    rows: Tensor

    @property
    def nbytes(self) -> int:
        """The bytes of ids and rows."""
        return self.node.nbytes + self.rows.nbytes


def encode(layers: Sequence[PushedRows]) -> Tensor:
    """Returns the message with the rows of all layers, [bytes] uint8."""
    if not any(one.node.numel() for one in layers):
        return torch.empty(0, dtype=torch.uint8)
    shapes = [(one.node.numel(), one.rows.size(1), _TYPES.index(one.rows.dtype)) for one in layers]
    numbers = torch.tensor([len(layers), *(number for shape in shapes for number in shape)])
    pieces = [numbers, *(one.node for one in layers)]
    for one in layers:
        pieces += [one.rows.flatten(), torch.zeros(-one.rows.nbytes % _WORD, dtype=torch.uint8)]
    return torch.cat([piece.view(torch.uint8) for piece in pieces])


def decode(message: Tensor) -> list[PushedRows]:
    """Returns the rows of each layer, as views of the message.

    Args:
        message: [bytes] uint8, at an address that is a multiple of eight.

    Raises:
        ValueError: the bytes are no message.
    """
    if not message.numel():
        return []
    if message.numel() < _WORD:
        raise ValueError(f"{message.numel()} bytes are no message")
    layers = int(message[:_WORD].view(torch.int64))
    head = _WORD * (1 + _PER_LAYER * layers)
    if layers < 1 or head > message.numel():
        raise ValueError(f"{message.numel()} bytes cannot hold rows of {layers} layers")
    shapes = message[_WORD:head].view(torch.int64).view(layers, _PER_LAYER).tolist()
    sizes = [_WORD * count for count, _, _ in shapes]
    for count, columns, code in shapes:
        if count < 0 or columns < 0 or not 0 <= code < len(_TYPES):
            raise ValueError(f"{count} rows of {columns} columns of type {code} cannot be")
        sizes.append(_filled(count * columns * _TYPES[code].itemsize))
    if head + sum(sizes) != message.numel():
        raise ValueError(f"{head + sum(sizes)} bytes are promised, {message.numel()} came")
    pieces = message[head:].split(sizes)
    return [
        PushedRows(
            node.view(torch.int64),
            rows[: count * columns * _TYPES[code].itemsize].view(_TYPES[code]).view(count, columns),
        )
        for node, rows, (count, columns, code) in zip(pieces[:layers], pieces[layers:], shapes, strict=True)
    ]


def _filled(size: int) -> int:
    return -(-size // _WORD) * _WORD
