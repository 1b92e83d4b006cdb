"""Writing rows into the tables of their owners."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.partition import Part
from pyg_batchgnn.store.holding import Holding

_WRITE = Header(MessageKind.FEATURES)


def write_rows(
    part: Part,
    comm: Communicator,
    own: Holding,
    table: Tensor,
    node: Tensor,
    edge: Tensor | None,
    rows: Tensor,
) -> None:
    """Sends rows to their owners, who write them; collective.

    Args:
        part: this rank's.
        comm: of all ranks.
        own: this rank's attributes.
        table: that of them which is written, [n, ...] or [e, ...].
        node: [k] int64 internal ids of the nodes, or of the destinations of the edges.
        edge: [k] int64 input edge ids, None where node attributes are written.
        rows: [k, ...] of the table's type.
    """
    owner = part.book.owner(node)
    order = torch.argsort(owner, stable=True)
    counts = torch.bincount(owner, minlength=comm.size).tolist()
    ids = node[order] if edge is None else torch.stack([node[order], edge[order]], dim=1)
    places = comm.exchange(ids, counts, _WRITE).rows
    values = comm.exchange(rows[order].contiguous(), counts, _WRITE).rows
    row = places - part.first if edge is None else own.edge_rows(places[:, 0] - part.first, places[:, 1])
    last = _last_of_each(row)
    table[row[last]] = values[last]
    comm.barrier(_WRITE)  # ranks of this host may read the table from here on


def _last_of_each(values: Tensor) -> Tensor:
    """Positions of the last occurrence of every distinct value."""
    order = torch.argsort(values, stable=True)
    ascending = values[order]
    is_last = torch.ones(values.numel(), dtype=torch.bool)
    is_last[:-1] = ascending[1:] != ascending[:-1]
    return order[is_last]
