"""Sends attributes of nodes and edges, and splits, to their owners."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset, Group
from pyg_batchgnn.ops import gather_rows
from pyg_batchgnn.partition.bounded import own_rounds
from pyg_batchgnn.partition.checks import own_share
from pyg_batchgnn.partition.move import Remote, group, group_by_range, pull, send
from pyg_batchgnn.partition.numbering import Numbering
from pyg_batchgnn.partition.reading import ReadingSlice
from pyg_batchgnn.partition.runs import Runs

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


def deliver_splits(
    comm: Communicator, dataset: Dataset, part: ReadingSlice, numbering: Numbering, runs: Runs
) -> dict[Group, dict[str, Tensor]]:
    """Returns the internal ids of the splits' nodes that this rank owns, ascending, by group and
    name. Collective.

    Each rank reads a share of every split.
    """
    names = [(number, name) for number, nodes in enumerate(dataset.node_sets) for name in nodes.splits]
    read = [own_share(comm, dataset.node_sets[number].splits[name]) for number, name in names]
    dtype = numbering.internal.dtype
    joint = [part.nodes.of(node, number, dtype) for node, (number, _) in zip(read, names, strict=True)]
    sizes = torch.tensor([node.numel() for node in joint], dtype=torch.int64)
    rows = torch.empty(int(sizes.sum()), 2, dtype=dtype)
    most = sum(len(dataset.node_sets[number].splits[name]) for number, name in names)
    rows[:, 0] = pull(comm, part.remote(numbering.internal), torch.cat([rows[:0, 0], *joint]), most=most)
    rows[:, 1] = torch.arange(len(names)).repeat_interleave(sizes)
    found = _to_owners(comm, rows, numbering.book.part_offsets[runs.bounds], most)
    splits: dict[Group, dict[str, Tensor]] = {nodes.group: {} for nodes in dataset.node_sets}
    for at, (number, name) in enumerate(names):
        splits[dataset.node_sets[number].group][name] = found[found[:, 1] == at, 0].sort().values
    return splits


def _to_owners(comm: Communicator, rows: Tensor, bounds: Tensor, most: int) -> Tensor:
    """Sends rows [n, k] that begin with an internal id to the nodes' owners, [m, k] int64.
    Collective."""
    found = [torch.empty(0, rows.size(1), dtype=torch.int64)]
    for piece in own_rounds(comm, len(rows), rows.size(1) * rows.element_size(), most):
        sent = rows[piece.start : piece.stop]
        found.append(send(comm, sent, group_by_range(sent[:, 0].contiguous(), bounds)).rows.to(torch.int64))
    return torch.cat(found)
