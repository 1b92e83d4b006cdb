"""The reverses of relations: their names, and a graph to which they are added."""

from __future__ import annotations

from dataclasses import replace

from pyg_batchgnn.data.dataset import Dataset
from pyg_batchgnn.data.errors import broken
from pyg_batchgnn.data.schema import Relation, Schema
from pyg_batchgnn.data.sets import EdgeSet

_PREFIX = "rev_"


def with_reverse_relations(dataset: Dataset) -> Dataset:
    """Returns the same graph with a reverse relation behind those that it has, for each of them.

    The reverse of ("author", "writes", "paper") is ("paper", "rev_writes", "author"). It has the
    same edges with the ends exchanged, in the same order, and the same attributes. Relations that
    are the reverse of another one already get none, and neither does that one. The reverse edges
    are copies in memory, also where the others are mapped from files. For a large graph, write the
    result with `write_folder` and partition that folder.

    Raises:
        DatasetError: the graph is homogeneous, so that its reverse edges are of the same relation.
    """
    if not dataset.has_names:
        fact = "is of a homogeneous graph, whose reverse edges are no relation of their own"
        raise broken(dataset.name, "edge_index", fact, "use ParallelEdges and make_undirected")
    added = [
        EdgeSet(reverse_of(edges.relation), edges.edge_index.flip(0), dict(edges.tables))
        for edges in dataset.edge_sets
        if stored_reverse(dataset.schema, edges.relation) is None
    ]
    source = f"{dataset.source.rstrip('.')}; with reverse relations."
    return replace(dataset, edge_sets=(*dataset.edge_sets, *added), source=source)


def reverse_of(relation: Relation) -> Relation:
    """Returns the names of the reverse of a relation."""
    source, name, target = relation
    return target, f"{_PREFIX}{name}", source


def stored_reverse(schema: Schema, relation: Relation) -> Relation | None:
    """Returns the relation of a graph that by its names is the reverse of another one.

    It leads the other way. One of the two has the name of the other with "rev_" in front. None if
    the graph has no such relation.
    """
    source, name, target = relation
    names = [reverse_of(relation)]
    if name.startswith(_PREFIX):
        names.insert(0, (target, name.removeprefix(_PREFIX), source))
    return next((one for one in names if one in schema.relations), None)
