"""Holds out edges of a graph as links for validation and test; adds reverse relations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data.dataset import Dataset, EdgeSet, LinkSplit
from pyg_batchgnn.data.errors import broken
from pyg_batchgnn.types import Relation, reverse_of, stored_reverse


def hold_out_links(
    dataset: Dataset, share: float, relation: Relation | None = None, reverse: Relation | None = None
) -> Dataset:
    """Returns the data set without some edges, which become links of the splits.

    >>> sorted(hold_out_links(from_pyg(data), 0.1).edges.links)
    ['test', 'train', 'val']

    Of the pairs of nodes with an edge, a share becomes links for validation, and as many become
    links for test. All edges of such a pair leave the graph: parallel ones, those the other way
    within one node type, and those of `reverse`. The other edges of the relation become training
    links. Self loops stay. The choice is the same in every process.

    Args:
        dataset: the data set, whose relation has no links yet.
        share: share of the pairs for each of the two splits; above 0 and below 0.5.
        relation: the relation; None: the only one.
        reverse: the relation with the same edges the other way. None: the relation whose name has
            "rev_" added or taken off, if there is one. `relation` itself: there is none.

    Raises:
        DatasetError: an argument does not fit the data set.
    """
    if not 0.0 < share < 0.5:
        raise broken(dataset.name, "hold_out", f"is {share}", "give a share above 0 and below 0.5")
    edges = _edges(dataset, relation)
    if edges.links:
        fact = f"{edges.group} has links already, in {', '.join(edges.links)}"
        raise broken(dataset.name, "hold_out", fact, "leave hold_out out")
    keys = _keys(dataset, edges, edges.edge_index)
    source, target = edges.edge_index
    is_loop = source == target if edges.relation[0] == edges.relation[2] else torch.zeros_like(keys).bool()
    pairs, first = np.unique(np.where(is_loop.numpy(), -1, keys.numpy()), return_index=True)
    first = first[pairs >= 0]
    order = np.random.default_rng(0).permutation(len(first))
    count = round(share * len(first))
    val, test = (torch.from_numpy(np.sort(first[order[at : at + count]])) for at in (0, count))
    out = keys[torch.cat([val, test])]
    left = ~torch.isin(keys, out) | is_loop
    kept = _some(edges, left)
    links = {
        "train": LinkSplit(kept.edge_index),
        "val": LinkSplit(edges.edge_index[:, val]),
        "test": LinkSplit(edges.edge_index[:, test]),
    }
    changed = {edges.relation: replace(kept, links=links)}
    reverse = stored_reverse(dataset.schema, edges.relation) if reverse is None else reverse
    if reverse is not None and reverse != edges.relation:
        back = _edges(dataset, reverse)
        if (back.relation[2], back.relation[0]) != (edges.relation[0], edges.relation[2]):
            fact = f"{back.group} does not lead from {edges.relation[2]} to {edges.relation[0]}"
            raise broken(dataset.name, "reverse", fact, "name the relation that holds the reverse edges")
        changed[reverse] = _some(back, ~torch.isin(_keys(dataset, edges, back.edge_index.flip(0)), out))
    sets = tuple(changed.get(one.relation, one) for one in dataset.edge_sets)
    source_text = f"{dataset.source.rstrip('.')}; {count} links each held out for validation and test."
    return replace(dataset, edge_sets=sets, source=source_text)


def _edges(dataset: Dataset, relation: Relation | None) -> EdgeSet:
    known = dataset.schema.relations
    if relation is None and len(known) == 1:
        return dataset.edge_sets[0]
    if relation not in known:
        names = ", ".join("__".join(one) for one in known)
        fact = "is not given" if relation is None else f"is {'__'.join(relation)}"
        raise broken(dataset.name, "relation", fact, f"name one of {names}")
    return dataset.edges_of(relation)


def _keys(dataset: Dataset, edges: EdgeSet, index: Tensor) -> Tensor:
    source, target = index.to(torch.int64)
    if edges.relation[0] == edges.relation[2]:
        source, target = torch.minimum(source, target), torch.maximum(source, target)
    return source * dataset.nodes_of(edges.relation[2]).num_nodes + target


def _some(edges: EdgeSet, kept: Tensor) -> EdgeSet:
    tables = {name: ops.rows_like(table, ops.as_stored(table)[kept]) for name, table in edges.tables.items()}
    return replace(edges, topology=edges.edge_index[:, kept], tables=tables)


def with_reverse_relations(dataset: Dataset) -> Dataset:
    """Returns the graph with a reverse for each relation that has none yet, behind the others. The
    reverse of ("author", "writes", "paper") is ("paper", "rev_writes", "author"), with the same
    edges the other way, in the same order, and with the same attributes. They are copies in memory:
    for a large graph, write the result with `write_folder` and partition that folder. Raises
    `DatasetError` for a homogeneous graph.

    >>> writes = EdgeSet(("author", "writes", "paper"), torch.tensor([[0, 1], [0, 0]]))
    >>> graph = Dataset("mine", (NodeSet("author", 2), NodeSet("paper", 1)), (writes,))
    >>> [edges.relation[1] for edges in with_reverse_relations(graph).edge_sets]
    ['writes', 'rev_writes']
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
