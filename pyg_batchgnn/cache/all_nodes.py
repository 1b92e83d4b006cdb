"""All nodes of a graph, layer by layer: what the inference of all nodes reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.cache.build import check_features, in_degrees
from pyg_batchgnn.cache.bytes import check_budget
from pyg_batchgnn.cache.contexts import context_of
from pyg_batchgnn.cache.pieces import Piece, ReadableRows, SourceColumns, SourceNumbers
from pyg_batchgnn.cache.progress import progress_bar
from pyg_batchgnn.cache.source_values import SourceValues
from pyg_batchgnn.comm import MessageKind

_ROWS = "rows"


@dataclass(frozen=True, eq=False)
class NodePiece:
    """Some owned nodes with all their in-edges. They are the first sources.

    Attributes:
        rows: the owned nodes.
        table: [u, F] rows of the layer before.
        order: [s] the table row of each source; None where sources are table rows.
        indptr: [len(rows) + 1] int64, where each node's in-edges begin.
        indices: [e] int32 or int64, the sources.
        ids: [s] int64, the id of each source, by which `SourceValues` finds a value; None where
            each source is its own id.
    """

    rows: range
    table: Tensor
    order: Tensor | None
    indptr: Tensor
    indices: Tensor
    ids: Tensor | None


class AllNodes:
    """The nodes that a process owns, in pieces, with the rows of their in-neighbours.

    Every method is collective over ranks.

    Args:
        data: a ``Data``; a pair (`CscGraph`, features); or over ranks (`DistFeatureStore`,
            `DistGraphStore`).
        threads: at most this many threads; torch's own number where None.
        memory_budget: bytes (or a text like "2GiB") that a piece takes, about; see
            `AggregationCache.build`.
        progress: True shows a progress bar for each layer on the standard error of the first rank.

    Raises:
        TypeError, ValueError: ``data`` is no graph with features that can be read here, or the
            budget is not positive.
    """

    def __init__(
        self,
        data: Any,
        threads: int | None = None,
        memory_budget: int | str | None = None,
        progress: bool = False,
    ) -> None:
        budget = check_budget(memory_budget)
        self._context = context_of(data, threads)
        check_features(self._context.features)
        self._budget, self._progress = budget, progress
        self._degrees: dict[bool, SourceValues] = {}

    @property
    def rank(self) -> int:
        """The rank of this process."""
        return self._context.rank

    @property
    def node(self) -> Tensor:
        """[n] int64, the original id of each owned node."""
        return self._context.own.node

    @property
    def features(self) -> ReadableRows:
        """The features of the nodes of each rank whose memory this one can read."""
        return self._context.readable

    def pieces(self, rows: ReadableRows, result_bytes: int, title: str) -> Iterator[NodePiece]:
        """Yields the owned nodes in pieces; as many on every rank, the last ones maybe empty.

        Args:
            rows: [n, F] of the layer before, of each rank whose memory this one can read.
            result_bytes: bytes that the caller takes for each node of a piece.
            title: of the progress bar.
        """
        columns = SourceColumns(
            {_ROWS: rows}, SourceNumbers.TARGETS_FIRST, result_bytes, MessageKind.INFERENCE
        )
        shows = self._progress and self.rank == 0
        with progress_bar(title, self.node.numel(), shows) as advance:
            for piece in self._context.pieces(columns, self._budget):
                done = len(piece.rows)
                yield self._with_edges(piece)
                del piece  # its memory is free while the next one's rows are fetched
                advance(done)
        self._context.wait_for_all()
        ops.empty_cache()  # its blocks have sizes that are not needed again

    def allocate(self, columns: int, dtype: torch.dtype) -> ReadableRows:
        """Makes a table for the owned nodes. Returns those that this rank can read, by rank."""
        return self._context.allocate((self.node.numel(), columns), dtype)

    def degrees(self, with_loops: bool) -> SourceValues:
        """Returns the number of in-edges in the whole graph, of owned nodes and of their sources.

        Args:
            with_loops: True counts edges from a node to itself too.
        """
        if with_loops not in self._degrees:
            own = in_degrees(self._context.own, with_loops).to(torch.int32)
            values = self._context.values_of_sources(own, MessageKind.INFERENCE)
            self._degrees[with_loops] = values
        return self._degrees[with_loops]

    def _with_edges(self, piece: Piece) -> NodePiece:
        indptr = self._context.own.in_edges.indptr[piece.rows.start : piece.rows.stop + 1]
        return NodePiece(
            piece.rows,
            piece.tables[_ROWS],
            piece.order,
            indptr - indptr[0],
            piece.indices,
            piece.ids,
        )
