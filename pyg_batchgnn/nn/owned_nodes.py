"""The nodes that a process owns, as layer-wise inference reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.nn.sampled import Relation

#: Rows of the nodes of each rank whose memory this one can read, by rank.
ReadableRows = Mapping[int, Tensor]


class NodeValues(Protocol):
    """A value for each node that a process owns and for each of their sources."""

    def of(self, ids: Tensor | None) -> Tensor: ...


class NodePieceRowsLike(Protocol):
    """The nodes of one type that a piece reads; `pyg_batchgnn.cache.AllNodes` says what is what."""

    @property
    def table(self) -> Tensor: ...
    @property
    def order(self) -> Tensor | None: ...
    @property
    def ids(self) -> Tensor | None: ...


class NodePieceLike(Protocol):
    """Some nodes with all their in-edges; `pyg_batchgnn.cache.AllNodes` says what is what."""

    @property
    def targets(self) -> Mapping[str, range]: ...
    @property
    def nodes(self) -> Mapping[str, NodePieceRowsLike]: ...
    @property
    def edges(self) -> Mapping[Relation, ops.InEdges]: ...


class OwnedNodes(Protocol):
    """The nodes that a process owns. `pyg_batchgnn.cache.AllNodes` has these attributes."""

    @property
    def rank(self) -> int: ...
    @property
    def schema(self) -> Any: ...
    @property
    def features(self) -> Mapping[str, ReadableRows]: ...

    def pieces(
        self,
        rows: Mapping[str, ReadableRows],
        relations: Sequence[Relation],
        result_bytes: Mapping[str, int],
        title: str,
    ) -> Iterator[NodePieceLike]: ...
    def finish(self) -> None: ...
    def allocate(self, node_type: str, columns: int, dtype: torch.dtype) -> ReadableRows: ...
    def degrees(self, relation: Relation, with_loops: bool) -> NodeValues: ...
