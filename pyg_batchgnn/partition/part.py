"""What one rank has of a partitioned graph."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.ops import InEdges, OwnedEdges
from pyg_batchgnn.partition.book import PartitionBook


@dataclass(frozen=True, eq=False)
class Part:
    """The nodes that a rank owns, all their in-edges and all their attributes.

    Row i of every array is the node with the internal id ``book.offsets[number] + i``.

    Attributes:
        book: who owns which internal id.
        number: of this part, which is the rank that holds it.
        node: [n] int64 original ids, ascending; of a saved partition that another number of ranks has loaded,
            ascending within each saved part.
        indptr: [n + 1] int64, where each node's in-edges begin.
        indices: [e] ``book.id_dtype``, internal ids of their sources, in ascending input edge id.
        edge_ids: [e] int32 or int64 ids of the input edges.
        num_edges: of the whole graph.
        tables: node attributes by name, [n, ...]; features are ``x``, labels ``y``.
        edge_tables: edge attributes by name, [e, ...], in the order of ``indices``.
        splits: the part's nodes of each split (``train``, ``val``, ``test``), [s] int64 rows of this part,
            in ascending order.
        directory: [k] ``book.id_dtype``, internal ids of the original ids of this rank's slice, which
            `directory_slice` gives.
    """

    book: PartitionBook
    number: int
    node: Tensor
    indptr: Tensor
    indices: Tensor
    edge_ids: Tensor
    num_edges: int
    directory: Tensor
    tables: dict[str, Tensor] = field(default_factory=dict)
    edge_tables: dict[str, Tensor] = field(default_factory=dict)
    splits: dict[str, Tensor] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """Internal id of the part's first node."""
        return int(self.book.offsets[self.number])

    @property
    def num_nodes(self) -> int:
        """Nodes of this part."""
        return self.node.numel()

    @property
    def owned_edges(self) -> OwnedEdges:
        """The in-edges of the part's nodes, as samplers and the aggregation cache read them."""
        in_edges = InEdges(self.indptr, self.indices, self.edge_ids)
        return OwnedEdges(in_edges, self.node, self.first, self.book.num_nodes, self.num_edges)

    def check_rank(self, comm: Communicator) -> None:
        """Raises ValueError unless the part is that of this rank, of as many parts as there are ranks."""
        if self.book.parts != comm.size or self.number != comm.rank:
            raise ValueError(
                f"part {self.number} of {self.book.parts} cannot be on rank {comm.rank} of {comm.size}; give "
                f"every rank its own part of a graph that is partitioned for {comm.size} ranks"
            )


def slice_size(num_nodes: int, ranks: int) -> int:
    """Original ids in a rank's slice of the directory; the last slices may have fewer."""
    return -(-num_nodes // ranks) if num_nodes else 1


def directory_slice(num_nodes: int, ranks: int, rank: int) -> range:
    """The original ids whose internal ids ``rank`` knows."""
    size = slice_size(num_nodes, ranks)
    return range(min(rank * size, num_nodes), min((rank + 1) * size, num_nodes))
