"""Hybrid partitioning: the whole topology on every host, attributes with their owners."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, MessageKind
from pyg_batchgnn.partition import ArraySpec, Part, allocate_on_host, own_rounds
from pyg_batchgnn.store.graph import CscGraph


@dataclass(frozen=True, eq=False)
class HybridTopology:
    """The edges of a whole graph, of which the ranks of a host share one copy.

    Attributes:
        graph: by original ids, with input edge ids.
        internal: [N] ``book.id_dtype``, the internal id of each node, by which its attributes are
            found.
    """

    graph: CscGraph
    internal: Tensor


def replicate_topology(part: Part, comm: Communicator) -> HybridTopology:
    """Copies the topology of all parts to every host. Collective.

    The first rank of each host receives the other parts in rounds and writes them to memory that
    its host shares. Nothing is left behind, however the ranks end. The in-edges of a node are in
    ascending input edge id, as in `CscGraph.from_edge_index`.

    Args:
        part: this rank's.
        comm: of all ranks.
    """
    nodes, leads = part.book.num_nodes, comm.ranks_of_host[0] == comm.rank
    specs = {
        "indptr": ArraySpec(torch.int64, (nodes + 1,)),
        "indices": ArraySpec(part.in_edges.indices.dtype, (part.num_edges,)),
        "edge_ids": ArraySpec(ops.id_dtype(part.num_edges), (part.num_edges,)),
        "internal": ArraySpec(part.book.id_dtype, (nodes,)),
    }
    arrays = allocate_on_host(comm, specs if leads else {})[comm.ranks_of_host[0]]
    writer = _Writer(arrays, part) if leads else None
    _send_nodes(part, comm, writer)
    _send_edges(part, comm, writer)
    comm.barrier()
    graph = CscGraph(ops.InEdges(arrays["indptr"], arrays["indices"], arrays["edge_ids"]))
    return HybridTopology(graph, arrays["internal"])


class _Writer:
    """Writes the parts that the first rank of a host receives.

    Attributes:
        original: [N] ``book.id_dtype``, the original id of each internal id.
        starts: [N + 1] int64, where each node's in-edges begin in the order of internal ids.
    """

    def __init__(self, arrays: dict[str, Tensor], part: Part) -> None:
        self._arrays, self._book = arrays, part.book
        self.original = torch.empty(part.book.num_nodes, dtype=part.book.id_dtype)
        self.starts = torch.zeros(part.book.num_nodes + 1, dtype=torch.int64)

    def nodes(self, first: int, columns: Tensor) -> None:
        """Writes nodes.

        Args:
            first: internal id of the first of them.
            columns: [n, 2], original ids and degrees.
        """
        node, last = columns[:, 0], first + len(columns)
        self.original[first:last] = node
        self.starts[first + 1 : last + 1] = columns[:, 1]
        self._arrays["internal"][node] = torch.arange(first, last, dtype=self._book.id_dtype)
        self._arrays["indptr"][node + 1] = columns[:, 1]

    def end_nodes(self) -> None:
        """Adds up the degrees. Edges can be written after it."""
        torch.cumsum(self.starts, 0, out=self.starts)
        torch.cumsum(self._arrays["indptr"], 0, out=self._arrays["indptr"])

    def edges(self, first: int, columns: Tensor) -> None:
        """Writes edges.

        Args:
            first: position of the first of them among all edges, by internal id of their
                destinations.
            columns: [n, 2], internal ids of the sources, and edge ids.
        """
        place = torch.arange(first, first + len(columns))
        row = torch.searchsorted(self.starts, place, right=True) - 1
        slot = self._arrays["indptr"][self.original[row].to(torch.int64)] + (place - self.starts[row])
        source = self.original[columns[:, 0].to(torch.int64)]
        self._arrays["indices"][slot] = source.to(self._arrays["indices"].dtype)
        self._arrays["edge_ids"][slot] = columns[:, 1].to(self._arrays["edge_ids"].dtype)


def _send_nodes(part: Part, comm: Communicator, writer: _Writer | None) -> None:
    degree = part.in_edges.degrees
    cursor = [part.book.nodes_of(rank).start for rank in range(comm.size)]
    for rows in own_rounds(comm, part.num_nodes, 16):
        at = slice(rows.start, rows.stop)
        for rank, piece in _to_hosts(comm, torch.stack([part.node[at], degree[at]], 1)):
            if writer is not None:
                writer.nodes(cursor[rank], piece)
            cursor[rank] += len(piece)
    if writer is not None:
        writer.end_nodes()


def _send_edges(part: Part, comm: Communicator, writer: _Writer | None) -> None:
    edges = comm.all_gather_json(part.in_edges.num_edges)
    cursor = [sum(edges[:rank]) for rank in range(comm.size)]
    sources, edge_ids = part.in_edges.indices, part.in_edges.explicit_edge_ids()
    wide = max(sources.dtype, edge_ids.dtype, key=lambda dtype: dtype.itemsize)
    for rows in own_rounds(comm, sources.numel(), 2 * wide.itemsize):
        at = slice(rows.start, rows.stop)
        columns = torch.stack([sources[at].to(wide), edge_ids[at].to(wide)], 1)
        for rank, piece in _to_hosts(comm, columns):
            if writer is not None:
                writer.edges(cursor[rank], piece)
            cursor[rank] += len(piece)


def _to_hosts(comm: Communicator, rows: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Sends rows to the first rank of every host. Returns what came, with the rank it came from."""
    leaders = {host: rank for rank, host in reversed(list(enumerate(comm.hosts)))}.values()
    parts = [rows if rank in leaders else rows[:0] for rank in range(comm.size)]
    return enumerate(comm.exchange(parts, None, MessageKind.PARTITION).split())
