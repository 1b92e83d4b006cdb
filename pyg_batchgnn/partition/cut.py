"""Cuts the run of parts that a rank has built into the parts."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pyg_batchgnn.data import Group, Schema
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.deliver import OwnNodes
from pyg_batchgnn.partition.numbering import Directory
from pyg_batchgnn.partition.part import Part, directory_slices

Tables = Mapping[Group, Mapping[str, Tensor]]


def cut_run(
    schema: Schema,
    book: PartitionBook,
    edge_counts: tuple[int, ...],
    nodes: OwnNodes,
    directory: Directory,
    attributes: Tables,
    splits: Tables,
) -> list[Part]:
    """Returns the parts of a run; their arrays are views of the run's, as far as they can be.

    Args:
        schema: the node types and the relations.
        book: the partition book.
        edge_counts: the number of edges of each relation in the whole graph.
        nodes: the nodes and in-edges of the run.
        directory: the directory slices of the run.
        attributes: those of the run's nodes and edges, by group and name.
        splits: internal ids of the run's nodes, ascending, by group of nodes and name.
    """
    found = []
    for at, number in enumerate(nodes.parts):
        rows = [slice(*own.starts[at : at + 2].tolist()) for own in nodes.rows]
        relations, where = list[InEdges](), dict(zip(schema.node_groups, rows, strict=True))
        for edges, target, group in zip(
            nodes.relations, schema.target_types, schema.edge_groups, strict=True
        ):
            own = edges.edges(range(rows[target].start, rows[target].stop))
            where[group] = slice(own.start, own.stop)
            relations.append(_cut(edges, rows[target], where[group]))
        pieces = [node[own] for node, own in zip(nodes.nodes, rows, strict=True)]
        found.append(
            Part(
                schema=schema,
                book=book,
                number=number,
                node=_joined(pieces),
                relations=tuple(relations),
                edge_counts=edge_counts,
                directory=_directory(book, number, directory),
                attributes={
                    group: {name: table[where[group]] for name, table in tables.items()}
                    for group, tables in attributes.items()
                },
                splits={
                    group: {
                        name: _rows_among(split, book.nodes_of(number, of_type))
                        for name, split in splits.get(group, {}).items()
                    }
                    for of_type, group in enumerate(schema.node_groups)
                },
            )
        )
    return found


def _cut(edges: InEdges, rows: slice, own: slice) -> InEdges:
    indptr = edges.indptr[rows.start : rows.stop + 1] - own.start
    return InEdges(indptr, edges.indices[own], edges.explicit_edge_ids()[own])


def _directory(book: PartitionBook, number: int, directory: Directory) -> Tensor:
    """Returns the internal ids of a part's slices of the original ids."""
    pieces = []
    slices = directory_slices(book, number)
    for known, bounds, internal in zip(slices, directory.bounds, directory.internal, strict=True):
        start = int(bounds[directory.rank])
        pieces.append(internal[known.start - start : known.stop - start])
    return _joined(pieces)


def _joined(pieces: list[Tensor]) -> Tensor:
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def _rows_among(internal: Tensor, own: range) -> Tensor:
    """Returns the ascending internal ids that are in a range, as rows of it."""
    begin, end = torch.searchsorted(internal, torch.tensor([own.start, own.stop])).tolist()
    return internal[begin:end] - own.start
