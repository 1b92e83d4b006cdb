"""Building a cache of a graph that is spread over ranks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.cache.folder import work_with_files
from pyg_batchgnn.cache.pieces import Piece, PieceLimits, SourceColumns, cut_pieces, free_bytes
from pyg_batchgnn.comm import Header, MessageKind
from pyg_batchgnn.data import FEATURES, NODES
from pyg_batchgnn.partition import ArraySpec, allocate_on_host, share_arrays
from pyg_batchgnn.store import Columns, DistFeatureStore, RowReader, RowRequest

T = TypeVar("T")


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
        mine = free_bytes() // len(self._comm.ranks_of_host) if budget is None else budget
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
        return work_with_files(self._comm, work)


def _unused_name(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name = f"_{name}"
    return name
