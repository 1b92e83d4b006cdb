"""Hybrid partitioning: the whole topology on every host, attributes with their owners."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition import ArraySpec, Part, PartitionBook, allocate_on_host, own_rounds
from pyg_batchgnn.store.dist_features import DistFeatureStore
from pyg_batchgnn.store.graph import TypedGraph
from pyg_batchgnn.store.part_times import own_attribute
from pyg_batchgnn.types import Group, Schema


@dataclass(frozen=True, eq=False)
class HybridTopology:
    """The edges of a whole graph. The ranks of a host share one copy."""

    graph: TypedGraph  # by original ids, with input edge ids
    # For each node type, [N_t] ``book.id_dtype``, the internal id of each node, by which its
    # attributes are found.
    internal: tuple[Tensor, ...]


def replicate_topology(part: Part, comm: Communicator) -> HybridTopology:
    """Copies the topology of all parts to every host. Collective. The first rank of each host
    receives the other parts in rounds and writes them to memory that its host shares. Nothing is
    left behind, however the ranks end. The in-edges of a node are in ascending input edge id, as in
    `TypedGraph.from_edge_indices`."""
    leader = comm.ranks_of_host[0]
    shared = allocate_on_host(comm, _specs(part) if leader == comm.rank else {})[leader]
    arrays = HybridArrays(
        tuple(
            InEdges(*(shared[f"{name}/{at}"] for name in ("indptr", "indices", "edge_ids")))
            for at in range(part.schema.num_relations)
        ),
        tuple(shared[f"internal/{number}"] for number in range(part.schema.num_types)),
    )
    writer = TopologyWriter(part.schema, part.book, arrays) if leader == comm.rank else None
    _send_nodes(part, comm, writer)
    for relation in range(part.schema.num_relations):
        _send_edges(part, relation, comm, writer)
    comm.barrier()
    sizes = tuple(part.book.sizes.sum(0).tolist())
    return HybridTopology(TypedGraph(part.schema, sizes, arrays.relations), arrays.internal)


def _specs(part: Part) -> dict[str, ArraySpec]:
    nodes: list[int] = part.book.sizes.sum(0).tolist()
    ids = ops.id_dtype(max(nodes))
    specs = {}
    for number, (target, edges) in enumerate(zip(part.schema.target_types, part.edge_counts, strict=True)):
        specs[f"indptr/{number}"] = ArraySpec(torch.int64, (nodes[target] + 1,))
        specs[f"indices/{number}"] = ArraySpec(ids, (edges,))
        specs[f"edge_ids/{number}"] = ArraySpec(ops.id_dtype(edges), (edges,))
    for number, count in enumerate(nodes):
        specs[f"internal/{number}"] = ArraySpec(part.book.id_dtype, (count,))
    return specs


def _send_nodes(part: Part, comm: Communicator, writer: TopologyWriter | None) -> None:
    width = 1 + max(map(len, part.schema.relations_into))
    cursor = [part.book.nodes_of(rank).start for rank in range(comm.size)]
    for rows in own_rounds(comm, part.num_nodes, 8 * width):
        for rank, piece in to_hosts(comm, _nodes(part, rows, width)):
            if writer is not None:
                writer.nodes(rank, cursor[rank], piece)
            cursor[rank] += len(piece)
    if writer is not None:
        writer.end_nodes()


def _nodes(part: Part, rows: range, width: int) -> Tensor:
    columns = torch.zeros(len(rows), width, dtype=torch.int64)
    columns[:, 0] = part.node[rows.start : rows.stop]
    for node_type, relations in enumerate(part.schema.relations_into):
        own = part.rows_of(node_type)
        begin, end = max(rows.start, own.start), min(rows.stop, own.stop)
        for at, relation in enumerate(relations if begin < end else ()):
            indptr = part.relations[relation].indptr[begin - own.start : end - own.start + 1]
            columns[begin - rows.start : end - rows.start, 1 + at] = indptr.diff()
    return columns


def _send_edges(part: Part, relation: int, comm: Communicator, writer: TopologyWriter | None) -> None:
    own = part.relations[relation]
    edges = comm.all_gather_json(own.num_edges)
    cursor = [sum(edges[:rank]) for rank in range(comm.size)]
    sources, edge_ids = own.indices, own.explicit_edge_ids()
    wide = max(sources.dtype, edge_ids.dtype, key=lambda dtype: dtype.itemsize)
    for rows in own_rounds(comm, sources.numel(), 2 * wide.itemsize):
        at = slice(rows.start, rows.stop)
        columns = torch.stack([sources[at].to(wide), edge_ids[at].to(wide)], 1)
        for rank, piece in to_hosts(comm, columns):
            if writer is not None:
                writer.edges(relation, rank, cursor[rank], piece)
            cursor[rank] += len(piece)


def to_hosts(comm: Communicator, rows: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Sends rows to the first rank of every host; yields what came, with the rank that sent it."""
    leaders = {host: rank for rank, host in reversed(list(enumerate(comm.hosts)))}.values()
    parts = [rows if rank in leaders else rows[:0] for rank in range(comm.size)]
    return enumerate(comm.exchange(parts, None, MessageKind.PARTITION).split())


@dataclass(frozen=True, eq=False)
class HybridArrays:
    """The arrays of a whole topology, all zeros at first."""

    relations: tuple[InEdges, ...]  # the in-edges of all nodes by original id, of each relation
    internal: tuple[Tensor, ...]  # for each node type, [N_t] ``book.id_dtype``, the internal id of each node


class TopologyWriter:
    """Writes parts that other ranks send, all nodes before the first edge. The targets of a
    relation are counted here in order of their internal ids, so those of a part are a contiguous
    range."""

    def __init__(self, schema: Schema, book: PartitionBook, arrays: HybridArrays) -> None:
        self._schema, self._book, self._arrays = schema, book, arrays
        #: [N] the original id of each internal id.
        self._original = torch.empty(book.num_nodes, dtype=book.id_dtype)
        #: [parts, types], how many nodes of the type the parts before have.
        self._before = book.sizes.cumsum(0) - book.sizes
        #: By relation, [N_t + 1] int64, where the in-edges of each target begin, in order of
        #: internal ids.
        self._starts = [
            torch.zeros(book.num_nodes_of(target) + 1, dtype=torch.int64) for target in schema.target_types
        ]

    def nodes(self, part: int, first: int, columns: Tensor) -> None:
        """Writes nodes. ``columns``: [n, 1 + w], original ids, and the numbers of in-edges of each
        relation into the node's type."""
        self._original[first : first + len(columns)] = columns[:, 0]
        for node_type, relations in enumerate(self._schema.relations_into):
            own = self._book.nodes_of(part, node_type)
            begin, end = max(first, own.start), min(first + len(columns), own.stop)
            if begin >= end:
                continue
            rows = columns[begin - first : end - first]
            node, row = rows[:, 0], begin + self._shift(part, node_type)
            self._arrays.internal[node_type][node] = torch.arange(begin, end, dtype=self._book.id_dtype)
            for at, relation in enumerate(relations):
                self._starts[relation][row + 1 : row + 1 + len(rows)] = rows[:, 1 + at]
                self._arrays.relations[relation].indptr[node + 1] = rows[:, 1 + at]

    def end_nodes(self) -> None:
        """Adds up the numbers of in-edges. Edges can be written after it."""
        for starts, edges in zip(self._starts, self._arrays.relations, strict=True):
            torch.cumsum(starts, 0, out=starts)
            torch.cumsum(edges.indptr, 0, out=edges.indptr)

    def edges(self, relation: int, part: int, first: int, columns: Tensor) -> None:
        """Writes edges of a relation into the nodes of a part. ``first``: their position among all
        edges of the relation, by internal id of their targets. ``columns``: [n, 2], internal ids of
        the sources, and edge ids."""
        starts, arrays = self._starts[relation], self._arrays.relations[relation]
        place = torch.arange(first, first + len(columns))
        row = torch.searchsorted(starts, place, right=True) - 1
        target = self._original[row - self._shift(part, self._schema.target_types[relation])]
        slot = arrays.indptr[target.to(torch.int64)] + (place - starts[row])
        arrays.indices[slot] = self._original[columns[:, 0].to(torch.int64)].to(arrays.indices.dtype)
        assert arrays.edge_ids is not None
        arrays.edge_ids[slot] = columns[:, 1].to(arrays.edge_ids.dtype)

    def _shift(self, part: int, node_type: int) -> int:
        """Returns the shift from a part's internal id to its number among the nodes of its type."""
        return int(self._before[part, node_type]) - self._book.nodes_of(part, node_type).start


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of one group: their ids in the whole graph, [n] int64, and their values."""

    ids: Tensor
    values: Tensor


def replicate_attribute(store: DistFeatureStore, name: str) -> dict[Group, Tensor]:
    """Copies an attribute of all parts to every host. Collective; counts as
    `MessageKind.PARTITION`. The first rank of each host receives the rows in bounded pieces and
    writes them to memory that its host shares. Returns all rows by group that has the attribute:
    nodes by original id, edges by input edge id."""
    comm, leader = store.comm, store.comm.ranks_of_host[0]
    own, sizes = own_attribute(store, name), _sizes(store)
    specs = {
        str(at): ArraySpec(values.dtype, (sizes[group], *values.shape[1:]))
        for at, (group, values) in enumerate(own.items())
    }
    shared = allocate_on_host(comm, specs if leader == comm.rank else {})[leader]
    for at, (group, values) in enumerate(own.items()):
        for piece in _pieces(store, _Rows(_ids(store, group), values)):
            if leader == comm.rank:
                shared[str(at)][piece.ids] = piece.values
    comm.barrier()
    return {group: shared[str(at)] for at, group in enumerate(own)}


def _sizes(store: DistFeatureStore) -> dict[Group, int]:
    schema, part = store.part.schema, store.part
    nodes = zip(schema.node_groups, part.book.sizes.sum(0).tolist(), strict=True)
    return {**dict(nodes), **dict(zip(schema.edge_groups, part.edge_counts, strict=True))}


def _ids(store: DistFeatureStore, group: Group) -> Tensor:
    part, schema = store.part, store.part.schema
    if group.is_node:
        return part.original_ids(schema.node_groups.index(group))
    return part.relations[schema.edge_groups.index(group)].explicit_edge_ids().to(torch.int64)


def _pieces(store: DistFeatureStore, own: _Rows) -> Iterator[_Rows]:
    """Yields the rows of all ranks at the first rank of every host, in bounded pieces."""
    row_bytes = own.values[:0].new_empty(1, *own.values.shape[1:]).nbytes + own.ids.itemsize
    for rows in own_rounds(store.comm, own.ids.numel(), row_bytes):
        at = slice(rows.start, rows.stop)
        ids = [piece for _, piece in to_hosts(store.comm, own.ids[at])]
        values = [piece for _, piece in to_hosts(store.comm, own.values[at])]
        yield _Rows(torch.cat(ids), torch.cat(values))
