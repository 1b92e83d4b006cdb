"""The graph and the features of which a cache is built: in one process, or spread over ranks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import psutil
import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_batchgnn import ops
from pyg_batchgnn.cache.pieces import Piece, PieceLimits, SourceColumns, cut_pieces
from pyg_batchgnn.comm import Header, MessageKind
from pyg_batchgnn.data import FEATURES, NODES
from pyg_batchgnn.ops import OwnedEdges
from pyg_batchgnn.partition import ArraySpec, allocate_on_host, share_arrays, with_files
from pyg_batchgnn.store import (
    Columns,
    CscGraph,
    DistFeatureStore,
    DistGraphStore,
    RowReader,
    RowRequest,
    graph_from_pyg,
)

T = TypeVar("T")


class BuildContext(Protocol):
    """The graph, the features and the helpers that building a cache needs in a process.

    All methods are collective over ranks.

    Attributes:
        rank: of the process.
        own: the in-edges of the nodes that it owns.
        features: [n, F] of these nodes.
        store: the store of the features, over ranks; else None.
    """

    rank: int
    own: OwnedEdges
    features: Tensor
    store: DistFeatureStore | None

    def pieces(self, columns: SourceColumns, budget: int | None) -> Iterator[Piece]:
        """Yields the owned nodes in pieces.

        All ranks yield the same number of pieces; the last ones of a rank may be empty.

        Args:
            columns: the columns of the sources that the pieces hold.
            budget: bytes of a piece; the least of all ranks counts. None: an eighth of the free
                memory of the host that has least, divided by its ranks.
        """

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> dict[int, Tensor]:
        """Makes a table for the owned nodes. Returns those that this rank can read, by rank."""

    def agree(self, arguments: dict[str, Any]) -> None:
        """Raises AgreementError unless the arguments are the same everywhere."""

    def sums(self, values: Sequence[int]) -> list[int]:
        """Returns the sum of each value over ranks."""

    def run_together(self, work: Callable[[], T]) -> T:
        """Does work with files. Where it fails on one rank, all ranks raise."""


class LocalContext:
    """A whole graph in one process. Features are read where they lie, without a copy."""

    rank = 0
    store: DistFeatureStore | None = None

    def __init__(self, graph: CscGraph, x: Any) -> None:
        if x is None:
            raise ValueError("there are no features x to aggregate; put them into data.x")
        if isinstance(x, np.ndarray):
            x = torch.from_numpy(x)
        if not isinstance(x, Tensor) or x.layout is not torch.strided:
            raise TypeError(f"x must be a dense tensor or a NumPy array, got {type(x).__name__}")
        if len(x) != graph.num_nodes:
            raise ValueError(f"x has {len(x)} rows for {graph.num_nodes} nodes")
        self.own, self.features = graph.owned_edges, x

    def pieces(self, columns: SourceColumns, budget: int | None) -> Iterator[Piece]:
        features = self.features if columns.features else None
        limits = PieceLimits.in_place(_free_bytes() if budget is None else budget)
        for rows in cut_pieces(self.own, limits):
            yield Piece(rows, self.own.in_edges.sources(rows), None, features, columns.scale)

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> dict[int, Tensor]:
        return {0: torch.empty(shape, dtype=dtype)}

    def agree(self, arguments: dict[str, Any]) -> None:
        pass

    def sums(self, values: Sequence[int]) -> list[int]:
        return list(values)

    def run_together(self, work: Callable[[], T]) -> T:
        return work()


class DistributedContext:
    """A rank's part of a graph. Each distinct remote source of a piece is fetched once."""

    def __init__(self, store: DistFeatureStore, threads: int | None) -> None:
        attributes = store.own.attributes[NODES]
        if FEATURES not in attributes:
            raise ValueError(
                f"the graph has no node attribute {FEATURES!r} to aggregate (it has: "
                f"{', '.join(sorted(attributes)) or 'none'})"
            )
        self.store: DistFeatureStore | None = store
        self._store, self._comm, self._threads = store, store.comm, threads
        store.comm.run_job(lambda: None)  # waits for what a loader prepares
        self.rank, self.features = store.comm.rank, attributes[FEATURES]
        self.own = store.part.owned_edges
        # All ranks answer, because a rank that is alone on its host cannot tell whether others
        # share.
        self._shares = max(store.comm.all_gather_json(len(store.readable))) > 1

    def pieces(self, columns: SourceColumns, budget: int | None) -> Iterator[Piece]:
        store, names = self._store, [FEATURES] if columns.features else []
        scale = _unused_name("scale", store.own.attributes[NODES])
        if columns.scale is not None:
            store = store.with_attribute(NODES, scale, self._readable(columns.scale))
            names.append(scale)
        reader = store.reader({NODES: Columns(names, original_ids=True)}, self._threads)
        mine = _free_bytes() // len(self._comm.ranks_of_host) if budget is None else budget
        row_bytes = reader.format(NODES).wire_bytes
        cuts = list(
            cut_pieces(self.own, PieceLimits.fetched(int(self._comm.min(mine)), row_bytes, self._comm.size))
        )
        for number in range(self._comm.max(len(cuts))):
            rows = cuts[number] if number < len(cuts) else range(0)
            # The generator holds no piece: memory is free again when the caller lets go of it.
            yield self._fetched(reader, rows, scale, Header(MessageKind.FEATURES, macrobatch=number))

    def _fetched(self, reader: RowReader, rows: range, scale: str, header: Header) -> Piece:
        sources = self.own.in_edges.sources(rows).to(torch.int64)
        unique, (place,) = ops.unique_nodes([sources], self.own.num_nodes)
        block = reader.read({NODES: RowRequest(unique)}, header).blocks[NODES]
        found = block.attributes
        return Piece(rows, place, block.original, found.get(FEATURES), found.get(scale))

    def _readable(self, column: Tensor) -> dict[int, Tensor]:
        """Shares a column of the owned nodes. Returns those that this rank can read, by rank."""
        if not self._shares:
            return {self.rank: column}
        shared = share_arrays(self._comm, {"column": column})
        return {rank: arrays["column"] for rank, arrays in shared.items()}

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> dict[int, Tensor]:
        if not self._shares:
            return {self.rank: torch.empty(shape, dtype=dtype)}
        found = allocate_on_host(self._comm, {"rows": ArraySpec(dtype, shape)})
        return {rank: arrays["rows"] for rank, arrays in found.items()}

    def agree(self, arguments: dict[str, Any]) -> None:
        self._comm.check_agreement(arguments)

    def sums(self, values: Sequence[int]) -> list[int]:
        # Python's integers: sums of digests do not fit 64 bits.
        return [sum(column) for column in zip(*self._comm.all_gather_json(list(values)), strict=True)]

    def run_together(self, work: Callable[[], T]) -> T:
        return with_files(self._comm, work)


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
        f"an aggregation cache is made of a Data, of (CscGraph, features) or of (DistFeatureStore, "
        f"DistGraphStore), got {type(data).__name__}; give the features of other stores as a tensor"
    )


def _unused_name(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name = f"_{name}"
    return name


def _free_bytes() -> int:
    """The bytes of the host's memory that building may take."""
    return int(psutil.virtual_memory().available // 8)
