"""Cuts the run of parts that a rank has built into the parts."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pyg_batchgnn.data import HOMOGENEOUS, NODES, Group
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.deliver import OwnNodes
from pyg_batchgnn.partition.numbering import Directory
from pyg_batchgnn.partition.part import Part, directory_slice


def cut_run(
    book: PartitionBook,
    num_edges: int,
    nodes: OwnNodes,
    directory: Directory,
    attributes: Mapping[Group, Mapping[str, Tensor]],
    splits: Mapping[str, Tensor],
) -> list[Part]:
    """Returns the parts of a run; their arrays are views of the run's.

    Args:
        book: the partition book.
        num_edges: of the whole graph.
        nodes: of the run.
        directory: of the run's directory slices.
        attributes: of the run's nodes and edges, by group and name.
        splits: internal ids of the run's nodes, ascending.
    """
    found = []
    for number in nodes.parts:
        own = book.nodes_of(number)
        rows = slice(own.start - nodes.first, own.stop - nodes.first)
        edges = slice(int(nodes.in_edges.indptr[rows.start]), int(nodes.in_edges.indptr[rows.stop]))
        known = directory_slice(book.num_nodes, book.parts, number)
        start = int(directory.bounds[directory.rank])
        found.append(
            Part(
                schema=HOMOGENEOUS,
                book=book,
                number=number,
                node=nodes.node[rows],
                relations=(
                    InEdges(
                        nodes.in_edges.indptr[rows.start : rows.stop + 1] - edges.start,
                        nodes.in_edges.indices[edges],
                        nodes.in_edges.explicit_edge_ids()[edges],
                    ),
                ),
                edge_counts=(num_edges,),
                directory=directory.internal[known.start - start : known.stop - start],
                attributes={
                    group: {name: table[rows if group.is_node else edges] for name, table in tables.items()}
                    for group, tables in attributes.items()
                },
                splits={NODES: {name: _rows_among(split, own) for name, split in splits.items()}},
            )
        )
    return found


def _rows_among(internal: Tensor, own: range) -> Tensor:
    """Returns the ascending internal ids that are in a part, as rows of the part."""
    begin, end = torch.searchsorted(internal, torch.tensor([own.start, own.stop])).tolist()
    return internal[begin:end] - own.start
