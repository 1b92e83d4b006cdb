"""A graph and its features for passes over all nodes: in one process, or spread over ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.cache.distributed_context import DistributedContext
from pyg_batchgnn.cache.local_context import LocalContext
from pyg_batchgnn.cache.pieces import Piece, ReadableRows, SourceColumns
from pyg_batchgnn.cache.source_values import SourceValues
from pyg_batchgnn.comm import MessageKind
from pyg_batchgnn.data import FEATURES, Schema
from pyg_batchgnn.ops import OwnedEdges
from pyg_batchgnn.store import (
    CscGraph,
    DistFeatureStore,
    DistGraphStore,
    TypedGraph,
    typed_graph_from_pyg,
)

T = TypeVar("T")


class BuildContext(Protocol):
    """A relation, the features of its sources, and the helpers that a pass over all of its targets
    needs in a process.

    All methods are collective over ranks.

    Attributes:
        rank: of the process.
        own: the in-edges of the targets that it owns.
        num_targets: the number of targets of the whole graph.
        features: [n, F] of the nodes of the source type that it owns.
        source_node: [n] int64, the original ids of these nodes.
        readable: the features of each rank whose memory this one can read, by rank.
        store: the store of the features, over ranks; else None.
    """

    rank: int
    own: OwnedEdges
    num_targets: int
    features: Tensor
    source_node: Tensor
    readable: ReadableRows
    store: DistFeatureStore | None

    def pieces(self, columns: SourceColumns, budget: int | None) -> Iterator[Piece]:
        """Yields the owned targets in pieces.

        All ranks yield the same number of pieces, at least one; the last ones of a rank may be
        empty.

        Args:
            columns: the columns of the sources that the pieces hold.
            budget: bytes of a piece; the least of all ranks counts. None: an eighth of the free
                memory of the host that has least, divided by its ranks.
        """

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> dict[int, Tensor]:
        """Makes a table for the owned targets. Returns those that this rank can read, by rank."""

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


class ContextSource(Protocol):
    """A graph with features that is read relation by relation.

    Attributes:
        schema: the node types and the relations.
        store: the store of the features, over ranks; else None.
    """

    schema: Schema
    store: DistFeatureStore | None

    def context(self, relation: int) -> BuildContext:
        """Makes the context of a relation, given by number.

        Raises:
            TypeError, ValueError: its sources have no features that can be read here.
        """

    def agree(self, arguments: dict[str, Any]) -> None:
        """Raises AgreementError unless the arguments are the same everywhere. Collective."""


class _LocalSource:
    """A graph in one process. ``features``: those of each node type, or None."""

    store: DistFeatureStore | None = None

    def __init__(self, graph: TypedGraph, features: Sequence[Any]) -> None:
        self.schema, self._graph, self._features = graph.schema, graph, features

    def context(self, relation: int) -> LocalContext:
        return LocalContext(self._graph, relation, self._features[self.schema.source_types[relation]])

    def agree(self, arguments: dict[str, Any]) -> None:
        pass


class _RankSource:
    """A graph over ranks."""

    def __init__(self, store: DistFeatureStore, threads: int | None) -> None:
        self.schema, self._held, self._threads = store.part.schema, store, threads
        self.store: DistFeatureStore | None = store

    def context(self, relation: int) -> DistributedContext:
        return DistributedContext(self._held, relation, self._threads)

    def agree(self, arguments: dict[str, Any]) -> None:
        comm = self._held.comm
        comm.run_job(lambda: comm.check_agreement(arguments))


def source_of(data: Any, threads: int | None) -> ContextSource:
    """Returns what a user gives as ``data`` as a graph that is read relation by relation.

    Args:
        data: a ``Data`` or a ``HeteroData``; a pair (`CscGraph`, features); or over ranks
            (`DistFeatureStore`, `DistGraphStore`).
        threads: at most this many threads; torch's own number where None.

    Raises:
        TypeError, ValueError: ``data`` is no graph that can be read here.
    """
    if isinstance(data, (Data, HeteroData)):
        graph = typed_graph_from_pyg(data)
        return _LocalSource(graph, [features_of(data, name) for name in graph.schema.node_types])
    pair = tuple(data) if isinstance(data, (tuple, list)) else ()
    if len(pair) == 2 and isinstance(pair[0], CscGraph):
        return _LocalSource(pair[0].typed, [pair[1]])
    if len(pair) == 2 and isinstance(pair[0], DistFeatureStore) and isinstance(pair[1], DistGraphStore):
        return _RankSource(pair[0], threads)
    raise TypeError(
        f"all nodes are read from a Data, a HeteroData, (CscGraph, features) or (DistFeatureStore, "
        f"DistGraphStore), got {type(data).__name__}; give the features of other stores as a tensor"
    )


def features_of(data: Data | HeteroData, node_type: str) -> Any:
    """Returns the features of the nodes of a type; None if they have none."""
    return data.x if isinstance(data, Data) else data[node_type].get(FEATURES)


def context_of(data: Any, threads: int | None) -> BuildContext:
    """Makes the context of a graph of one node type and one relation; see `source_of`.

    Raises:
        NotImplementedError: the graph has several node types or relations.
        TypeError, ValueError: ``data`` is no graph with features that can be read here.
    """
    source = source_of(data, threads)
    if not source.schema.is_plain:
        raise NotImplementedError(
            f"passes over all nodes are for graphs of one node type and one relation, but this one has the "
            f"node types {list(source.schema.node_types)}; sample its nodes with num_neighbors=-1"
        )
    return source.context(0)
