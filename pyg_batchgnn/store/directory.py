"""Internal ids of original ids, asked of the ranks that know them.

No rank holds a map of all nodes: each knows the internal ids of a slice of the original ids
(`partition.directory_slice`), and looking others up is collective. Original ids of internal ids are
asked of the owners.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.partition import Part
from pyg_batchgnn.store.slices import SlicedTables, Slices, ask, even_bounds

LOOKUP = Header(MessageKind.LOOKUP)


def internal_ids(
    part: Part, comm: Communicator, original: Tensor, header: Header = LOOKUP, node_type: int = 0
) -> Tensor:
    """Looks up internal ids of original ids of one node type. Collective, two rounds.

    Args:
        part: this rank's.
        comm: of all ranks.
        original: [n] int64, any number on any rank, in any order.
        header: of the exchanges.
        node_type: the number of the type.

    Returns:
        [n] int64.

    Raises:
        IndexError: an id is not in the graph.
    """
    return internal_ids_by_type(part, comm, {node_type: original}, header)[node_type]


def internal_ids_by_type(
    part: Part, comm: Communicator, original: Mapping[int, Tensor], header: Header = LOOKUP
) -> dict[int, Tensor]:
    """Looks up internal ids of original ids of any node types. Collective, two rounds for all.

    Args:
        part: this rank's.
        comm: of all ranks.
        original: by the number of the type, [n] int64 each; ranks may give different types.
        header: of the exchanges.

    Returns:
        By the number of the type, [n] int64 each.

    Raises:
        IndexError: an id is not in the graph.
    """
    found = SlicedTables(comm, directory_tables(part)).find(list(original.items()), header)
    return dict(zip(original, found, strict=True))


def directory_tables(part: Part) -> list[Slices]:
    """Returns the internal ids of the nodes of each type by original id, in slices."""
    tables = []
    for number, name in enumerate(part.schema.node_types):
        bounds = even_bounds(part.book.num_nodes_of(number), part.book.parts)
        what = "node ids" if part.schema.num_types == 1 else f"ids of {name!r}"
        tables.append(Slices(what, bounds, part.directory_of(number)[1]))
    return tables


def original_ids(part: Part, comm: Communicator, internal: Tensor, header: Header = LOOKUP) -> Tensor:
    """Looks up the original ids, [n] int64, of [n] int64 internal ids of any types. Collective, two
    rounds."""
    ops.check_range("internal node ids", internal, part.book.num_nodes)
    owner = part.book.owner(internal)
    return ask(comm, internal, owner, lambda asked: part.node[asked - part.first], header)


def edge_targets(
    part: Part, comm: Communicator, edge: Tensor, header: Header = LOOKUP, relation: int = 0
) -> Tensor:
    """Looks up the internal ids of the destinations of edges of a relation. Collective, two rounds.

    There is no directory of edges: every rank is asked for all of them. That suits reading and
    writing a few attributes, not an epoch.

    Args:
        part: this rank's.
        comm: of all ranks.
        edge: [n] int64 input edge ids, any number on any rank.
        header: of the exchanges.
        relation: the number of the relation.

    Raises:
        IndexError: an id is not in the graph.
    """
    ops.check_range("edge ids", edge, part.edge_counts[relation], "edge ids")
    asked = comm.all_gather(edge, header)
    own, first = part.relations[relation], part.nodes_of(part.schema.target_types[relation]).start
    edge_ids = own.explicit_edge_ids()
    order = torch.argsort(edge_ids)
    ascending = edge_ids[order].to(torch.int64)
    place = torch.searchsorted(ascending, asked.rows).clamp(max=max(order.numel() - 1, 0))
    is_ours = (
        ascending[place] == asked.rows if order.numel() else torch.zeros(len(asked.rows), dtype=torch.bool)
    )
    row = torch.searchsorted(own.indptr, order[place[is_ours]], right=True) - 1
    number = torch.cat([torch.arange(count) for count in asked.counts])[is_ours]
    asker = torch.repeat_interleave(torch.arange(comm.size), torch.tensor(asked.counts))[is_ours]
    answers = torch.stack([number, row + first], dim=1)
    counts = torch.bincount(asker, minlength=comm.size).tolist()
    found = comm.exchange(answers, counts, header).rows
    out = torch.empty_like(edge)
    out[found[:, 0]] = found[:, 1]
    return out
