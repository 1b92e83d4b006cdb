"""Internal ids of original ids, asked of the ranks that know them.

No rank holds a map of all nodes: each knows the internal ids of a slice of the original ids
(`partition.directory_slice`), and looking others up is collective. Original ids of internal ids are
asked of the owners.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.partition import Part, slice_size

LOOKUP = Header(MessageKind.LOOKUP)


def internal_ids(part: Part, comm: Communicator, original: Tensor, header: Header = LOOKUP) -> Tensor:
    """Looks up internal ids of original ids. Collective, two rounds.

    Args:
        part: this rank's.
        comm: of all ranks.
        original: [n] int64, any number on any rank, in any order.
        header: of the exchanges.

    Returns:
        [n] int64.

    Raises:
        IndexError: an id is not in the graph.
    """
    size = slice_size(part.book.num_nodes, comm.size)
    ops.check_range("node ids", original, part.book.num_nodes)
    begin = comm.rank * size
    return _ask(comm, original, original // size, lambda asked: part.directory[asked - begin], header)


def original_ids(part: Part, comm: Communicator, internal: Tensor, header: Header = LOOKUP) -> Tensor:
    """Looks up the original ids, [n] int64, of [n] int64 internal ids. Collective, two rounds."""
    ops.check_range("internal node ids", internal, part.book.num_nodes)
    owner = part.book.owner(internal)
    return _ask(comm, internal, owner, lambda asked: part.node[asked - part.first], header)


def _ask(
    comm: Communicator, ids: Tensor, to: Tensor, answer: Callable[[Tensor], Tensor], header: Header
) -> Tensor:
    """Sends each id to a rank and returns what ``answer`` gives there, in the order of ``ids``."""
    order = torch.argsort(to, stable=True)
    counts = torch.bincount(to, minlength=comm.size).tolist()
    asked = comm.exchange(ids[order], counts, header)
    found = comm.exchange(answer(asked.rows).to(torch.int64), asked.counts, header)
    out = torch.empty_like(ids)
    out[order] = found.rows
    return out


def edge_targets(part: Part, comm: Communicator, edge: Tensor, header: Header = LOOKUP) -> Tensor:
    """Looks up the internal ids of the destinations of edges. Collective, two rounds.

    There is no directory of edges: every rank is asked for all of them. That suits reading and
    writing a few attributes, not an epoch.

    Args:
        part: this rank's.
        comm: of all ranks.
        edge: [n] int64 input edge ids, any number on any rank.
        header: of the exchanges.

    Raises:
        IndexError: an id is not in the graph.
    """
    ops.check_range("edge ids", edge, part.num_edges, "edge ids")
    asked = comm.all_gather(edge, header)
    edge_ids = part.in_edges.explicit_edge_ids()
    order = torch.argsort(edge_ids)
    ascending = edge_ids[order].to(torch.int64)
    place = torch.searchsorted(ascending, asked.rows).clamp(max=max(order.numel() - 1, 0))
    is_ours = (
        ascending[place] == asked.rows if order.numel() else torch.zeros(len(asked.rows), dtype=torch.bool)
    )
    row = torch.searchsorted(part.in_edges.indptr, order[place[is_ours]], right=True) - 1
    number = torch.cat([torch.arange(count) for count in asked.counts])[is_ours]
    asker = torch.repeat_interleave(torch.arange(comm.size), torch.tensor(asked.counts))[is_ours]
    answers = torch.stack([number, row + part.first], dim=1)
    counts = torch.bincount(asker, minlength=comm.size).tolist()
    found = comm.exchange(answers, counts, header).rows
    out = torch.empty_like(edge)
    out[found[:, 0]] = found[:, 1]
    return out
