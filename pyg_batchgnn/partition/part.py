"""A rank's part of a partitioned graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Group
from pyg_batchgnn.ops import InEdges, OwnedEdges
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.checks import check_comm


@dataclass(frozen=True, eq=False, repr=False)
class Part:
    """The nodes that a rank owns, all their in-edges and all their attributes.

    Row i of every array of nodes is the node with the internal id ``book.offsets[number] + i``.

    Attributes:
        book: the owner of each internal id.
        number: the number of this part, which is the rank that holds it.
        node: [n] int64 original ids, ascending. In a saved partition that another number of ranks
            has loaded they ascend within each saved part.
        in_edges: the in-edges of the part's nodes. Their sources are internal ids of
            ``book.id_dtype``, in ascending input edge id for each node. Edge ids are never None.
        num_edges: the number of edges of the whole graph.
        directory: [k] ``book.id_dtype``, the internal ids of the original ids of this rank's slice,
            which `directory_slice` gives.
        attributes: by group and name, one tensor each. Attributes of nodes, [n, ...], are in the
            order of ``node``, those of edges, [e, ...], in the order of ``in_edges``.
        splits: the part's nodes of each split, [s] int64 rows of this part, ascending.
    """

    book: PartitionBook
    number: int
    node: Tensor
    in_edges: InEdges
    num_edges: int
    directory: Tensor
    attributes: dict[Group, dict[str, Tensor]] = field(default_factory=dict)
    splits: dict[str, Tensor] = field(default_factory=dict)

    def __repr__(self) -> str:
        return (
            f"Part({self.number} of {self.book.parts}, nodes={self.num_nodes} of {self.book.num_nodes}, "
            f"edges={self.in_edges.num_edges} of {self.num_edges})"
        )

    @property
    def first(self) -> int:
        """The internal id of the part's first node."""
        return int(self.book.offsets[self.number])

    @property
    def num_nodes(self) -> int:
        """The number of nodes of this part."""
        return self.node.numel()

    @property
    def owned_edges(self) -> OwnedEdges:
        """The in-edges of the part's nodes, as samplers and the aggregation cache read them."""
        return OwnedEdges(self.in_edges, self.node, self.first, self.book.num_nodes, self.num_edges)

    def check(self) -> None:
        """Raises ValueError unless every attribute has one row per node or edge of the part, and
        the splits hold rows of it. It is called before a part is saved or spread."""
        sizes = {False: self.num_nodes, True: self.in_edges.num_edges}
        for group, tables in self.attributes.items():
            for name, table in tables.items():
                self._check_length(f"{group.kind.value} attribute {name!r}", table, sizes[group.is_edge])
        for name, index in self.splits.items():
            ops.check_ids(f"split {name!r}", index, self.num_nodes, "rows of the part")
        self._check_length("in_edges", self.in_edges.indptr[1:], self.num_nodes)

    def _check_length(self, name: str, table: Tensor, size: int) -> None:
        rows = next(iter(getattr(table, "shape", ())), None)
        if rows != size:
            found = f"a {type(table).__name__}" if rows is None else f"{rows} rows"
            raise ValueError(
                f"part {self.number}: {name} has {found}, expected one with {size}, in the order of the "
                "part's nodes or edges"
            )

    def check_rank(self, comm: Communicator) -> None:
        """Raises ValueError unless the part is that of this rank, of as many parts as there are
        ranks."""
        check_comm(comm)
        if self.book.parts != comm.size or self.number != comm.rank:
            raise ValueError(
                f"part {self.number} of {self.book.parts} cannot be on rank {comm.rank} of {comm.size}; give "
                f"every rank its own part of a graph that is partitioned for {comm.size} ranks"
            )


def parts_of(parts: Part | Sequence[Part]) -> list[Part]:
    """Returns one part or several as a list.

    Raises:
        TypeError: something else was given.
    """
    found: list[Any] = list(parts) if isinstance(parts, (list, tuple)) else [parts]
    for part in found:
        ops.check_type("part", part, Part, "make it with partition or load_partition")
    return found


def slice_size(num_nodes: int, ranks: int) -> int:
    """Returns the number of original ids in a rank's slice of the directory.

    The last slices may have fewer.
    """
    return -(-num_nodes // ranks) if num_nodes else 1


def directory_slice(num_nodes: int, ranks: int, rank: int) -> range:
    """Returns the original ids whose internal ids ``rank`` knows."""
    size = slice_size(num_nodes, ranks)
    return range(min(rank * size, num_nodes), min((rank + 1) * size, num_nodes))
