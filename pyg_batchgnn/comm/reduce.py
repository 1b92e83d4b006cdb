"""Sums over ranks, always in the order of ranks: the same bits whatever the timing.

Every element is w_0 x_0 + w_1 x_1 + ..., added from rank 0 up, whether the tensor is small (each rank gathers
all and adds) or large (each rank adds one piece of it). A backend's own all-reduce adds in an order that
depends on the position of the element in the message, so that regrouping tensors changes the last bits.
"""

from __future__ import annotations

import math
import struct

import torch
from torch import Tensor

from pyg_batchgnn.comm.channel import Channel
from pyg_batchgnn.comm.header import Header, Operation, dtype_code
from pyg_batchgnn.comm.rows import spread
from pyg_batchgnn.comm.step import Arrivals, Step
from pyg_batchgnn.comm.transport import as_bytes

#: Tensors of at most so many bytes are gathered and added by every rank: one round instead of two.
_SMALL = 1 << 13


def sum_over_ranks(channel: Channel, tensor: Tensor, header: Header, weight: float | None) -> Tensor:
    """See `Communicator.all_reduce`. Dtype and size are checked as those of rows are."""
    code = dtype_code(tensor.dtype)
    if not tensor.is_contiguous():
        raise ValueError("the tensor must be contiguous; call .contiguous() first")
    if weight is not None and not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"weight must be finite and not negative, not {weight}")
    if weight is not None and not tensor.dtype.is_floating_point:
        raise TypeError(f"only floating-point tensors can be weighted, not {tensor.dtype}")
    flat = tensor.detach().view(-1)
    with channel.step(Operation.REDUCTION, header, flat.numel() * flat.itemsize, code) as step:
        weights = _weights(step, channel, weight)
        small = flat.numel() * flat.itemsize <= _SMALL
        _sum_gathered(channel, step, flat, weights) if small else _sum_pieces(channel, step, flat, weights)
    return tensor


def _weights(step: Step, channel: Channel, weight: float | None) -> list[float] | None:
    """Every rank's share, from the counts' own number (the bits of a double); all 0 where all weigh 0."""
    bits = 0 if weight is None else struct.unpack("<q", struct.pack("<d", weight))[0]
    arrivals: Arrivals = step.counts([0] * channel.size, [bits] * channel.size)
    if weight is None:
        return None
    weights = [struct.unpack("<d", struct.pack("<q", bits))[0] for bits in arrivals.numbers]
    total = math.fsum(weights)
    return [each / total if total else 0.0 for each in weights]


def _sum_gathered(channel: Channel, step: Step, flat: Tensor, weights: list[float] | None) -> None:
    everyone = flat.new_empty(channel.size, flat.numel())
    each = [flat.numel() * flat.itemsize] * channel.size
    spread(channel, step, as_bytes(everyone), as_bytes(flat), each)
    flat.copy_(ordered_sum(list(everyone), weights))


def _sum_pieces(channel: Channel, step: Step, flat: Tensor, weights: list[float] | None) -> None:
    """Rank r adds the r-th piece of all ranks' tensors, then everybody gathers the sums."""
    pieces = flat.tensor_split(channel.size)
    mine = pieces[channel.rank]
    everyone = flat.new_empty(channel.size, mine.numel())
    sent = [piece.numel() * flat.itemsize for piece in pieces]
    received = [mine.numel() * flat.itemsize] * channel.size
    together = channel.transport.fits(max(sent), max(sent))

    def move() -> None:
        if together:
            channel.transport.together(as_bytes(everyone), as_bytes(flat), received, sent)
        else:
            parts = [as_bytes(piece) for piece in pieces]
            channel.transport.in_turns(as_bytes(everyone).split(received), parts, max(sent))

    away = sum(sent) - sent[channel.rank]
    step.data(move, sent=away, received=sum(received) - received[channel.rank])
    mine.copy_(ordered_sum(list(everyone), weights))
    spread(channel, step, as_bytes(flat), as_bytes(mine), sent)


def ordered_sum(terms: list[Tensor], weights: list[float] | None) -> Tensor:
    """terms[0] + terms[1] + ... from the left; terms of weight 0 are left out, whatever they hold.

    Sixteen-bit floats are added in float32 and rounded once.
    """
    dtype = terms[0].dtype
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    if weights is not None:
        pairs = [(term, weight) for term, weight in zip(terms, weights, strict=True) if weight]
        terms = [term.to(wide) * weight for term, weight in pairs]
    if not terms:
        return torch.zeros((), dtype=dtype)
    total = terms[0].to(wide, copy=True)
    for term in terms[1:]:
        total += term.to(wide)
    return total.to(dtype)
