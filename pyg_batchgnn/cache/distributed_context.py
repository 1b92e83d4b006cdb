"""A pass over all targets of a relation of a graph that is spread over ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.cache.bytes import free_bytes
from pyg_batchgnn.cache.folder import work_with_files
from pyg_batchgnn.cache.pieces import (
    Piece,
    PieceLimits,
    ReadableRows,
    Renumbered,
    SourceColumns,
    SourceNumbers,
    cut_pieces,
)
from pyg_batchgnn.cache.source_values import SourceValues, halo_nodes
from pyg_batchgnn.comm import Header, MessageKind
from pyg_batchgnn.data import FEATURES
from pyg_batchgnn.partition import ArraySpec, allocate_on_host, share_arrays
from pyg_batchgnn.store import Columns, DistFeatureStore, RowReader, RowRequest

T = TypeVar("T")

#: The name of a column of one value per node.
_VALUES = "values"


class DistributedContext:
    """A relation of a rank's part of a graph. Each distinct remote source of a piece is fetched
    once.

    Args:
        store: the store of the features.
        relation: the number of the relation.
        threads: at most this many threads; torch's own number where None.
    """

    def __init__(self, store: DistFeatureStore, relation: int, threads: int | None) -> None:
        part, schema = store.part, store.part.schema
        source, target = schema.source_types[relation], schema.target_types[relation]
        self._group = schema.node_groups[source]
        attributes = store.own.attributes[self._group]
        if FEATURES not in attributes:
            of_type = f" of type {self._group.name!r}" if schema.has_names else ""
            raise ValueError(
                f"the graph has no node attribute {FEATURES!r}{of_type} (it has: "
                f"{', '.join(sorted(attributes)) or 'none'})"
            )
        self.store: DistFeatureStore | None = store
        self._store, self._comm, self._threads = store, store.comm, threads
        store.comm.run_job(lambda: None)  # waits for what a loader prepares
        self.rank, self.features = store.comm.rank, attributes[FEATURES]
        self.readable: ReadableRows = {
            rank: shard.attributes[self._group][FEATURES] for rank, shard in store.readable.items()
        }
        self.own, self.source_node = part.owned_edges_of(relation), part.original_ids(source)
        self.num_targets = part.book.num_nodes_of(target)
        # All ranks answer, because a rank that is alone on its host cannot tell whether others
        # share.
        self._shares = max(store.comm.all_gather_json(len(store.readable))) > 1

    def pieces(self, columns: SourceColumns, budget: int | None) -> Iterator[Piece]:
        reader = self._reader(columns.tables, columns.numbers is SourceNumbers.TABLE_ROWS)
        mine = free_bytes() // len(self._comm.ranks_of_host) if budget is None else budget
        row_bytes = reader.format(self._group).wire_bytes
        limits = PieceLimits.fetched(int(self._comm.min(mine)), row_bytes, self._comm.size)
        cuts = list(cut_pieces(self.own, limits.with_results(columns.result_bytes)))
        for number in range(max(1, int(self._comm.max(len(cuts))))):
            rows = cuts[number] if number < len(cuts) else range(0)
            # The generator holds no piece: memory is free again when the caller lets go of it.
            yield self._fetched(reader, rows, columns, Header(columns.kind, macrobatch=number))

    def _reader(self, tables: Mapping[str, ReadableRows], original_ids: bool) -> RowReader:
        """Makes a reader of some columns alone."""
        store = self._store
        shards = {
            rank: replace(
                shard, attributes={self._group: {name: rows[rank] for name, rows in tables.items()}}
            )
            for rank, shard in store.readable.items()
        }
        columns = {self._group: Columns(list(tables), original_ids)}
        return RowReader(store.part, self._comm, shards, columns, self._threads)

    def _fetched(self, reader: RowReader, rows: range, columns: SourceColumns, header: Header) -> Piece:
        sources, first = self.own.in_edges.sources(rows), self.own.first_node
        order = ids = None
        if columns.numbers is SourceNumbers.TARGETS_FIRST:
            found = Renumbered.of(sources, range(first + rows.start, first + rows.stop), self.own.num_nodes)
            unique, place, order = found.ids, found.indices, found.order
            ids = ops.gather_rows(unique, order)
        else:
            unique, (place,) = ops.unique_nodes([sources.to(torch.int64)], self.own.num_nodes)
        block = reader.read({self._group: RowRequest(unique)}, header).blocks[self._group]
        return Piece(rows, place, block.original, block.attributes, order, ids)

    def shared(self, column: Tensor) -> ReadableRows:
        if not self._shares:
            return {self.rank: column}
        shared = share_arrays(self._comm, {"column": column})
        return {rank: arrays["column"] for rank, arrays in shared.items()}

    def values_of_sources(self, column: Tensor, kind: MessageKind) -> SourceValues:
        halo = halo_nodes(self.own)
        reader = self._reader({_VALUES: self.shared(column)}, original_ids=False)
        found = reader.read({self._group: RowRequest(halo)}, Header(kind)).blocks[self._group]
        return SourceValues(self.own.first_node, column, halo, found.attributes[_VALUES])

    def wait_for_all(self) -> None:
        self._comm.barrier()

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
