"""Passes over all nodes of a graph that is spread over ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.cache.bytes import free_bytes
from pyg_batchgnn.cache.cuts import Cut, PieceLimits, cut_pieces
from pyg_batchgnn.cache.folder import work_with_files
from pyg_batchgnn.cache.pieces import PassReads, Piece, PieceNodes, ReadableRows, Renumbered, SourceNumbers
from pyg_batchgnn.cache.source_values import halo_nodes
from pyg_batchgnn.cache.targets import owned_targets
from pyg_batchgnn.comm import Header, MessageKind
from pyg_batchgnn.data import FEATURES, Group
from pyg_batchgnn.ops import OwnedEdges
from pyg_batchgnn.partition import ArraySpec, allocate_on_host, share_arrays
from pyg_batchgnn.store import Columns, DistFeatureStore, RowReader, RowRequest
from pyg_batchgnn.types import SourceValues

T = TypeVar("T")

#: The name of a column of one value per node.
_VALUES = "values"


class DistributedContext:
    """A rank's part of a graph. Each distinct remote node of a piece is fetched once, and the rows
    of all types in one exchange.

    Args:
        store: the store of the features.
        threads: at most this many threads; torch's own number where None.
    """

    def __init__(self, store: DistFeatureStore, threads: int | None) -> None:
        self.store: DistFeatureStore | None = store
        self._store, self._comm, self._threads = store, store.comm, threads
        self._part, self.schema = store.part, store.part.schema
        store.comm.run_job(lambda: None)  # waits for what a loader prepares
        self.rank = store.comm.rank
        # All ranks answer, because a rank that is alone on its host cannot tell whether others
        # share.
        self._shares = max(store.comm.all_gather_json(len(store.readable))) > 1

    def num_nodes(self, node_type: int) -> int:
        return self._part.book.num_nodes_of(node_type)

    def original_ids(self, node_type: int) -> Tensor:
        return self._part.original_ids(node_type)

    def owned_edges(self, relation: int) -> OwnedEdges:
        return self._part.owned_edges_of(relation)

    def features(self, node_type: int) -> ReadableRows | None:
        group = self.schema.node_groups[node_type]
        if FEATURES not in self._store.own.attributes[group]:
            return None
        return {rank: shard.attributes[group][FEATURES] for rank, shard in self._store.readable.items()}

    def no_features(self, node_type: int) -> str:
        group = self.schema.node_groups[node_type]
        of_type = f" of type {group.name!r}" if self.schema.has_names else ""
        has = ", ".join(sorted(self._store.own.attributes[group])) or "none"
        return f"the graph has no node attribute {FEATURES!r}{of_type} (it has: {has})"

    def pieces(self, reads: PassReads, budget: int | None) -> Iterator[Piece]:
        tables = dict(reads.tables)
        if reads.numbers is SourceNumbers.TABLE_ROWS:
            for relation in reads.relations:
                tables.setdefault(self.schema.source_types[relation], {})
        reader = self._reader(tables, reads.numbers is SourceNumbers.TABLE_ROWS)
        mine = free_bytes() // len(self._comm.ranks_of_host) if budget is None else budget
        row_bytes = {kind: reader.format(self.schema.node_groups[kind]).wire_bytes for kind in tables}
        limits = PieceLimits.fetched(int(self._comm.min(mine)), row_bytes, self._comm.size)
        targets = owned_targets(self, reads.relations)
        num_nodes = {kind: self.num_nodes(kind) for kind in tables}
        cuts = list(cut_pieces(targets, limits.with_results(reads.result_bytes), num_nodes))
        nothing = {one.node_type: range(0) for one in targets}
        for number in range(max(1, int(self._comm.max(len(cuts))))):
            cut = cuts[number] if number < len(cuts) else nothing
            # The generator holds no piece: memory is free again when the caller lets go of it.
            yield self._fetched(reader, list(tables), cut, reads, Header(reads.kind, macrobatch=number))

    def _reader(self, tables: Mapping[int, Mapping[str, ReadableRows]], original_ids: bool) -> RowReader:
        """Makes a reader of some columns alone, by number of the type."""
        groups = {self.schema.node_groups[kind]: columns for kind, columns in tables.items()}
        shards = {
            rank: replace(
                shard,
                attributes={
                    group: {name: rows[rank] for name, rows in columns.items()}
                    for group, columns in groups.items()
                },
            )
            for rank, shard in self._store.readable.items()
        }
        columns = {group: Columns(list(names), original_ids) for group, names in groups.items()}
        return RowReader(self._part, self._comm, shards, columns, self._threads)

    def _fetched(
        self, reader: RowReader, kinds: Sequence[int], cut: Cut, reads: PassReads, header: Header
    ) -> Piece:
        """Reads the rows of a piece. ``kinds``: the types that are read."""
        schema = self.schema
        indices: dict[int, Tensor] = {}
        orders: dict[int, Tensor] = {}
        wanted: dict[Group, RowRequest] = {}
        first = reads.numbers is SourceNumbers.TARGETS_FIRST
        for kind in kinds:
            read = [one for one in reads.relations if schema.source_types[one] == kind]
            sources = [
                self._part.relations[one].sources(cut[schema.target_types[one]]).to(torch.int64)
                for one in read
            ]
            if first:
                begin, own = self._part.nodes_of(kind).start, cut.get(kind, range(0))
                targets = range(begin + own.start, begin + own.stop)
                found = Renumbered.of(sources, targets, self._part.book.num_nodes)
                ids, places, orders[kind] = found.ids, found.indices, found.order
            else:
                ids, places = ops.unique_nodes(sources, self._part.book.num_nodes)
            wanted[schema.node_groups[kind]] = RowRequest(ids)
            indices.update(zip(read, places, strict=True))
        blocks = reader.read(wanted, header).blocks
        nodes = {}
        for kind in kinds:
            group, order = schema.node_groups[kind], orders.get(kind)
            numbered = None if order is None else ops.gather_rows(wanted[group].node, order)
            nodes[kind] = PieceNodes(blocks[group].attributes, blocks[group].original, order, numbered)
        return Piece(cut, indices, nodes)

    def shared(self, column: Tensor) -> ReadableRows:
        if not self._shares:
            return {self.rank: column}
        shared = share_arrays(self._comm, {"column": column})
        return {rank: arrays["column"] for rank, arrays in shared.items()}

    def values_of_sources(self, relation: int, column: Tensor, kind: MessageKind) -> SourceValues:
        own, source = self.owned_edges(relation), self.schema.source_types[relation]
        halo, group = halo_nodes(own), self.schema.node_groups[source]
        reader = self._reader({source: {_VALUES: self.shared(column)}}, original_ids=False)
        found = reader.read({group: RowRequest(halo)}, Header(kind)).blocks[group]
        return SourceValues(own.first_node, column, halo, found.attributes[_VALUES])

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
