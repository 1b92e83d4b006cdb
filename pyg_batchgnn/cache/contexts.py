"""A graph and its features for passes over all nodes: in one process, or spread over ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.cache.distributed_context import DistributedContext
from pyg_batchgnn.cache.local_context import LocalContext
from pyg_batchgnn.cache.pieces import PassReads, Piece, ReadableRows
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
from pyg_batchgnn.types import SourceValues

T = TypeVar("T")


class GraphContext(Protocol):
    """A graph with its features, and the helpers that a pass over all nodes needs in a process.

    Node types and relations are given by number. All methods but those of one line are collective
    over ranks.

    Attributes:
        schema: the node types and the relations.
        rank: of the process.
        store: the store of the features, over ranks; else None.
    """

    schema: Schema
    rank: int
    store: DistFeatureStore | None

    def num_nodes(self, node_type: int) -> int:
        """Returns the number of nodes of a type in the whole graph."""

    def original_ids(self, node_type: int) -> Tensor:
        """Returns the original ids of the owned nodes of a type, [n] int64."""

    def owned_edges(self, relation: int) -> OwnedEdges:
        """Returns the in-edges of a relation's owned targets."""

    def features(self, node_type: int) -> ReadableRows | None:
        """Returns the features of each rank whose memory this one can read; None if there are none.

        Raises:
            TypeError, ValueError: they cannot be read here.
        """

    def no_features(self, node_type: int) -> str:
        """Returns the words of an error: a type has no features."""

    def pieces(self, reads: PassReads, budget: int | None) -> Iterator[Piece]:
        """Yields the owned targets of some relations in pieces.

        All ranks yield the same number of pieces, at least one; the last ones of a rank may be
        empty. Every piece has all the target types, maybe without nodes.

        Args:
            reads: the relations, and the columns that the pieces hold.
            budget: bytes of a piece; the least of all ranks counts. None: an eighth of the free
                memory of the host that has least, divided by its ranks.
        """

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> dict[int, Tensor]:
        """Makes a table for owned nodes. Returns those that this rank can read, by rank."""

    def shared(self, column: Tensor) -> ReadableRows:
        """Lets the other ranks of the host read a column of owned nodes, [n, ...].

        Returns those that this rank can read, by rank.
        """

    def values_of_sources(self, relation: int, column: Tensor, kind: MessageKind) -> SourceValues:
        """Returns a value for each owned node and for each source of their in-edges.

        Each value of another rank's node travels once.

        Args:
            relation: within one node type.
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


def context_of(data: Any, threads: int | None) -> GraphContext:
    """Returns what a user gives as ``data`` as a graph for passes over all nodes.

    Args:
        data: a ``Data`` or a ``HeteroData``; a pair (`CscGraph`, features) or (`TypedGraph`,
            features by node type); or over ranks (`DistFeatureStore`, `DistGraphStore`).
        threads: at most this many threads; torch's own number where None.

    Raises:
        TypeError, ValueError: ``data`` is no graph that can be read here.
    """
    if isinstance(data, (Data, HeteroData)):
        graph = typed_graph_from_pyg(data)
        return _local(graph, {name: features_of(data, name) for name in graph.schema.node_types})
    pair = tuple(data) if isinstance(data, (tuple, list)) else ()
    if len(pair) == 2 and isinstance(pair[0], CscGraph):
        return LocalContext(pair[0].typed, {0: pair[1]})
    if len(pair) == 2 and isinstance(pair[0], TypedGraph) and isinstance(pair[1], Mapping):
        return _local(*pair)
    if len(pair) == 2 and isinstance(pair[0], DistFeatureStore) and isinstance(pair[1], DistGraphStore):
        return DistributedContext(pair[0], threads)
    raise TypeError(
        f"all nodes are read from a Data, a HeteroData, (CscGraph, features) or (DistFeatureStore, "
        f"DistGraphStore), got {type(data).__name__}; give the features of other stores as a tensor"
    )


def _local(graph: TypedGraph, features: Mapping[str, Any]) -> LocalContext:
    return LocalContext(graph, {graph.schema.type_number(name): x for name, x in features.items()})


def features_of(data: Data | HeteroData, node_type: str) -> Any:
    """Returns the features of the nodes of a type; None if they have none."""
    return data.x if isinstance(data, Data) else data[node_type].get(FEATURES)
