"""Writing rows into the tables of their owners."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.data import Group
from pyg_batchgnn.partition import Part
from pyg_batchgnn.store.row_request import RowRequest
from pyg_batchgnn.store.shard import LocalShard

_WRITE = Header(MessageKind.FEATURES)


def write_rows(
    part: Part,
    comm: Communicator,
    own: LocalShard,
    group: Group,
    name: str,
    request: RowRequest,
    rows: Tensor,
) -> None:
    """Sends rows to their owners, who write them. Collective.

    Args:
        part: this rank's.
        comm: of all ranks.
        own: this rank's attributes.
        group, name: the attribute that is written.
        request: the k rows, in any order, with internal ids of nodes.
        rows: [k, ...] of the attribute's type.
    """
    owner = part.book.owner(request.node)
    order = torch.argsort(owner, stable=True)
    counts = torch.bincount(owner, minlength=comm.size).tolist()
    ids = torch.stack(request.take(order).columns, dim=1)
    node, *edge = comm.exchange(ids, counts, _WRITE).rows.unbind(1)
    values = comm.exchange(rows[order].contiguous(), counts, _WRITE).rows
    row = own.find(group, RowRequest(node - part.nodes_of(part.schema.type_of_rows(group)).start, *edge))
    last = _last_of_each(row)
    own.attributes[group][name][row[last]] = values[last]
    comm.barrier(_WRITE)  # ranks of this host may read the table from here on


def _last_of_each(values: Tensor) -> Tensor:
    """Positions of the last occurrence of each distinct value."""
    order = torch.argsort(values, stable=True)
    ascending = values[order]
    is_last = torch.ones(values.numel(), dtype=torch.bool)
    is_last[:-1] = ascending[1:] != ascending[:-1]
    return order[is_last]
