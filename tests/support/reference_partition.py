"""The obvious partitioner: the whole graph in memory, any owners. What the real one must equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pyg_batchgnn.data import EDGES, HOMOGENEOUS, NODES, Dataset, Group
from pyg_batchgnn.ops import InEdges, as_stored, rows_like
from pyg_batchgnn.partition import Part, PartitionBook, directory_slices
from pyg_batchgnn.store import TypedGraph

#: Attributes by group and name, of all nodes by original id and of all edges by edge id.
Tables = Mapping[Group, Mapping[str, Tensor]]


def book_of(owners: Sequence[Tensor], parts: int) -> PartitionBook:
    """Returns the book of owners by node type, [N_t] each."""
    sizes = torch.stack([torch.bincount(owner, minlength=parts) for owner in owners], dim=1)
    return PartitionBook([0, *sizes.flatten().cumsum(0).tolist()], len(owners))


def orders_of(owners: Sequence[Tensor]) -> list[Tensor]:
    """Returns by type the original ids in order of their internal ids: by part, then by id."""
    return [torch.argsort(owner, stable=True) for owner in owners]


def internal_ids_by_type(owners: Sequence[Tensor], book: PartitionBook) -> list[Tensor]:
    """Returns the internal id of every original id by type: by part, type, then original id."""
    return _internal_ids(orders_of(owners), book)


def _internal_ids(orders: Sequence[Tensor], book: PartitionBook) -> list[Tensor]:
    found = []
    for number, order in enumerate(orders):
        ids = torch.empty_like(order)
        ordered = [torch.tensor([*book.nodes_of(part, number)]) for part in range(book.parts)]
        ids[order] = torch.cat(ordered).to(order.dtype)
        found.append(ids)
    return found


def internal_ids(owner: Tensor) -> Tensor:
    """[N] the internal id of every original id of a homogeneous graph."""
    return torch.argsort(torch.argsort(owner, stable=True))


def typed_parts(
    graph: TypedGraph,
    owners: Sequence[Tensor],
    parts: int,
    tables: Tables | None = None,
    splits: Tables | None = None,
) -> list[Part]:
    return [typed_part(graph, owners, parts, number, tables, splits) for number in range(parts)]


def typed_part(
    graph: TypedGraph,
    owners: Sequence[Tensor],
    parts: int,
    number: int,
    tables: Tables | None = None,
    splits: Tables | None = None,
) -> Part:
    return part_in_order(graph, orders_of(owners), book_of(owners, parts), number, tables, splits)


def part_in_order(
    graph: TypedGraph,
    orders: Sequence[Tensor],
    book: PartitionBook,
    number: int,
    tables: Tables | None = None,
    splits: Tables | None = None,
) -> Part:
    """Returns part ``number`` of a typed graph, whose edges are in ascending id.

    ``orders``: by node type, [N_t] the original ids in order of their internal ids. ``book``: how
    many of these each part has. ``splits``: original ids by group of nodes and name.
    """
    schema, tables, splits = graph.schema, tables or {}, splits or {}
    ids = _internal_ids(orders, book)
    nodes = [
        order[int(book.sizes[:number, at].sum()) :][: len(book.nodes_of(number, at))]
        for at, order in enumerate(orders)
    ]
    rows: dict[Group, Tensor] = dict(zip(schema.node_groups, nodes, strict=True))
    relations = []
    for at, edges in enumerate(graph.relations):
        own, targets = nodes[schema.target_types[at]], edges.targets()
        kept = torch.isin(targets, own).nonzero().view(-1)
        internal = ids[schema.target_types[at]][targets[kept]]
        kept = kept[torch.argsort(internal, stable=True)]
        edge = edges.explicit_edge_ids()[kept]
        relations.append(
            InEdges(
                torch.cat([torch.zeros(1, dtype=torch.int64), edges.degrees[own].cumsum(0)]),
                ids[schema.source_types[at]][edges.indices[kept].long()].to(book.id_dtype),
                edge,
            )
        )
        rows[schema.edge_groups[at]] = edge.long()
    slices = directory_slices(book, number)
    return Part(
        schema=schema,
        book=book,
        number=number,
        node=torch.cat(nodes),
        relations=tuple(relations),
        edge_counts=tuple(edges.num_edges for edges in graph.relations),
        directory=torch.cat(
            [own[known.start : known.stop] for own, known in zip(ids, slices, strict=True)]
        ).to(book.id_dtype),
        attributes={
            group: {
                name: rows_like(table, as_stored(table)[row]) for name, table in tables.get(group, {}).items()
            }
            for group, row in rows.items()
        },
        splits={
            group: {
                name: torch.isin(rows[group], index).nonzero().view(-1)
                for name, index in splits.get(group, {}).items()
            }
            for group in schema.node_groups
        },
    )


def in_edges_of(edge_index: Tensor, num_targets: int) -> InEdges:
    """Returns the in-edges of every node, by a stable sort."""
    order = torch.argsort(edge_index[1].long(), stable=True)
    degrees = torch.bincount(edge_index[1].long(), minlength=num_targets)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    return InEdges(indptr, edge_index[0].long()[order], order)


def graph_of(dataset: Dataset) -> TypedGraph:
    counts = {nodes.name: nodes.num_nodes for nodes in dataset.node_sets}
    relations = [in_edges_of(edges.edge_index, counts[edges.relation[2]]) for edges in dataset.edge_sets]
    return TypedGraph(dataset.schema, tuple(counts.values()), tuple(relations))


def split_dataset(dataset: Dataset, owners: Sequence[Tensor], parts: int, number: int) -> Part:
    tables = {one.group: one.tables for one in dataset.sets}
    splits = {nodes.group: nodes.splits for nodes in dataset.node_sets}
    return typed_part(graph_of(dataset), owners, parts, number, tables, splits)


def split_graph(
    edge_index: Tensor,
    owner: Tensor,
    parts: int,
    number: int,
    tables: Mapping[str, Tensor] | None = None,
    edge_tables: Mapping[str, Tensor] | None = None,
    splits: Mapping[str, Tensor] | None = None,
) -> Part:
    """Returns part ``number`` of a homogeneous graph; see `part_in_order`. ``edge_index``: [2, E]
    sources above destinations; positions are edge ids. ``owner``: [N]."""
    graph = TypedGraph(HOMOGENEOUS, (owner.numel(),), (in_edges_of(edge_index, owner.numel()),))
    attributes = {NODES: tables or {}, EDGES: edge_tables or {}}
    return typed_part(graph, [owner], parts, number, attributes, {NODES: splits or {}})
