"""A graph and its features for passes over all nodes: in one process, or spread over ranks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import ops
from pyg_batchgnn.cache.folder import work_with_files
from pyg_batchgnn.cache.pass_memory import PassMemory, RowsInMemory
from pyg_batchgnn.cache.pieces import (
    Cut,
    OwnedTargets,
    PassReads,
    Piece,
    PieceLimits,
    PieceNodes,
    cut_pieces,
    halo_nodes,
    number_sources,
)
from pyg_batchgnn.comm import Field, Header, MessageKind
from pyg_batchgnn.disk import DiskReader, read_rows, read_span
from pyg_batchgnn.ops import OwnedEdges, free_bytes
from pyg_batchgnn.partition import allocate_on_host, share_arrays
from pyg_batchgnn.store import Columns as RowColumns
from pyg_batchgnn.store import (
    CscGraph,
    DistFeatureStore,
    DistGraphStore,
    RowReader,
    RowRequest,
    TypedGraph,
    attribute_by_group,
    typed_graph_from_pyg,
)
from pyg_batchgnn.types import FEATURES, Group, NewRows, ReadableRows, SourceValues

T = TypeVar("T")
#: Columns by name and by rank that can read them, by number of the node type.
Columns: TypeAlias = Mapping[int, Mapping[str, ReadableRows]]
#: Reads the columns of nodes, given by distinct ids, by number of the type.
ReadNodes: TypeAlias = Callable[..., Mapping[int, PieceNodes]]
_VALUES = "values"  # the name of a column of one value per node
_NUMBERS = 24  # the bytes of a row's numbers, where rows come from a file


def context_of(
    data: Any, threads: int | None, budget: int | None = None, scratch: str | Path | None = None
) -> GraphContext:
    """Returns the user's ``data`` as a graph for passes over all nodes."""
    memory = PassMemory(budget, scratch)
    if isinstance(data, (Data, HeteroData)):
        whole, graph = data, typed_graph_from_pyg(data)
        x = {name: features_of(data, name) for name in graph.schema.node_types}
        data = graph, x, lambda name: attribute_by_group(whole, name, graph)
    pair = tuple(data) if isinstance(data, (tuple, list)) else ()
    if len(pair) in (2, 3) and isinstance(pair[0], CscGraph):
        return GraphContext(pair[0].typed, {0: pair[1]}, memory, *pair[2:])
    if len(pair) in (2, 3) and isinstance(pair[0], TypedGraph) and isinstance(pair[1], Mapping):
        number = pair[0].schema.type_number
        return GraphContext(pair[0], {number(name): x for name, x in pair[1].items()}, memory, *pair[2:])
    if len(pair) == 2 and isinstance(pair[0], DistFeatureStore) and isinstance(pair[1], DistGraphStore):
        if scratch is not None:
            raise ValueError(
                "scratch is for one process: over ranks the rows of layers lie in memory; leave it out"
            )
        return DistributedContext(pair[0], threads, budget)
    raise TypeError(
        f"all nodes are read from a Data, a HeteroData, (CscGraph, features) or (DistFeatureStore, "
        f"DistGraphStore), got {type(data).__name__}; give the features of other stores as a tensor"
    )


def features_of(data: Data | HeteroData, node_type: str) -> Any:
    return data.x if isinstance(data, Data) else data[node_type].get(FEATURES)


class GraphContext:
    """A graph with features for passes over all nodes, held whole by this process. ``features``:
    [n, F] by number of the type, or None. ``edge_values``: returns an edge attribute by group."""

    rank = 0  # of the process
    store: DistFeatureStore | None = None  # the store of the features, over ranks

    def __init__(
        self,
        graph: TypedGraph,
        features: Mapping[int, Any],
        memory: PassMemory,
        edge_values: Callable[[str], Mapping[Group, Tensor]] = lambda _: {},
    ) -> None:
        self.schema, self._graph, self._features, self._memory = graph.schema, graph, features, memory
        self._edge_values = cache(edge_values)
        self._owned: dict[int, OwnedEdges] = {}
        self._ids: dict[int, Tensor] = {}

    def num_nodes(self, node_type: int) -> int:
        return self._graph.num_nodes[node_type]

    def count(self, node_type: int) -> int:
        return self.num_nodes(node_type)

    def original_ids(self, node_type: int) -> Tensor:
        if node_type not in self._ids:
            self._ids[node_type] = torch.arange(self.num_nodes(node_type))
        return self._ids[node_type]

    def owned_edges(self, relation: int) -> OwnedEdges:
        """Returns a relation's in-edges of owned nodes."""
        if relation not in self._owned:
            ends = self.schema.source_types[relation], self.schema.target_types[relation]
            edges, (sources, targets) = self._graph.relations[relation], map(self.num_nodes, ends)
            node = self.original_ids(self.schema.target_types[relation])
            self._owned[relation] = OwnedEdges(edges, node, 0, max(sources, targets), edges.num_edges)
        return self._owned[relation]

    def features(self, node_type: int) -> ReadableRows | None:
        """Returns the features of this host's ranks, by rank; None if the type has none."""
        x = self._features.get(node_type)
        if x is None:
            return None
        if isinstance(x, np.ndarray):
            x = torch.from_numpy(x)
        if not isinstance(x, Tensor) or x.layout is not torch.strided:
            kind = f"{x.layout}; call x.to_dense()" if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"x must be a dense tensor or a NumPy array, got {kind}")
        if len(x) != self.num_nodes(node_type):
            raise ValueError(f"x has {len(x)} rows for {self.num_nodes(node_type)} nodes")
        self._memory.take_features(x)
        return {self.rank: x}

    def edge_tables(self, name: str) -> Mapping[int, Tensor]:
        """Returns an edge attribute by number of the relation."""
        groups, found = self.schema.edge_groups, self._edge_values(name)
        tables = {number: found[one] for number, one in enumerate(groups) if one in found}
        for number, table in tables.items():
            if len(table) != (edges := self._graph.relations[number].num_edges):
                raise ValueError(f"{name} of {groups[number]} has {len(table)} rows for {edges} edges")
            self._memory.take_features(table)
        return tables

    def edge_values(self, relation: int, name: str, rows: range) -> Tensor:
        """Returns an edge attribute for the in-edges of owned targets ``rows``, [e, ...]."""
        table, in_edges = self.edge_tables(name)[relation], self.owned_edges(relation).in_edges
        edges, ids = in_edges.edges(rows), in_edges.edge_ids
        if ids is None or self.store is not None:  # a rank's rows lie in the order of its edges
            return ops.decoded(self.read(table, edges))
        return ops.decoded(self.gather(table, ids[edges.start : edges.stop].to(torch.int64)))

    def no_features(self, node_type: int) -> str:
        name = f"[{self.schema.node_types[node_type]!r}]" if self.schema.has_names else ""
        return f"there are no features x to read; put them into data{name}.x"

    def pieces(self, reads: PassReads) -> Iterator[Piece]:
        """Yields the owned targets of some relations in pieces: equally many on every rank, at
        least one, maybe empty. Collective."""
        sources, into = self.schema.source_types, dict[int, list[int]]()
        for relation in reads.relations:
            into.setdefault(self.schema.target_types[relation], []).append(relation)
        targets = [
            OwnedTargets(kind, [*map(self.owned_edges, some)], [sources[one] for one in some])
            for kind, some in sorted(into.items())
        ]
        # Sources are numbered by rows, also where these have no columns.
        kinds = [*reads.tables, *(() if reads.targets_first else (sources[one] for one in reads.relations))]
        tables = {kind: reads.tables.get(kind, {}) for kind in kinds}
        limits, read = self._reading(reads, tables)
        limits = replace(limits, edge=limits.edge + reads.value_bytes)
        cuts = cut_pieces(targets, limits, {kind: self.num_nodes(kind) for kind in limits.source})
        for number, cut in enumerate(self._even(cuts, {kind: range(0) for kind in sorted(into)})):
            # The generator holds no piece: memory is free again when the caller lets go of it.
            yield self._piece(reads, tables, cut, limits, partial(read, number))
            if self.store is None and limits.source:
                ops.empty_cache()  # else blocks of many sizes would add to what is held

    def _piece(
        self, reads: PassReads, tables: Columns, cut: Cut, limits: PieceLimits, read: ReadNodes
    ) -> Piece:
        """Returns a piece. Tables of types without a source size in ``limits`` are read in
        place."""
        source, target = self.schema.source_types, self.schema.target_types
        indices = {one: self.owned_edges(one).in_edges.sources(cut[target[one]]) for one in reads.relations}
        is_whole = all(len(rows) == self.count(kind) for kind, rows in cut.items())
        nodes: dict[int, PieceNodes] = {}
        wanted: dict[int, Tensor] = {}
        orders: dict[int, Tensor | None] = {}
        for kind, columns in tables.items():
            if kind not in limits.source and (is_whole or not reads.targets_first):
                nodes[kind] = PieceNodes(self._own(columns))
                continue
            relations = [one for one in reads.relations if source[one] == kind]
            (first, count), own = self._numbering(kind), cut.get(kind, range(0))
            wanted[kind], places, orders[kind] = number_sources(
                [indices[one] for one in relations],
                range(first + own.start, first + own.stop) if reads.targets_first else None,
                count,
            )
            indices.update(zip(relations, places, strict=True))
        for kind, found in read(wanted).items():
            order = orders[kind]
            ids = None if order is None else ops.gather_rows(wanted[kind], order)
            nodes[kind] = replace(found, order=order if kind in limits.source else ids, ids=ids)
        return Piece(cut, indices, nodes)

    def _own(self, columns: Mapping[str, ReadableRows]) -> dict[str, Tensor]:
        return {name: rows[self.rank] for name, rows in columns.items()}

    def _numbering(self, node_type: int) -> tuple[int, int]:
        return 0, self.num_nodes(node_type)

    def _even(self, cuts: Iterator[Cut], nothing: Cut) -> Iterable[Cut]:
        return itertools.chain([next(cuts, nothing)], cuts)

    def _reading(self, reads: PassReads, tables: Columns) -> tuple[PieceLimits, ReadNodes]:
        """Returns the limits of pieces, and a function that reads a piece's columns by number."""
        own, in_files = {kind: self._own(columns) for kind, columns in tables.items()}, dict[int, int]()
        for kind, columns in own.items():
            if any(map(self._memory.is_in_file, columns.values())):
                size = sum(one.nbytes // max(1, len(one)) for one in columns.values())
                in_files[kind] = _NUMBERS + size
        results = dict(reads.result_bytes)
        if reads.targets_first:  # the targets' own rows are read as well
            results |= {kind: results.get(kind, 0) + size for kind, size in in_files.items()}
        limits = PieceLimits(self._memory.of_piece, in_files).with_results(results)
        if in_files:
            limits = replace(limits, edge=limits.edge + reads.edge_bytes)

        def read(_: int, wanted: Mapping[int, Tensor]) -> dict[int, PieceNodes]:
            found = {}
            for kind, ids in wanted.items():
                if kind in in_files:
                    rows = {name: self.gather(table, ids) for name, table in own[kind].items()}
                    found[kind] = PieceNodes(rows, node=ids)
                else:
                    found[kind] = PieceNodes(own[kind])
            return found

        return limits, read

    def read(self, table: Tensor, rows: range) -> Tensor:
        return self._memory.span(table, rows)

    def gather(self, table: Tensor, row: Tensor) -> Tensor:
        return self._memory.rows(table, row)

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> NewRows:
        return self._memory.new_rows(shape, dtype)

    keep = allocate

    def shared(self, column: Tensor) -> ReadableRows:
        """Returns a column [n, ...] by rank, readable for the ranks of the host."""
        return {self.rank: column}

    def values_of_sources(self, relation: int, column: Tensor, kind: MessageKind) -> SourceValues:  # noqa: ARG002
        """Returns the values of the owned nodes and of the sources of their in-edges, in a relation
        within one type. Each value is sent once. ``column``: [n] the values of the owned nodes."""
        return SourceValues(0, column, torch.empty(0, dtype=torch.int64), column[:0])

    def wait_for_all(self) -> None: ...

    def agree(self, arguments: dict[str, Any]) -> None:
        """Raises AgreementError unless the arguments are equal on all ranks."""

    def sums(self, values: Sequence[int]) -> list[int]:
        return list(values)

    def run_together(self, work: Callable[[], T]) -> T:
        """Runs ``work``, which uses files. If it fails on one rank, all ranks raise."""
        return work_with_files(None, work)


class DistributedContext(GraphContext):
    """A rank's part of a graph. A piece fetches each distinct remote node once, with the rows of
    all types in one exchange. Methods of more than one line are collective."""

    def __init__(self, store: DistFeatureStore, threads: int | None, budget: int | None) -> None:
        self.store = store
        self._store, self._comm, self._threads, self._budget = store, store.comm, threads, budget
        self._part, self.schema = store.part, store.part.schema
        store.comm.run_job(lambda: None)  # waits for what a loader prepares
        self.rank = store.comm.rank
        # All ranks answer: one that is alone on its host cannot tell whether others share.
        self._shares = max(store.comm.all_gather_json(len(store.readable))) > 1

    def num_nodes(self, node_type: int) -> int:
        return self._part.book.num_nodes_of(node_type)

    def count(self, node_type: int) -> int:
        return self.original_ids(node_type).numel()

    def original_ids(self, node_type: int) -> Tensor:
        return self._part.original_ids(node_type)

    def owned_edges(self, relation: int) -> OwnedEdges:
        return self._part.owned_edges_of(relation)

    def features(self, node_type: int) -> ReadableRows | None:
        group = self.schema.node_groups[node_type]
        if FEATURES not in self._store.own.attributes[group]:
            return None
        return {rank: shard.attributes[group][FEATURES] for rank, shard in self._store.readable.items()}

    def edge_tables(self, name: str) -> Mapping[int, Tensor]:
        own = (self._store.own.attributes[one] for one in self.schema.edge_groups)
        return {number: tables[name] for number, tables in enumerate(own) if name in tables}

    def _numbering(self, node_type: int) -> tuple[int, int]:
        return self._part.nodes_of(node_type).start, self._part.book.num_nodes

    def _even(self, cuts: Iterator[Cut], nothing: Cut) -> Iterable[Cut]:
        found = list(cuts)
        return found + [nothing] * (max(1, int(self._comm.max(len(found)))) - len(found))

    def _reading(self, reads: PassReads, tables: Columns) -> tuple[PieceLimits, ReadNodes]:
        groups, ranks = self.schema.node_groups, self._comm.size
        reader = self._reader(tables, original_ids=not reads.targets_first)
        mine = self._budget or free_bytes() // len(self._comm.ranks_of_host)
        sizes = {kind: reader.format(groups[kind]).wire_bytes for kind in tables}
        # Rows of other ranks lie in a block and in a message, and as many in the message to others.
        source = {kind: size + 2 * size * (ranks - 1) // ranks for kind, size in sizes.items()}
        limits = PieceLimits(int(self._comm.min(mine)), source).with_results(reads.result_bytes)

        def read(number: int, wanted: Mapping[int, Tensor]) -> dict[int, PieceNodes]:
            requests = {groups[kind]: RowRequest(ids) for kind, ids in wanted.items()}
            with ops.thread_limit(self._threads):
                blocks = reader.read(requests, Header(reads.kind, macrobatch=number)).blocks
            found = {kind: blocks[groups[kind]] for kind in wanted}
            return {kind: PieceNodes(one.attributes, one.original) for kind, one in found.items()}

        return limits, read

    def _reader(self, tables: Columns, original_ids: bool) -> RowReader:
        groups = {self.schema.node_groups[kind]: columns for kind, columns in tables.items()}

        def of(rank: int) -> dict[Group, dict[str, Tensor]]:
            return {group: {name: rows[rank] for name, rows in one.items()} for group, one in groups.items()}

        shards = {one: replace(shard, attributes=of(one)) for one, shard in self._store.readable.items()}
        columns = {group: RowColumns(list(names), original_ids) for group, names in groups.items()}
        return RowReader(self._part, self._comm, shards, columns)

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

    def read(self, table: Tensor, rows: range) -> Tensor:
        return read_span(table, rows, self._reader_of(table))

    def gather(self, table: Tensor, row: Tensor) -> Tensor:
        return read_rows(table, row, self._reader_of(table))

    def _reader_of(self, table: Tensor) -> DiskReader | None:
        return next((one.reader for one in self._store.own.disk if one.table is table), None)

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> NewRows:
        if not self._shares:
            return self.keep(shape, dtype)
        found = allocate_on_host(self._comm, {"rows": Field(dtype, shape)})
        return RowsInMemory({rank: arrays["rows"] for rank, arrays in found.items()}, self.rank)

    def keep(self, shape: tuple[int, ...], dtype: torch.dtype) -> NewRows:
        return RowsInMemory({self.rank: torch.empty(shape, dtype=dtype)}, self.rank)

    def agree(self, arguments: dict[str, Any]) -> None:
        self._comm.check_agreement(arguments)

    def sums(self, values: Sequence[int]) -> list[int]:
        # Python's integers: sums of digests do not fit 64 bits.
        return [sum(column) for column in zip(*self._comm.all_gather_json(list(values)), strict=True)]

    def run_together(self, work: Callable[[], T]) -> T:
        return work_with_files(self._comm, work)
