"""Hybrid partitioning: the whole topology on every host, attributes with their owners."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Field, MessageKind
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition import Part, allocate_on_host, own_rounds
from pyg_batchgnn.store.dist_features import DistFeatureStore
from pyg_batchgnn.store.graph import TypedGraph
from pyg_batchgnn.store.part_times import own_attribute
from pyg_batchgnn.types import Group


@dataclass(frozen=True, eq=False)
class HybridTopology:
    """The edges of a whole graph, in one copy for all ranks of a host."""

    graph: TypedGraph  # by original ids, with input edge ids
    # For each node type, [N_t] ``book.id_dtype``, the internal ids, by which attributes are found.
    internal: tuple[Tensor, ...]


def replicate_topology(part: Part, comm: Communicator) -> HybridTopology:
    """Copies the edges of all parts to every host, for hybrid partitioning. Collective. The first
    rank of each host receives the other parts in rounds and writes them to memory that its host
    shares, which is freed however the ranks end. A node's in-edges are in ascending input edge
    id."""
    leader = comm.ranks_of_host[0]
    shared = allocate_on_host(comm, _specs(part) if leader == comm.rank else {})[leader]
    relations = tuple(
        InEdges(*(shared[f"{name}/{at}"] for name in ("indptr", "indices", "edge_ids")))
        for at in range(part.schema.num_relations)
    )
    internal = tuple(shared[f"internal/{number}"] for number in range(part.schema.num_types))
    writer = TopologyWriter(part, relations, internal) if leader == comm.rank else None
    _send_nodes(part, comm, writer)
    for relation in range(part.schema.num_relations):
        _send_edges(part, relation, comm, writer)
    comm.barrier()
    sizes = tuple(part.book.sizes.sum(0).tolist())
    return HybridTopology(TypedGraph(part.schema, sizes, relations), internal)


def _specs(part: Part) -> dict[str, Field]:
    nodes: list[int] = part.book.sizes.sum(0).tolist()
    ids = ops.id_dtype(max(nodes))
    specs = {}
    for number, (target, edges) in enumerate(zip(part.schema.target_types, part.edge_counts, strict=True)):
        specs[f"indptr/{number}"] = Field(torch.int64, (nodes[target] + 1,))
        specs[f"indices/{number}"] = Field(ids, (edges,))
        specs[f"edge_ids/{number}"] = Field(ops.id_dtype(edges), (edges,))
    for number, count in enumerate(nodes):
        specs[f"internal/{number}"] = Field(part.book.id_dtype, (count,))
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
    """Sends rows to the first rank of every host; yields (sending rank, rows) there."""
    leaders = {host: rank for rank, host in reversed(list(enumerate(comm.hosts)))}.values()
    parts = [rows if rank in leaders else rows[:0] for rank in range(comm.size)]
    return enumerate(comm.exchange(parts, None, MessageKind.PARTITION).split())


class TopologyWriter:
    """Writes the parts that other ranks send, all nodes before the first edge. Until the end the
    targets of a relation are in the order of internal ids, so that a part's targets are a range.
    ``relations, internal``: arrays of zeros to write to, for the in-edges by original id, and for
    the internal ids of each node type."""

    def __init__(self, part: Part, relations: Sequence[InEdges], internal: Sequence[Tensor]) -> None:
        schema, book = part.schema, part.book
        self._schema, self._book = schema, book
        self._relations, self._internal = relations, internal
        #: [N] the original id of each internal id.
        self._original = torch.empty(book.num_nodes, dtype=book.id_dtype)
        #: [parts, types], how many nodes of the type the parts before have.
        self._before = book.sizes.cumsum(0) - book.sizes
        #: By relation, [N_t + 1] int64, where targets' in-edges begin, by internal id.
        self._starts = [
            torch.zeros(book.num_nodes_of(target) + 1, dtype=torch.int64) for target in schema.target_types
        ]

    def nodes(self, part: int, first: int, columns: Tensor) -> None:
        """Writes nodes. ``columns``: [n, 1 + w], their original ids, and their numbers of in-edges
        for each of the w relations into their type."""
        self._original[first : first + len(columns)] = columns[:, 0]
        for node_type, relations in enumerate(self._schema.relations_into):
            own = self._book.nodes_of(part, node_type)
            begin, end = max(first, own.start), min(first + len(columns), own.stop)
            if begin >= end:
                continue
            rows = columns[begin - first : end - first]
            node, row = rows[:, 0], begin + self._shift(part, node_type)
            self._internal[node_type][node] = torch.arange(begin, end, dtype=self._book.id_dtype)
            for at, relation in enumerate(relations):
                self._starts[relation][row + 1 : row + 1 + len(rows)] = rows[:, 1 + at]
                self._relations[relation].indptr[node + 1] = rows[:, 1 + at]

    def end_nodes(self) -> None:
        """Ends the nodes and sums their in-edges up, so that edges can be written."""
        for starts, edges in zip(self._starts, self._relations, strict=True):
            torch.cumsum(starts, 0, out=starts)
            torch.cumsum(edges.indptr, 0, out=edges.indptr)

    def edges(self, relation: int, part: int, first: int, columns: Tensor) -> None:
        """Writes edges of a relation into a part's nodes. ``first``: their position among all edges
        of the relation, by internal id of their targets. ``columns``: [n, 2], internal ids of
        sources, edge ids."""
        starts, arrays = self._starts[relation], self._relations[relation]
        place = torch.arange(first, first + len(columns))
        row = torch.searchsorted(starts, place, right=True) - 1
        target = self._original[row - self._shift(part, self._schema.target_types[relation])]
        slot = arrays.indptr[target.to(torch.int64)] + (place - starts[row])
        arrays.indices[slot] = self._original[columns[:, 0].to(torch.int64)].to(arrays.indices.dtype)
        assert arrays.edge_ids is not None
        arrays.edge_ids[slot] = columns[:, 1].to(arrays.edge_ids.dtype)

    def _shift(self, part: int, node_type: int) -> int:
        """Returns the difference between a part's internal ids and the ids within a node type."""
        return int(self._before[part, node_type]) - self._book.nodes_of(part, node_type).start


def replicate_attribute(store: DistFeatureStore, name: str) -> dict[Group, Tensor]:
    """Copies an attribute of all parts to every host; returns all its rows by group, nodes by
    original id, edges by input edge id. Collective; counts as `MessageKind.PARTITION`. The first
    rank of each host receives bounded pieces and writes them to memory that its host shares."""
    comm, leader = store.comm, store.comm.ranks_of_host[0]
    own = own_attribute(store, name)
    specs = {
        str(at): Field(values.dtype, (store.num_rows[group], *values.shape[1:]))
        for at, (group, values) in enumerate(own.items())
    }
    shared = allocate_on_host(comm, specs if leader == comm.rank else {})[leader]
    for at, (group, values) in enumerate(own.items()):
        ids = _ids(store.part, group)
        row_bytes = values[:0].new_empty(1, *values.shape[1:]).nbytes + ids.itemsize
        for rows in own_rounds(comm, ids.numel(), row_bytes):
            piece = slice(rows.start, rows.stop)
            came = [torch.cat([one for _, one in to_hosts(comm, of[piece])]) for of in (ids, values)]
            if leader == comm.rank:
                shared[str(at)][came[0]] = came[1]
    comm.barrier()
    return {group: shared[str(at)] for at, group in enumerate(own)}


def _ids(part: Part, group: Group) -> Tensor:
    if group.is_node:
        return part.original_ids(part.schema.node_groups.index(group))
    return part.relations[part.schema.edge_groups.index(group)].explicit_edge_ids().to(torch.int64)
