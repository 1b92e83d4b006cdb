"""Moving many rows between the ranks of a partitioned graph, in rounds of bounded size."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.bounded import own_rounds
from pyg_batchgnn.partition.move import Remote, group, group_by_range, pull, send


def send_rows(comm: Communicator, rows: Tensor, to: Tensor) -> Tensor:
    """Sends each row to a rank, in rounds. Collective; counts as `MessageKind.PARTITION`.

    Args:
        comm: of all ranks.
        rows: [n, ...]; the shape of a row and the dtype are the same on all ranks.
        to: [n] int64, the rank that each row goes to.

    Returns:
        The rows that came from all ranks, in no order that could be told beforehand.
    """
    came = [rows[:0]]
    row_bytes = rows.itemsize * math.prod(rows.shape[1:])
    for own in own_rounds(comm, len(rows), row_bytes):
        piece = slice(own.start, own.stop)
        came.append(send(comm, rows[piece], group(to[piece], comm.size)).rows)
    return torch.cat(came)


def node_values(comm: Communicator, book: PartitionBook, node: Tensor, own: Tensor) -> Tensor:
    """Returns a value of each of some nodes, asked of their owners in rounds.

    Collective; counts as `MessageKind.PARTITION`.

    Args:
        comm: of all ranks.
        book: the owners of the nodes.
        node: [n] int32 or int64 internal ids; n may differ from rank to rank.
        own: [own nodes] int64, the values of this rank's nodes.

    Returns:
        [n] int64.
    """
    offsets = book.part_offsets
    first = int(offsets[comm.rank])
    remote = Remote(lambda ids: group_by_range(ids, offsets), lambda ids: own[ids - first], (), own.dtype)
    return pull(comm, remote, node)
