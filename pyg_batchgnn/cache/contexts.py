"""A graph and its features for a pass over all nodes: in one process, or spread over ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn.cache.distributed_context import DistributedContext
from pyg_batchgnn.cache.local_context import LocalContext
from pyg_batchgnn.cache.pieces import Piece, ReadableRows, SourceColumns
from pyg_batchgnn.cache.source_values import SourceValues
from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.ops import OwnedEdges
from pyg_batchgnn.store import CscGraph, DistFeatureStore, DistGraphStore, graph_from_pyg

T = TypeVar("T")


class BuildContext(Protocol):
    """The graph, the features and the helpers that a pass over all nodes needs in a process.

    All methods are collective over ranks.

    Attributes:
        rank: of the process.
        own: the in-edges of the nodes that it owns.
        features: [n, F] of these nodes.
        readable: the features of each rank whose memory this one can read, by rank.
        store: the store of the features, over ranks; else None.
    """

    rank: int
    own: OwnedEdges
    features: Tensor
    readable: ReadableRows
    store: DistFeatureStore | None

    def pieces(self, columns: SourceColumns, budget: int | None) -> Iterator[Piece]:
        """Yields the owned nodes in pieces.

        All ranks yield the same number of pieces, at least one; the last ones of a rank may be
        empty.

        Args:
            columns: the columns of the sources that the pieces hold.
            budget: bytes of a piece; the least of all ranks counts. None: an eighth of the free
                memory of the host that has least, divided by its ranks.
        """

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> dict[int, Tensor]:
        """Makes a table for the owned nodes. Returns those that this rank can read, by rank."""

    def shared(self, column: Tensor) -> ReadableRows:
        """Lets the other ranks of the host read a column of the owned nodes, [n, ...].

        Returns those that this rank can read, by rank.
        """

    def values_of_sources(self, column: Tensor, kind: MessageKind) -> SourceValues:
        """Returns a value for each owned node and for each source of their in-edges.

        Each value of another rank's node travels once.

        Args:
            column: [n] the values of the owned nodes.
            kind: the kind under which exchanges are counted.
        """

    def wait_for_all(self) -> None:
        """Waits until all ranks have written their rows, which others read after that."""

    def agree(self, arguments: dict[str, Any]) -> None:
        """Raises AgreementError unless the arguments are the same everywhere."""

    def sums(self, values: Sequence[int]) -> list[int]:
        """Returns the sum of each value over ranks."""

    def run_together(self, work: Callable[[], T]) -> T:
        """Does work with files. Where it fails on one rank, all ranks raise."""


def context_of(data: Any, threads: int | None) -> BuildContext:
    """Makes the context of what a user gives as ``data``.

    Args:
        data: a ``Data``; a pair (`CscGraph`, features); or over ranks (`DistFeatureStore`,
            `DistGraphStore`).
        threads: at most this many threads; torch's own number where None.

    Raises:
        TypeError, ValueError: ``data`` is no graph with features that can be read here.
    """
    if isinstance(data, Data):
        return LocalContext(graph_from_pyg(data), data.x)
    pair = tuple(data) if isinstance(data, (tuple, list)) else ()
    if len(pair) == 2 and isinstance(pair[0], CscGraph):
        return LocalContext(*pair)
    if len(pair) == 2 and isinstance(pair[0], DistFeatureStore) and isinstance(pair[1], DistGraphStore):
        return DistributedContext(pair[0], threads)
    raise TypeError(
        f"all nodes are read from a Data, (CscGraph, features) or (DistFeatureStore, DistGraphStore), "
        f"got {type(data).__name__}; give the features of other stores as a tensor"
    )
