"""The aggregation of a process's own nodes, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.cache.kinds import Aggregation
from pyg_batchgnn.cache.pieces import Piece
from pyg_batchgnn.ops import OwnedEdges

#: Rows that are looked at together.
_ROWS = 1 << 16


def result_dtype(table: Tensor) -> torch.dtype:
    """In what aggregates are held: as features are, but never in float16, which sums overflow.

    Raises:
        TypeError: the features are no floating-point numbers.
        ValueError: they are no matrix, or learned.
    """
    if table.requires_grad:
        raise ValueError(
            "x requires a gradient: features that are learned change while training, and so does every "
            "aggregate of them; train without the aggregation cache"
        )
    if table.dim() != 2:
        raise ValueError(f"x must be [nodes, columns], got {list(table.shape)}")
    if not table.is_floating_point():
        raise TypeError(f"x is {table.dtype}, but aggregates are of floating-point features; use x.float()")
    return torch.float32 if table.dtype == torch.float16 else table.dtype


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """In what features of a type are summed."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def own_scale(own: OwnedEdges, dtype: torch.dtype) -> Tensor:
    """GCN's factor of every own node, [n]: (1 + d)^-1/2, d its in-edges that are no self loops."""
    scale = torch.empty(own.node.numel(), dtype=dtype)
    for rows in row_blocks(own.node.numel()):
        degree = own.in_edges.indptr[rows.start : rows.stop + 1].diff()
        targets = own.in_edges.targets(rows)
        loops = targets[own.in_edges.sources(rows) == targets + own.first_node] - rows.start
        degree = degree - torch.bincount(loops, minlength=len(rows))
        scale[rows.start : rows.stop] = (degree + 1).to(torch.float64).rsqrt()
    return scale


def row_blocks(count: int) -> Iterator[range]:
    """``count`` rows in ranges of bounded length."""
    for begin in range(0, count, _ROWS):
        yield range(begin, min(begin + _ROWS, count))


def aggregator(
    kind: Aggregation, own: OwnedEdges, table: Tensor, scale: Tensor | None, threads: int | None
) -> Callable[[Piece], Tensor]:
    """What turns a piece into the aggregates of its nodes, [rows, F].

    Args:
        kind: which aggregation.
        own: the process's nodes.
        table: [n, F] their own features.
        scale: [n] of `own_scale`, where the aggregation is symmetric.
        threads: at most so many threads.
    """
    wide = wide_dtype(table.dtype)

    def reduced(piece: Piece) -> Tensor:
        ptr = own.in_edges.indptr[piece.rows.start : piece.rows.stop + 1]
        assert piece.features is not None
        return ops.aggregate(
            piece.features,
            ptr - ptr[0],
            piece.indices,
            reduce=kind.value,
            out_dtype=wide,
            threads=threads,
        )

    def symmetric(piece: Piece) -> Tensor:
        assert scale is not None and piece.features is not None
        at = slice(piece.rows.start, piece.rows.stop)
        ptr = own.in_edges.indptr[piece.rows.start : piece.rows.stop + 1]
        is_no_loop = own.in_edges.sources(piece.rows) != own.in_edges.targets(piece.rows) + own.first_node
        out = ops.aggregate(
            piece.features,
            ptr - ptr[0],
            piece.indices,
            edge_weight=is_no_loop.to(wide),
            source_scale=piece.scale,
            target_scale=scale[at],
            out_dtype=wide,
            threads=threads,
        )
        loop = scale[at].square().view(-1, 1)
        return out.addcmul_(table[at].to(wide), loop)

    return symmetric if kind is Aggregation.SYMMETRIC else reduced
