"""The aggregates of the nodes that a process owns, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.cache.kinds import Aggregation
from pyg_batchgnn.cache.pieces import RelationPiece
from pyg_batchgnn.ops import OwnedEdges
from pyg_batchgnn.types import FEATURES

#: The name of the column of GCN's factors in pieces.
SCALE = "scale"
#: Rows that are worked on together.
_ROWS = 1 << 16


def result_dtype(table: Tensor) -> torch.dtype:
    """Returns the type of aggregates: that of the features, but float32 for float16.

    Sums of float16 overflow.

    Raises:
        TypeError, ValueError: see `check_features`.
    """
    check_features(table)
    return torch.float32 if table.dtype == torch.float16 else table.dtype


def check_features(table: Tensor) -> None:
    """Checks features that are read for all nodes.

    Raises:
        TypeError: the features are not floating-point numbers.
        ValueError: they are not a matrix, or they are learned.
    """
    if table.requires_grad:
        raise ValueError(
            "x requires a gradient: features that are learned change during training, and so do their "
            "aggregates; train without the aggregation cache"
        )
    if table.dim() != 2:
        raise ValueError(f"x must be [nodes, columns], got {list(table.shape)}")
    if not table.is_floating_point():
        raise TypeError(f"x is {table.dtype}, but only floating-point features are aggregated; use x.float()")


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Returns the type in which features of a type are summed."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def own_scale(own: OwnedEdges, dtype: torch.dtype) -> Tensor:
    """Returns GCN's factor of each owned node, [n]: (1 + its in-edges but self loops)^-1/2."""
    return (in_degrees(own, with_loops=False) + 1).to(torch.float64).rsqrt().to(dtype)


def in_degrees(own: OwnedEdges, with_loops: bool) -> Tensor:
    """Returns the number of in-edges of each owned node, [n] int64.

    Args:
        own: the in-edges.
        with_loops: True counts edges from a node to itself too.
    """
    degrees = own.in_edges.degrees
    for rows in () if with_loops else row_blocks(own.node.numel()):
        targets = own.in_edges.targets(rows)
        loops = targets[own.in_edges.sources(rows) == targets + own.first_node] - rows.start
        degrees[rows.start : rows.stop] -= torch.bincount(loops, minlength=len(rows))
    return degrees


def row_blocks(count: int) -> Iterator[range]:
    """Yields ``count`` rows in ranges of bounded length."""
    for begin in range(0, count, _ROWS):
        yield range(begin, min(begin + _ROWS, count))


def aggregator(
    kind: Aggregation, own: OwnedEdges, table: Tensor, scale: Tensor | None, threads: int | None
) -> Callable[[RelationPiece], Tensor]:
    """Returns a function that computes the aggregates of a piece's nodes, [rows, F].

    Args:
        kind: the aggregation.
        own: the in-edges of the nodes that the process owns.
        table: [n, F] features of these nodes.
        scale: [n] of `own_scale`, where the aggregation is symmetric; else None.
        threads: at most this many threads; torch's own number where None.
    """
    wide = wide_dtype(table.dtype)

    def reduced(piece: RelationPiece) -> Tensor:
        ptr = own.in_edges.indptr[piece.rows.start : piece.rows.stop + 1]
        return ops.aggregate(
            piece.tables[FEATURES],
            ptr - ptr[0],
            piece.indices,
            reduce=kind.value,
            out_dtype=wide,
            threads=threads,
        )

    def symmetric(piece: RelationPiece) -> Tensor:
        assert scale is not None
        at = slice(piece.rows.start, piece.rows.stop)
        ptr = own.in_edges.indptr[piece.rows.start : piece.rows.stop + 1]
        is_no_loop = own.in_edges.sources(piece.rows) != own.in_edges.targets(piece.rows) + own.first_node
        out = ops.aggregate(
            piece.tables[FEATURES],
            ptr - ptr[0],
            piece.indices,
            edge_weight=is_no_loop.to(wide),
            source_scale=piece.tables[SCALE],
            target_scale=scale[at],
            out_dtype=wide,
            threads=threads,
        )
        loop = scale[at].square().view(-1, 1)
        return out.addcmul_(table[at].to(wide), loop)

    return symmetric if kind is Aggregation.SYMMETRIC else reduced
