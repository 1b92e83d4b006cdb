"""One process or many: where the graph and its features are, and how what is found becomes that of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import psutil
import torch
from torch import Tensor

from pyg_batchgnn.cache.neighbourhood import (
    HeldSources,
    Limits,
    Piece,
    RankSources,
    Sources,
    original_of,
)
from pyg_batchgnn.ops import OwnedEdges
from pyg_batchgnn.partition import ArraySpec, allocate_on_host, share_arrays, with_files
from pyg_batchgnn.store import NODE_ID, CscGraph, DistFeatureStore

T = TypeVar("T")


class Place(Protocol):
    """What building needs to know of a process.

    Attributes:
        rank: of the process.
        own: the nodes that it owns.
        table: [n, F] their features.
        store: over ranks, where features are.
    """

    rank: int
    own: OwnedEdges
    table: Tensor
    store: DistFeatureStore | None

    def sources(self, columns: Mapping[str, Tensor], *, features: bool) -> Sources:
        """Reads rows of the sources of edges: original ids, more columns of own nodes, and features on
        request."""

    def limits(self, sources: Sources, wanted: int | None) -> Limits:
        """Of a piece, the same on all ranks: the fewest bytes ``wanted`` of any, or an eighth of what is
        free where least is, of which a host's ranks have equal shares."""

    def original(self, piece: Piece) -> Tensor:
        """[e] int64 original ids of the sources of a piece's edges."""

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> dict[int, Tensor]:
        """A table for this rank's nodes, and those of ranks that this one can read."""

    def agree(self, arguments: dict[str, Any]) -> None:
        """Raises AgreementError unless they are the same everywhere."""

    def sums(self, values: Sequence[int]) -> list[int]:
        """Over ranks."""

    def together(self, work: Callable[[], T]) -> T:
        """Work with files, which fails on all ranks where it fails on one."""


class HeldPlace:
    """A whole graph in one process."""

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
        self.own, self.table = graph.owned_edges, x

    def sources(self, columns: Mapping[str, Tensor], *, features: bool) -> Sources:
        tables = {"x": self.table} if features else {}
        return HeldSources({**tables, **columns, NODE_ID: self.own.node})

    def limits(self, sources: Sources, wanted: int | None) -> Limits:  # noqa: ARG002
        return Limits.within(_free() if wanted is None else wanted, 0, 1)

    def original(self, piece: Piece) -> Tensor:
        return piece.indices.to(torch.int64)

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> dict[int, Tensor]:
        return {0: torch.empty(shape, dtype=dtype)}

    def agree(self, arguments: dict[str, Any]) -> None:
        pass

    def sums(self, values: Sequence[int]) -> list[int]:
        return list(values)

    def together(self, work: Callable[[], T]) -> T:
        return work()


class RankPlace:
    """A rank's part of a graph that is spread over ranks."""

    def __init__(self, store: DistFeatureStore, threads: int | None) -> None:
        if "x" not in store.own.tables:
            held = ", ".join(sorted(store.own.tables)) or "none"
            raise ValueError(f"the graph has no node attribute 'x' to aggregate (held: {held})")
        self.store: DistFeatureStore | None = store
        self._features, self._comm, self._threads = store, store.comm, threads
        store.comm.run_job(lambda: None)  # after what a loader prepares
        self.rank, self.table = store.comm.rank, store.own.tables["x"]
        self.own = store.part.owned_edges
        # Asked of all, as a rank that is alone on its host cannot tell whether others share.
        self._shares = max(store.comm.all_gather_json(len(store.held))) > 1

    def sources(self, columns: Mapping[str, Tensor], *, features: bool) -> Sources:
        store = self._features
        for name, column in columns.items():
            store = store.beside(name, self._readable(name, column))
        names = [*(["x"] if features else []), *columns, NODE_ID]
        return RankSources(store, names, self._threads)

    def _readable(self, name: str, column: Tensor) -> dict[int, Tensor]:
        if not self._shares:
            return {self.rank: column}
        return {rank: arrays[name] for rank, arrays in share_arrays(self._comm, {name: column}).items()}

    def limits(self, sources: Sources, wanted: int | None) -> Limits:
        assert isinstance(sources, RankSources)
        mine = _free() // len(self._comm.ranks_of_host) if wanted is None else wanted
        return Limits.within(int(self._comm.min(mine)), sources.row_bytes, self._comm.size)

    def original(self, piece: Piece) -> Tensor:
        return original_of(piece)

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> dict[int, Tensor]:
        if not self._shares:
            return {self.rank: torch.empty(shape, dtype=dtype)}
        found = allocate_on_host(self._comm, {"rows": ArraySpec(dtype, shape)})
        return {rank: arrays["rows"] for rank, arrays in found.items()}

    def agree(self, arguments: dict[str, Any]) -> None:
        self._comm.check_agreement(arguments)

    def sums(self, values: Sequence[int]) -> list[int]:
        # Python's integers, as sums of digests do not fit 64 bits.
        return [sum(column) for column in zip(*self._comm.all_gather_json(list(values)), strict=True)]

    def together(self, work: Callable[[], T]) -> T:
        return with_files(self._comm, work)


def _free() -> int:
    """What building may take of the host's memory, bytes."""
    return int(psutil.virtual_memory().available // 8)
