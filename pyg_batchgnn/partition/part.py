"""A rank's part of a partitioned graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.ops import InEdges, OwnedEdges
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.checks import check_comm
from pyg_batchgnn.types import Group, Relation, Schema


@dataclass(frozen=True, eq=False, repr=False)
class Part:
    """The nodes that a rank owns, with all their in-edges and all their attributes. Row i of
    ``node`` is the node with the internal id ``first`` + i. Internal ids are ordered by part, node
    type and original id (see `PartitionBook`), so the rows of a type are a contiguous range,
    `rows_of`. If the graph has one relation, `in_edges` and `owned_edges` are its in-edges.
    `partition` and `load_partition` make parts."""

    schema: Schema  # node types and relations
    book: PartitionBook  # owner and type of each internal id
    number: int  # the part's number: the rank that holds it
    #: [n] int64 original ids, rows ordered by type, ascending within a type. If another number of
    #: ranks has loaded a saved partition, ascending within each saved part
    node: Tensor
    #: the in-edges of each relation, a row per node of the target type. Sources are internal ids of
    #: ``book.id_dtype``, in ascending input edge id per node. Edge ids are never None
    relations: tuple[InEdges, ...]
    edge_counts: tuple[int, ...]  # edges by relation in the whole graph
    #: [k] ``book.id_dtype``, the internal ids of this rank's slices of original ids
    #: (`directory_slice`), one slice per type, type after type
    directory: Tensor
    #: by group and name, in the order of the type's rows of ``node`` or of the relation's in-edges
    attributes: dict[Group, dict[str, Tensor]] = field(default_factory=dict)
    #: by group of nodes and name: [s] int64, ascending rows among the part's nodes of the type
    splits: dict[Group, dict[str, Tensor]] = field(default_factory=dict)

    def __repr__(self) -> str:
        own = sum(edges.num_edges for edges in self.relations)
        return (
            f"Part({self.number} of {self.book.parts}, nodes={self.num_nodes} of {self.book.num_nodes}, "
            f"edges={own} of {self.num_edges})"
        )

    @property
    def first(self) -> int:
        """The internal id of the part's first node."""
        return self.book.nodes_of(self.number).start

    @property
    def num_nodes(self) -> int:
        """The number of nodes of this part."""
        return self.node.numel()

    @property
    def num_edges(self) -> int:
        """The number of edges of the whole graph."""
        return sum(self.edge_counts)

    @property
    def rows_by_group(self) -> dict[Group, int]:
        """The part's number of nodes by type, and of edges by relation."""
        groups = enumerate(self.schema.node_groups)
        nodes = {group: len(self.nodes_of(number)) for number, group in groups}
        edges = zip(self.schema.edge_groups, self.relations, strict=True)
        return {**nodes, **{group: one.num_edges for group, one in edges}}

    def nodes_of(self, node_type: int) -> range:
        """Returns the internal ids of the part's nodes of a type. ``node_type``: its index."""
        return self.book.nodes_of(self.number, node_type)

    def rows_of(self, node_type: int) -> slice:
        """Returns the rows of ``node`` with the nodes of a type. ``node_type``: its index."""
        own = self.nodes_of(node_type)
        return slice(own.start - self.first, own.stop - self.first)

    def original_ids(self, node_type: int) -> Tensor:
        """Returns [n_t] int64, the original ids of the part's nodes of a type, without a copy."""
        return self.node[self.rows_of(node_type)]

    def directory_of(self, node_type: int) -> tuple[range, Tensor]:
        """Returns this rank's range of original ids of a type, and their internal ids."""
        slices = directory_slices(self.book, self.number)
        begin = sum(map(len, slices[:node_type]))
        own = slices[node_type]
        return own, self.directory[begin : begin + len(own)]

    def split(self, name: str, node_type: str | None = None) -> Tensor:
        """Returns the part's nodes of a split: [s] int64, ascending rows among its nodes of the
        type; empty if there is no such split. ``node_type``: not needed if there is only one."""
        if node_type is None:
            _only(self.schema.node_types, "split", "split(name, type)")
        group = self.schema.node_groups[0 if node_type is None else self.schema.type_number(node_type)]
        return self.splits.get(group, {}).get(name, torch.empty(0, dtype=torch.int64))

    def in_edges_of(self, relation: Relation) -> InEdges:
        """Returns the in-edges of a relation, given by its names."""
        return self.relations[self.schema.relation_number(relation)]

    def owned_edges_of(self, relation: int) -> OwnedEdges:
        """Returns the in-edges of a relation as samplers read them. ``relation``: its index."""
        target = self.schema.target_types[relation]
        return OwnedEdges(
            self.relations[relation],
            self.original_ids(target),
            self.nodes_of(target).start,
            self.book.num_nodes,
            self.edge_counts[relation],
        )

    @property
    def in_edges(self) -> InEdges:
        _only(self.schema.relations, "in_edges", "in_edges_of(relation)")
        return self.relations[0]

    @property
    def owned_edges(self) -> OwnedEdges:
        """The in-edges of the only relation, as samplers read them."""
        _only(self.schema.relations, "owned_edges", "owned_edges_of(number)")
        return self.owned_edges_of(0)

    def check(self) -> None:
        """Raises `ValueError` unless every attribute has one row per node or edge of the part, and
        splits hold rows of it. Called before a part is saved or shared."""
        schema = self.schema
        numbers = (self.book.num_types, len(self.relations), len(self.edge_counts))
        if numbers != (schema.num_types, schema.num_relations, schema.num_relations):
            raise ValueError(
                f"part {self.number}: a schema of {schema.num_types} node types and {schema.num_relations} "
                f"relations came with a book of {numbers[0]} types, {numbers[1]} lists of in-edges and "
                f"{numbers[2]} numbers of edges"
            )
        sizes = self.rows_by_group
        for group, tables in self.attributes.items():
            if group not in sizes:
                raise ValueError(
                    f"part {self.number}: attributes of {group} came, which is not in the schema"
                )
            for name, table in tables.items():
                self._check_length(f"{group.kind.value} attribute {name!r}", table, sizes[group])
        for group, splits in self.splits.items():
            for name, index in splits.items():
                ops.check_ids(f"split {name!r}", index, sizes[group], "rows of the part")
        self._check_length("node", self.node, len(self.book.nodes_of(self.number)))
        for target, edges in zip(schema.target_types, self.relations, strict=True):
            self._check_length("in_edges", edges.indptr[1:], len(self.nodes_of(target)))

    def _check_length(self, name: str, table: Tensor, size: int) -> None:
        rows = next(iter(getattr(table, "shape", ())), None)
        if rows != size:
            found = f"a {type(table).__name__}" if rows is None else f"{rows} rows"
            raise ValueError(
                f"part {self.number}: {name} has {found}, expected one with {size}, in the order of the "
                "part's nodes or edges"
            )

    def check_rank(self, comm: Communicator) -> None:
        """Raises `ValueError` unless the part is this rank's, and there is one for every rank."""
        check_comm(comm)
        if self.book.parts != comm.size or self.number != comm.rank:
            raise ValueError(
                f"part {self.number} of {self.book.parts} cannot be on rank {comm.rank} of {comm.size}; give "
                f"every rank its own part of a graph that is partitioned for {comm.size} ranks"
            )


def parts_of(parts: Part | Sequence[Part]) -> list[Part]:
    """Returns one part or several as a list. Raises `TypeError` for anything else."""
    found: list[Any] = list(parts) if isinstance(parts, (list, tuple)) else [parts]
    for part in found:
        ops.check_type("part", part, Part, "make it with partition or load_partition")
    return found


def _only(names: Sequence[object], name: str, instead: str) -> None:
    """Raises `AttributeError` unless there is exactly one node type or relation."""
    if len(names) != 1:
        raise AttributeError(
            f"{name!r} can be read from a part itself only if one node type or relation can be meant, but "
            f"there are {list(names)}; read part.{instead}"
        )


def slice_size(num_nodes: int, ranks: int) -> int:
    """Returns how many original ids of a type a rank knows the internal ids of: the size of its
    slice of the directory. The last slices may have fewer."""
    return -(-num_nodes // ranks) if num_nodes else 1


def directory_slice(num_nodes: int, ranks: int, rank: int) -> range:
    """Returns the original ids of a node type whose internal ids ``rank`` knows: its slice of the
    directory. ``num_nodes``: nodes of the type."""
    size = slice_size(num_nodes, ranks)
    return range(min(rank * size, num_nodes), min((rank + 1) * size, num_nodes))


def directory_slices(book: PartitionBook, rank: int) -> list[range]:
    """Returns, by node type, the original ids whose internal ids ``rank`` knows."""
    totals = book.sizes.sum(0).tolist()
    return [directory_slice(total, book.parts, rank) for total in totals]
