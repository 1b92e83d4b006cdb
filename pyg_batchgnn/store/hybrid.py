"""Hybrid partitioning: the whole topology on every host, attributes with their owners."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition import ArraySpec, Part, allocate_on_host, own_rounds
from pyg_batchgnn.store.hybrid_writer import HybridArrays, TopologyWriter
from pyg_batchgnn.store.typed_graph import TypedGraph


@dataclass(frozen=True, eq=False)
class HybridTopology:
    """The edges of a whole graph, of which the ranks of a host share one copy.

    Attributes:
        graph: by original ids, with input edge ids.
        internal: for each node type, [N_t] ``book.id_dtype``, the internal id of each node, by
            which its attributes are found.
    """

    graph: TypedGraph
    internal: tuple[Tensor, ...]


def replicate_topology(part: Part, comm: Communicator) -> HybridTopology:
    """Copies the topology of all parts to every host. Collective.

    The first rank of each host receives the other parts in rounds and writes them to memory that
    its host shares. Nothing is left behind, however the ranks end. The in-edges of a node are in
    ascending input edge id, as in `TypedGraph.from_edge_indices`.

    Args:
        part: this rank's.
        comm: of all ranks.
    """
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
    """Returns the arrays of the topology, by name and the number of the type or relation."""
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
    """Sends the original ids of nodes, and their numbers of in-edges by relation into their
    type."""
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
    """Returns the columns of some nodes of the part, [n, width] int64."""
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
    """Sends the internal ids of the sources of a relation's edges, and their edge ids."""
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
    """Sends rows to the first rank of every host. Returns what came, with the rank it came from."""
    leaders = {host: rank for rank, host in reversed(list(enumerate(comm.hosts)))}.values()
    parts = [rows if rank in leaders else rows[:0] for rank in range(comm.size)]
    return enumerate(comm.exchange(parts, None, MessageKind.PARTITION).split())
