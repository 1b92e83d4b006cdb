"""Splits a graph whose nodes and edges have numbers of types into one of several types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn.data.dataset import Dataset
from pyg_batchgnn.data.labels import class_numbers
from pyg_batchgnn.data.schema import Relation
from pyg_batchgnn.data.sets import EdgeSet, NodeSet


@dataclass(frozen=True, eq=False)
class TypeNumbers:
    """The types of nodes or edges.

    Attributes:
        names: the names of the types.
        number: [n] int64, the number of the type of each node or edge.
    """

    names: tuple[str, ...]
    number: Tensor


def by_type(dataset: Dataset, nodes: TypeNumbers, edges: TypeNumbers) -> Dataset:
    """Returns a homogeneous data set as one of several node types and relations.

    The nodes of a type keep their order, and so do the edges of a relation. There is a relation for
    each type of edges and each pair of node types that such edges join, in the order of the types'
    numbers.

    Args:
        dataset: a homogeneous data set.
        nodes: the types of its nodes.
        edges: the types of its edges.
    """
    local = torch.empty_like(nodes.number)
    members = [(nodes.number == number).nonzero()[:, 0] for number in range(len(nodes.names))]
    for own in members:
        local[own] = torch.arange(len(own))
    node_sets = tuple(
        NodeSet(
            name,
            len(own),
            {key: table[own] for key, table in dataset.nodes.tables.items()},
            {key: local[index[nodes.number[index] == at]] for key, index in dataset.splits.items()},
            dataset.num_classes if class_numbers(dataset.nodes.tables) is not None else 0,
        )
        for at, (name, own) in enumerate(zip(nodes.names, members, strict=True))
    )
    edge_sets = tuple(
        EdgeSet(
            relation,
            local[dataset.edge_index[:, own].long()].to(dataset.edge_index.dtype),
            {key: table[own] for key, table in dataset.edges.tables.items()},
        )
        for relation, own in _relations(dataset.edge_index.long(), nodes, edges)
    )
    return Dataset(dataset.name, node_sets, edge_sets, dataset.source)


def _relations(
    edge_index: Tensor, nodes: TypeNumbers, edges: TypeNumbers
) -> Iterator[tuple[Relation, Tensor]]:
    """Yields each relation and the positions of its edges."""
    types = len(nodes.names)
    source, target = nodes.number[edge_index]
    cell = (edges.number * types + source) * types + target
    for found in cell.unique().tolist():
        kind, ends = divmod(found, types * types)
        names = (nodes.names[ends // types], edges.names[kind], nodes.names[ends % types])
        yield names, (cell == found).nonzero()[:, 0]
