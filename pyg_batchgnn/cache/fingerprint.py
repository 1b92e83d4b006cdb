"""Fingerprints of a graph and its features, the same however they are spread over ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn.cache.build import row_blocks
from pyg_batchgnn.cache.pieces import RelationPiece
from pyg_batchgnn.ops import OwnedEdges, digest_text

#: Odd numbers of 64 bits.
_SOURCE, _TARGET, _NODE = 0x1E3779B97F4A7C15, -0x40A7B892E31B1A47, 0x2545F4914F6CDD1D
_FIRST, _SECOND = -0x61C8864680B583EB, -0x3B314601E57A13AD


@dataclass(frozen=True)
class GraphFingerprint:
    """Counts and digests by which a graph and its features are recognised.

    A digest is the sum of the digests of all edges or of all rows of features, modulo 2**64.

    Attributes:
        num_nodes, num_edges: counts of the graph.
        columns, dtype: width and type of the features.
        edges: 16 hexadecimal digits, the digest of the edges by original ids, in any order.
        features: 16 hexadecimal digits, the digest of the features by original id.
    """

    num_nodes: int
    num_edges: int
    columns: int
    dtype: str
    edges: str
    features: str

    @classmethod
    def of(
        cls, num_nodes: int, num_edges: int, columns: int, dtype: str, edges: int, features: int
    ) -> GraphFingerprint:
        """Makes a fingerprint of counts and of the sums of all digests."""
        return cls(num_nodes, num_edges, columns, dtype, digest_text(edges), digest_text(features))

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GraphFingerprint:
        """Reads what `to_dict` returned.

        Raises:
            KeyError, TypeError, ValueError: values are missing or of another type.
        """
        return cls(**{field.name: _type_of(field.type)(values[field.name]) for field in fields(cls)})

    def differences(self, other: GraphFingerprint) -> list[str]:
        """Returns, in words, what differs in another fingerprint."""
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


def _type_of(name: Any) -> type:
    """Returns the class that a field's annotation names."""
    return {"int": int, "str": str}[str(name)]


def digest_edges(own: OwnedEdges, piece: RelationPiece) -> int:
    """Adds up the digests of a piece's edges."""
    mixed = piece.original * _SOURCE
    mixed += own.node[own.in_edges.targets(piece.rows)] * _TARGET
    return _sum(mixed)


def digest_features(node: Tensor, table: Tensor) -> int:
    """Adds up the digests of rows of features. ``node``: [n] int64, their original ids."""
    width = table.size(1) * table.element_size()
    words = torch.int32 if table.element_size() >= 4 else torch.int16
    count = width // words.itemsize
    factor = _scrambled(torch.arange(1, count + 1) * _SOURCE) | 1
    total = 0
    for rows in row_blocks(len(table)):
        block = table[rows.start : rows.stop].contiguous()
        row = (block.view(words).to(torch.int64) * factor).sum(1) if count else torch.zeros(len(rows)).long()
        total += _sum(_scrambled(row) + node[rows.start : rows.stop] * _NODE)
    return total


def _sum(mixed: Tensor) -> int:
    return int(_scrambled(mixed).sum())


def _scrambled(values: Tensor) -> Tensor:
    """Scrambles [n] int64 in place: each bit of a value changes half of its result's bits."""
    values ^= values >> 32
    values *= _FIRST
    values ^= values >> 29
    values *= _SECOND
    values ^= values >> 32
    return values
