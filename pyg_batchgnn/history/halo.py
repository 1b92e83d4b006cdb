"""The halo of a part, and the peers that have its nodes in theirs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import CommError, Communicator, Header, MessageKind
from pyg_batchgnn.ops import HaloPeers, InEdges
from pyg_batchgnn.partition import Part

_HEADER = Header(MessageKind.LOOKUP)


@dataclass(frozen=True, eq=False)
class Halo:
    """The halo nodes of a part: the sources of its in-edges that other ranks own.

    Local ids name the nodes that a rank knows: rows of the part first, then halo nodes.

    Attributes:
        in_edges: the in-edges of the part's nodes. Sources are local ids.
        original: [n + h] int64, the original ids of the part's nodes and of the halo nodes.
        internal: [h] int64, the internal ids of the halo nodes, ascending.
        edges: [h] int64, the number of edges from each halo node into the part.
        num_own: the number of the part's nodes, n.
        peers: for each node of the part, the ranks that have it in their halo (db_halo in the
            paper).
    """

    in_edges: InEdges
    original: Tensor
    internal: Tensor
    edges: Tensor
    num_own: int
    peers: HaloPeers

    @property
    def num_halo(self) -> int:
        """The number of halo nodes, h."""
        return self.internal.numel()

    def most_needed(self, number: int | None) -> Tensor:
        """Returns the halo nodes with the most edges into the part, [<= number] int64 ascending.

        They are numbers among the halo nodes. None: all of them.
        """
        if number is None or number >= self.num_halo:
            return torch.arange(self.num_halo)
        return self.edges.argsort(descending=True, stable=True)[:number].sort().values

    @classmethod
    def of(cls, part: Part, comm: Communicator) -> Halo:
        """Finds the halo of each rank's part. Collective, two rounds."""
        edges, own = part.in_edges, part.nodes_of(0)
        is_halo = (edges.indices < own.start) | (edges.indices >= own.stop)
        remote = edges.indices[is_halo].to(torch.int64)
        node, (place,) = ops.unique_nodes([remote], part.book.num_nodes)
        degree = torch.bincount(place, minlength=node.numel())
        counts = torch.searchsorted(node, part.book.part_offsets).diff().tolist()
        asked = comm.exchange(torch.stack([node, degree], dim=1), counts, _HEADER)
        rows = asked.rows[:, 0] - own.start
        if rows.numel() and not 0 <= int(rows.min()) <= int(rows.max()) < len(own):
            text = f"a rank asked for the halo of nodes that rank {comm.rank} does not own"
            raise comm.fail(CommError(f"{text}; every rank must have the same partition book", []))
        answered = comm.exchange(part.node[rows], asked.counts, _HEADER)
        local = edges.indices
        if remote.numel() or own.start:
            wide = torch.where(is_halo, 0, edges.indices - own.start).to(torch.int64)
            wide[is_halo] = place + len(own)
            local = wide.to(ops.id_dtype(len(own) + node.numel()))
        return cls(
            InEdges(edges.indptr, local, edges.explicit_edge_ids()),
            torch.cat([part.node, answered.rows]),
            node,
            degree,
            len(own),
            _peers(rows, asked.rows[:, 1], asked.counts, len(own)),
        )


def _peers(rows: Tensor, degree: Tensor, counts: list[int], nodes: int) -> HaloPeers:
    """Returns the peers by row.

    Args:
        rows, degree: what the peers asked for, by peer.
        counts: the rows of each peer.
        nodes: the number of rows of the part.
    """
    peer = torch.arange(len(counts), dtype=torch.int32).repeat_interleave(torch.tensor(counts))
    order = rows.argsort(stable=True)
    ptr = torch.zeros(nodes + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(rows, minlength=nodes), 0, out=ptr[1:])
    return HaloPeers(ptr, peer[order], degree[order].to(torch.int32), len(counts))
