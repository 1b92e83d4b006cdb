"""A graph and its features for passes over all nodes: in one process, or spread over ranks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import ops
from pyg_batchgnn.cache.cuts import Cut, OwnedTargets, PieceLimits, cut_pieces
from pyg_batchgnn.cache.folder import work_with_files
from pyg_batchgnn.cache.pieces import (
    PassReads,
    Piece,
    PieceNodes,
    ReadableRows,
    Renumbered,
    SourceNumbers,
    halo_nodes,
)
from pyg_batchgnn.comm import Header, MessageKind
from pyg_batchgnn.ops import OwnedEdges, free_bytes
from pyg_batchgnn.partition import ArraySpec, allocate_on_host, share_arrays
from pyg_batchgnn.store import (
    Columns,
    CscGraph,
    DistFeatureStore,
    DistGraphStore,
    RowReader,
    RowRequest,
    TypedGraph,
    typed_graph_from_pyg,
)
from pyg_batchgnn.types import FEATURES, Group, SourceValues

T = TypeVar("T")
#: The name of a column of one value per node.
_VALUES = "values"


def context_of(data: Any, threads: int | None) -> GraphContext:
    """Returns what a user gives as ``data`` as a graph for passes over all nodes.

    ``data``: a ``Data`` or a ``HeteroData``; a pair (`CscGraph`, features) or (`TypedGraph`,
    features by node type); or over ranks (`DistFeatureStore`, `DistGraphStore`).

    Raises:
        TypeError, ValueError: ``data`` is no graph that can be read here.
    """
    if isinstance(data, (Data, HeteroData)):
        graph = typed_graph_from_pyg(data)
        return _local(graph, {name: features_of(data, name) for name in graph.schema.node_types})
    pair = tuple(data) if isinstance(data, (tuple, list)) else ()
    if len(pair) == 2 and isinstance(pair[0], CscGraph):
        return GraphContext(pair[0].typed, {0: pair[1]})
    if len(pair) == 2 and isinstance(pair[0], TypedGraph) and isinstance(pair[1], Mapping):
        return _local(*pair)
    if len(pair) == 2 and isinstance(pair[0], DistFeatureStore) and isinstance(pair[1], DistGraphStore):
        return DistributedContext(pair[0], threads)
    raise TypeError(
        f"all nodes are read from a Data, a HeteroData, (CscGraph, features) or (DistFeatureStore, "
        f"DistGraphStore), got {type(data).__name__}; give the features of other stores as a tensor"
    )


def _local(graph: TypedGraph, features: Mapping[str, Any]) -> GraphContext:
    return GraphContext(graph, {graph.schema.type_number(name): x for name, x in features.items()})


def features_of(data: Data | HeteroData, node_type: str) -> Any:
    return data.x if isinstance(data, Data) else data[node_type].get(FEATURES)


class GraphContext:
    """A graph with its features, for passes over all nodes: here whole, in one process.

    Features are read where they lie. `DistributedContext` is the same over ranks. Node types and
    relations are given by number.

    ``features``: [n, F] of the nodes, by number of the type; None, or left out, where a type has
    none.
    """

    rank = 0  # of the process
    store: DistFeatureStore | None = None  # the store of the features, over ranks

    def __init__(self, graph: TypedGraph, features: Mapping[int, Any]) -> None:
        self.schema, self._graph, self._features = graph.schema, graph, features
        self._owned: dict[int, OwnedEdges] = {}

    def num_nodes(self, node_type: int) -> int:
        return self._graph.num_nodes[node_type]

    def original_ids(self, node_type: int) -> Tensor:
        """Returns the original ids of the owned nodes of a type, [n] int64."""
        return torch.arange(self.num_nodes(node_type))

    def owned_edges(self, relation: int) -> OwnedEdges:
        """Returns the in-edges of a relation's owned targets."""
        if relation not in self._owned:
            ends = self.schema.source_types[relation], self.schema.target_types[relation]
            edges, (sources, targets) = self._graph.relations[relation], map(self.num_nodes, ends)
            node = torch.arange(targets)
            self._owned[relation] = OwnedEdges(edges, node, 0, max(sources, targets), edges.num_edges)
        return self._owned[relation]

    def features(self, node_type: int) -> ReadableRows | None:
        """Returns the features of each rank that this one can read; None if there are none.

        Raises:
            TypeError, ValueError: they cannot be read here.
        """
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
        return {self.rank: x}

    def no_features(self, node_type: int) -> str:
        """Returns the words of an error: a type has no features."""
        name = f"[{self.schema.node_types[node_type]!r}]" if self.schema.has_names else ""
        return f"there are no features x to read; put them into data{name}.x"

    def pieces(self, reads: PassReads, budget: int | None) -> Iterator[Piece]:
        """Yields the owned targets of some relations in pieces. Collective.

        All ranks yield the same number of pieces, at least one; the last ones of a rank may be
        empty. Every piece has all the target types, maybe without nodes.

        Args:
            budget: bytes of a piece; the least of all ranks counts. None: an eighth of the free
                memory of the host that has least, divided by its ranks.
        """
        targets = owned_targets(self, reads.relations)
        limits = PieceLimits(free_bytes() if budget is None else budget).with_results(reads.result_bytes)
        cuts = cut_pieces(targets, limits, {})
        nothing = {one.node_type: range(0) for one in targets}
        for cut in itertools.chain(cuts, () if any(map(len, targets)) else [nothing]):
            yield self._piece(targets, cut, reads)

    def _piece(self, targets: Sequence[OwnedTargets], cut: Cut, reads: PassReads) -> Piece:
        edges = {one: self._graph.relations[one] for one in reads.relations}
        sources = {one: part.sources(cut[self.schema.target_types[one]]) for one, part in edges.items()}
        tables = {
            kind: {name: rows[self.rank] for name, rows in of_type.items()}
            for kind, of_type in reads.tables.items()
        }
        is_whole = all(len(cut[one.node_type]) == len(one) for one in targets)
        if is_whole or reads.numbers is SourceNumbers.TABLE_ROWS:
            kinds = {*tables, *(self.schema.source_types[one] for one in reads.relations)}
            return Piece(cut, sources, {kind: PieceNodes(tables.get(kind, {})) for kind in kinds})
        nodes = {}
        for kind, of_type in tables.items():
            read = [one for one in reads.relations if self.schema.source_types[one] == kind]
            own = cut.get(kind, range(0))
            found = Renumbered.of([sources[one] for one in read], own, self.num_nodes(kind))
            sources.update(zip(read, found.indices, strict=True))
            ids = ops.gather_rows(found.ids, found.order)
            nodes[kind] = PieceNodes(of_type, order=ids, ids=ids)
        return Piece(cut, sources, nodes)

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> dict[int, Tensor]:
        """Makes a table for owned nodes. Returns the tables that this rank can read, by rank."""
        return {self.rank: torch.empty(shape, dtype=dtype)}

    def shared(self, column: Tensor) -> ReadableRows:
        """Lets the ranks of the host read a column of owned nodes [n, ...]; returns it by rank."""
        return {self.rank: column}

    def values_of_sources(self, relation: int, column: Tensor, kind: MessageKind) -> SourceValues:  # noqa: ARG002
        """Returns a value for each owned node and for each source of their in-edges.

        Each value of another rank's node travels once, counted under ``kind``.

        ``column``: [n] the values of the owned nodes. The relation stays within one node type.
        """
        return SourceValues(0, column, torch.empty(0, dtype=torch.int64), column[:0])

    def wait_for_all(self) -> None:
        """Waits until all ranks have written their rows, which others read after that."""

    def agree(self, arguments: dict[str, Any]) -> None:
        """Raises AgreementError unless the arguments are the same everywhere."""

    def sums(self, values: Sequence[int]) -> list[int]:
        """Returns the sum of each value over ranks."""
        return list(values)

    def run_together(self, work: Callable[[], T]) -> T:
        """Does work with files. Where it fails on one rank, all ranks raise."""
        return work_with_files(None, work)


class DistributedContext(GraphContext):
    """A rank's part of a graph. Methods of more than one line are collective.

    Each distinct remote node of a piece is fetched once, and the rows of all types in one exchange.
    """

    def __init__(self, store: DistFeatureStore, threads: int | None) -> None:
        self.store = store
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
        return RowReader(self._part, self._comm, shards, columns)

    def _fetched(
        self, reader: RowReader, kinds: Sequence[int], cut: Cut, reads: PassReads, header: Header
    ) -> Piece:
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
        with ops.thread_limit(self._threads):
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


def owned_targets(graph: GraphContext, relations: Sequence[int]) -> list[OwnedTargets]:
    """Returns the targets of some relations, given by number; the types ascend."""
    schema = graph.schema
    into: dict[int, list[int]] = {}
    for relation in relations:
        into.setdefault(schema.target_types[relation], []).append(relation)
    return [
        OwnedTargets(
            node_type,
            [graph.owned_edges(one) for one in into[node_type]],
            [schema.source_types[one] for one in into[node_type]],
        )
        for node_type in sorted(into)
    ]
