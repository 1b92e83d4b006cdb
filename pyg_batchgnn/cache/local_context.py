"""Building a cache of a whole graph in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.cache.folder import work_with_files
from pyg_batchgnn.cache.pieces import Piece, PieceLimits, SourceColumns, cut_pieces, free_bytes
from pyg_batchgnn.store import CscGraph, DistFeatureStore

T = TypeVar("T")


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
        limits = PieceLimits.in_place(free_bytes() if budget is None else budget)
        for rows in cut_pieces(self.own, limits):
            yield Piece(rows, self.own.in_edges.sources(rows), None, features, columns.scale)

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> dict[int, Tensor]:
        return {0: torch.empty(shape, dtype=dtype)}

    def agree(self, arguments: dict[str, Any]) -> None:
        pass

    def sums(self, values: Sequence[int]) -> list[int]:
        return list(values)

    def run_together(self, work: Callable[[], T]) -> T:
        return work_with_files(None, work)
