"""Sums over ranks, always added in the order of ranks, so that the bits do not depend on timing.

Every element is w_0 x_0 + w_1 x_1 + ..., added from rank 0 up. A small tensor is gathered and added
by every rank. Of a large tensor each rank adds one piece. A backend's own all-reduce adds in an
order that depends on the position of the element in the message, so that another grouping of
tensors would change the last bits.
"""

from __future__ import annotations

import math
import struct

import torch
from torch import Tensor

from pyg_batchgnn.comm.channel import Channel
from pyg_batchgnn.comm.exchange import Exchange, ReceivedCounts
from pyg_batchgnn.comm.header import Header, Operation, dtype_code
from pyg_batchgnn.comm.rows import count_to_all, send_to_all
from pyg_batchgnn.comm.transport import as_bytes

#: Tensors of at most this many bytes are gathered and added by every rank, in one round instead of
#: two.
_SMALL = 1 << 13


def sum_over_ranks(channel: Channel, tensor: Tensor, header: Header, weight: float | None) -> Tensor:
    """Implements `Collectives.all_reduce`. Dtype and size are checked as those of rows are."""
    code = dtype_code(tensor.dtype)
    if not tensor.is_contiguous():
        raise ValueError("the tensor must be contiguous; call .contiguous() first")
    if weight is not None and not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"weight must be finite and not negative, not {weight}")
    if weight is not None and not tensor.dtype.is_floating_point:
        raise TypeError(f"only floating-point tensors can be weighted, not {tensor.dtype}")
    flat = tensor.detach().view(-1)
    size = flat.numel() * flat.itemsize
    with channel.exchange(Operation.REDUCTION, header, size, code) as exchange:
        bits = 0 if weight is None else struct.unpack("<q", struct.pack("<d", weight))[0]
        if size <= _SMALL:
            arriving = count_to_all(exchange, as_bytes(flat), 1, bits)
            _sum_gathered(exchange, flat, _shares(arriving, weight))
        else:
            sizes = _piece_sizes(exchange, flat)
            arriving = exchange.counts(
                [0] * exchange.size, [bits] * exchange.size, lambda: as_bytes(flat), sizes
            )
            _sum_pieces(exchange, flat, sizes, _shares(arriving, weight))
    return tensor


def _shares(received: ReceivedCounts, weight: float | None) -> list[float] | None:
    """Returns the share of every rank. All shares are 0 where all weights are.

    The weights travel as the operation's own number in the exchange of counts: the bits of a
    double.
    """
    if weight is None:
        return None
    weights = [struct.unpack("<d", struct.pack("<q", bits))[0] for bits in received.numbers]
    total = math.fsum(weights)
    return [each / total if total else 0.0 for each in weights]


def _sum_gathered(exchange: Exchange, flat: Tensor, weights: list[float] | None) -> None:
    everyone = flat.new_empty(exchange.size, flat.numel())
    each = [flat.numel() * flat.itemsize] * exchange.size
    send_to_all(exchange, as_bytes(everyone), as_bytes(flat), each)
    flat.copy_(ordered_sum(list(everyone), weights))


def _piece_sizes(exchange: Exchange, flat: Tensor) -> list[int]:
    """Returns the bytes of the piece that each rank adds."""
    return [piece.numel() * flat.itemsize for piece in flat.tensor_split(exchange.size)]


def _sum_pieces(exchange: Exchange, flat: Tensor, sent: list[int], weights: list[float] | None) -> None:
    """Adds the r-th piece of all ranks' tensors on rank r, then gathers the sums.

    Pieces for which messages have room came with the counts. Their sums go in messages as well.
    """
    pieces = flat.tensor_split(exchange.size)
    own = pieces[exchange.rank]
    everyone = flat.new_empty(exchange.size, own.numel())
    received = [own.numel() * flat.itemsize] * exchange.size

    def move() -> None:
        if exchange.transport.fits(max(sent), max(sent)):
            exchange.transport.all_to_all(as_bytes(everyone), as_bytes(flat), received, sent)
        else:
            sends = [as_bytes(piece) for piece in pieces]
            exchange.transport.pairwise_exchange(as_bytes(everyone).split(received), sends, max(sent))

    away = sum(sent) - sent[exchange.rank]
    exchange.data(move, as_bytes(everyone), received, sent=away)
    own.copy_(ordered_sum(list(everyone), weights))
    if exchange.has_room(max(sent), max(sent)):
        nothing = [0] * exchange.size
        exchange.counts(nothing, None, lambda: torch.cat([as_bytes(own)] * exchange.size), received)
    send_to_all(exchange, as_bytes(flat), as_bytes(own), sent)


def ordered_sum(terms: list[Tensor], weights: list[float] | None) -> Tensor:
    """Returns terms[0] + terms[1] + ..., added from the left. Terms of weight 0 are left out,
    whatever they hold.

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
