"""Sends attributes of nodes and edges, and splits, to their owners."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.ops import gather_rows
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.partition.bounded import own_rounds
from pyg_batchgnn.partition.checks import own_share
from pyg_batchgnn.partition.deliver import Runs
from pyg_batchgnn.partition.move import Remote, group, group_by_range, pull, send
from pyg_batchgnn.partition.numbering import Directory

#: The rows of an input table that one rank reads before the next rank's turn. Owners ask for
#: ascending rows, and so all ranks read at the same time.
STRIPE = 1 << 10


def striped(table: Tensor, ranks: int) -> Remote:
    """Returns the rows of a table that every rank can read; each rank reads its stripes for all."""
    return Remote(
        lambda row: group(torch.div(row, STRIPE, rounding_mode="floor").remainder_(ranks), ranks),
        lambda row: gather_rows(table, row),
        tuple(table.shape[1:]),
        table.dtype,
    )


def deliver_rows(comm: Communicator, table: Tensor, ids: Tensor) -> Tensor:
    """Returns the rows of the input table [rows, ...] that this rank owns, [n, ...]. Collective."""
    return pull(comm, striped(table, comm.size), ids)


def deliver_split(
    comm: Communicator, split: Tensor, node_type: int, directory: Directory, book: PartitionBook, runs: Runs
) -> Tensor:
    """Returns the internal ids of a split's nodes that this rank owns, ascending. Collective.

    Args:
        comm: the communicator of all ranks.
        split: [S] int64 original ids, the same on every rank; each reads some of them.
        node_type: the number of their type.
        directory: the directory of this rank.
        book: the partition book.
        runs: the parts that each rank builds.
    """
    internal = pull(comm, directory.remote(node_type), own_share(comm, split))
    bounds = book.part_offsets[runs.bounds]
    found = []
    for rows in own_rounds(comm, internal.numel(), internal.element_size()):
        piece = internal[rows.start : rows.stop]
        found.append(send(comm, piece, group_by_range(piece, bounds)).rows)
    return torch.cat([torch.empty(0, dtype=torch.int64), *found]).sort().values
