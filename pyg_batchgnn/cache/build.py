"""The aggregates of the nodes that a process owns, piece by piece."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.cache.pieces import Piece
from pyg_batchgnn.ops import OwnedEdges
from pyg_batchgnn.types import FEATURES

#: The only node type and the only relation, by number.
ONLY = 0

# Aggregations #####################################################################################


_NOT_FIXED = {
    name: f"the {name} over sampled neighbours is far from that over all of them" for name in ops.REDUCTIONS
} | {"attention": "GAT weighs neighbours by weights that it learns, which change at every step"}


class Aggregation(str, enum.Enum):
    """An aggregation that can be computed before training, because it has no weights to learn."""

    MEAN = "mean"  #: over the in-edges; SAGE's
    SUM = "sum"  #: over the in-edges; GIN's
    SYMMETRIC = "symmetric"  #: GCN's, with self loops and the degrees of the whole graph

    @property
    def attribute(self) -> str:
        """The attribute of minibatches by which native layers find the aggregates."""
        return f"x_{self.value}"

    @property
    def holds_own_row(self) -> bool:
        """True if a node's aggregate includes its own row: minibatches then need no features."""
        return self is Aggregation.SYMMETRIC

    @classmethod
    def parse(cls, given: Any) -> Aggregation:
        """Returns an aggregation by name. Raises ValueError for one that cannot be cached."""
        if isinstance(given, str) and given in [one.value for one in cls]:
            return cls(given)
        choices = ", ".join(repr(one.value) for one in cls)
        why = _NOT_FIXED.get(str(given))
        raise ValueError(
            f"kind must be one of {choices}, got {given!r}"
            + (f": {why}; train without a cache" if why else "")
        )


# Computing ########################################################################################

#: The name of the column of GCN's factors in pieces.
SCALE = "scale"
#: Rows that are worked on together.
_ROWS = 1 << 16


def check_features(table: Tensor) -> None:
    """Raises TypeError or ValueError for features that cannot be aggregated."""
    if table.requires_grad:
        raise ValueError(
            "x requires a gradient: features that are learned change during training, and so do their "
            "aggregates; train without the aggregation cache"
        )
    if table.dim() != 2:
        raise ValueError(f"x must be [nodes, columns], got {list(table.shape)}")
    if not table.is_floating_point():
        raise TypeError(f"x is {table.dtype}, but only floating-point features are aggregated; use x.float()")


def in_degrees(own: OwnedEdges, with_loops: bool, read: ReadRows | None = None, fill: float = 0.0) -> Tensor:
    """Returns [n], the number of in-edges of each owned node (int64), or the sum of their weights.
    ``read``: returns the weights of some nodes' in-edges. Without loops a node adds the weight of
    its last self loop, or ``fill``."""
    made = [torch.empty(0, dtype=torch.int64)]
    for rows in row_blocks(own.node.numel()):
        targets = own.in_edges.targets(rows)
        weight = torch.ones_like(targets) if read is None else read(rows)
        degree = weight.new_zeros(len(rows))
        if not with_loops:
            is_loop = own.in_edges.sources(rows) == targets + own.first_node
            if read is not None:
                degree.fill_(fill)[targets[is_loop] - rows.start] = weight[is_loop]
            weight = weight.masked_fill(is_loop, 0)
        made.append(degree.index_add_(0, targets - rows.start, weight))
    return torch.cat(made[1:] or made)


def row_blocks(count: int) -> Iterator[range]:
    for begin in range(0, count, _ROWS):
        yield range(begin, min(begin + _ROWS, count))


#: Returns consecutive rows of the features, [rows, F].
ReadRows = Callable[[range], Tensor]


def aggregate_piece(
    kind: Aggregation, own: OwnedEdges, piece: Piece, read: ReadRows, scale: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Returns [rows, F] of ``dtype``, the aggregates of a piece's nodes. ``scale``: [n], GCN's
    factor of each owned node for "symmetric"; else None."""
    rows, tables = piece.targets[ONLY], piece.nodes[ONLY].tables
    ptr = own.in_edges.indptr[rows.start : rows.stop + 1]
    edges = ptr - ptr[0], piece.indices[ONLY]
    if scale is None:
        return ops.aggregate(tables[FEATURES], *edges, reduce=kind.value, out_dtype=dtype)
    of_rows = scale[rows.start : rows.stop]
    is_no_loop = own.in_edges.sources(rows) != own.in_edges.targets(rows) + own.first_node
    out = ops.aggregate(
        tables[FEATURES],
        *edges,
        edge_weight=is_no_loop.to(dtype),
        source_scale=tables[SCALE],
        target_scale=of_rows,
        out_dtype=dtype,
    )
    return out.addcmul_(read(rows).to(dtype), of_rows.square().view(-1, 1))


# Fingerprints #####################################################################################

#: Odd numbers of 64 bits.
_SOURCE, _TARGET, _NODE = 0x1E3779B97F4A7C15, -0x40A7B892E31B1A47, 0x2545F4914F6CDD1D
_FIRST, _SECOND = -0x61C8864680B583EB, -0x3B314601E57A13AD


@dataclass(frozen=True)
class GraphFingerprint:
    """Counts and digests that identify a graph and its features. A digest is 16 hexadecimal digits:
    the sum of the digests of all edges, or of all rows, modulo 2**64."""

    num_nodes: int
    num_edges: int
    columns: int  # of the features, as is ``dtype``
    dtype: str
    edges: str  # the digest of the edges by original ids, in any order
    features: str  # the digest of the features by original id

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GraphFingerprint:
        kinds = {"int": int, "str": str}
        return cls(**{field.name: kinds[str(field.type)](values[field.name]) for field in fields(cls)})

    def differences(self, other: GraphFingerprint) -> list[str]:
        said = {"num_nodes": "nodes", "num_edges": "edges", "columns": "feature columns", "dtype": "dtype"}
        found = [
            f"{getattr(other, name)} {word} instead of {getattr(self, name)}"
            for name, word in said.items()
            if getattr(self, name) != getattr(other, name)
        ]
        if found:
            return found
        digests = {"edges": "other edges", "features": "other features"}
        return [word for name, word in digests.items() if getattr(self, name) != getattr(other, name)]


def digest_edges(own: OwnedEdges, piece: Piece) -> int:
    source, original = piece.indices[ONLY], piece.nodes[ONLY].node
    mixed = (source.long() if original is None else ops.gather_rows(original.long(), source)) * _SOURCE
    mixed += own.node[own.in_edges.targets(piece.targets[ONLY])] * _TARGET
    return _sum(mixed)


def digest_features(node: Tensor, table: Tensor, read: ReadRows) -> int:
    width = table.size(1) * table.element_size()
    words = torch.int32 if table.element_size() >= 4 else torch.int16
    count = width // words.itemsize
    factor = _scrambled(torch.arange(1, count + 1) * _SOURCE) | 1
    total = 0
    for rows in row_blocks(len(table)):
        block = ops.decoded(read(rows)).contiguous()
        row = (block.view(words).to(torch.int64) * factor).sum(1) if count else torch.zeros(len(rows)).long()
        total += _sum(_scrambled(row) + node[rows.start : rows.stop] * _NODE)
    return total


def _sum(mixed: Tensor) -> int:
    return int(_scrambled(mixed).sum())


def _scrambled(values: Tensor) -> Tensor:
    """Hashes [n] int64 in place, so that each bit of a value changes about half of the result's."""
    values ^= values >> 32
    values *= _FIRST
    values ^= values >> 29
    values *= _SECOND
    values ^= values >> 32
    return values
