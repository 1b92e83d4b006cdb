"""Moves rows between ranks: to where they belong, and from where they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, MessageKind, Received
from pyg_batchgnn.partition.bounded import own_rounds


@dataclass(frozen=True)
class Grouping:
    """An order of rows by groups, stable.

    Attributes:
        order: [n], the positions of the rows in order of groups; None where they are in that order
            already.
        counts: the number of rows of each group.
    """

    order: Tensor | None
    counts: list[int]

    def apply(self, rows: Tensor) -> Tensor:
        """Returns rows in order of groups."""
        return rows if self.order is None else rows.index_select(0, self.order)

    def sorted(self, rows: Tensor) -> tuple[Tensor, list[int]]:
        """Returns rows in order of groups and the number of rows of each group: what an exchange
        sends."""
        return self.apply(rows), self.counts

    def undo(self, rows: Tensor, out: Tensor) -> None:
        """Writes rows in order of groups to where they stood before."""
        if self.order is None:
            out.copy_(rows)
        else:
            out.index_copy_(0, self.order.to(torch.int64), rows)


def group(owner: Tensor, groups: int) -> Grouping:
    """Groups rows by their owners, [n] int32 or int64 in [0, groups)."""
    order, counts = ops.group_by_owner(owner, groups)
    return Grouping(order, counts.tolist())


def group_by_range(values: Tensor, bounds: Tensor) -> Grouping:
    """Groups rows by the range that each value [n] is in; bounds [ranges + 1] int64, ascending."""
    order, counts = ops.group_by_range(values, bounds)
    return Grouping(order, counts.tolist())


def send(comm: Communicator, rows: Tensor, grouping: Grouping) -> Received:
    """Sends each row to the rank of its group, in one exchange."""
    return comm.exchange(*grouping.sorted(rows), MessageKind.PARTITION)


@dataclass(frozen=True)
class Remote:
    """An array of rows of which each rank holds some.

    Attributes:
        group: groups row numbers [n] by the rank that holds each.
        read: returns rows that this rank holds, given [n] row numbers in any order, which it may
            overwrite.
        shape: the shape of one row.
        dtype: the dtype of its elements.
    """

    group: Callable[[Tensor], Grouping]
    read: Callable[[Tensor], Tensor]
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def row_bytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def pull(
    comm: Communicator, remote: Remote, ids: Tensor, out: Tensor | None = None, most: int | None = None
) -> Tensor:
    """Returns the rows of ``ids``, asked of their holders in rounds. Collective.

    Args:
        comm: the communicator of all ranks.
        remote: the array to read.
        ids: [n] row numbers; n may differ from rank to rank. They travel as they are: narrow ones
            cost less.
        out: [n, *shape] to write to; may be ``ids`` itself.
        most: a number of ids that no rank exceeds, as in `own_rounds`.
    """
    if out is None:
        out = torch.empty(ids.numel(), *remote.shape, dtype=remote.dtype)
    for rows in own_rounds(comm, ids.numel(), ids.element_size() + remote.row_bytes, most):
        wanted = ids[rows.start : rows.stop]
        grouping = remote.group(wanted)
        asked = send(comm, wanted, grouping)
        answer = remote.read(asked.rows).contiguous()
        rows_found = comm.exchange(answer, asked.counts, MessageKind.PARTITION).rows
        grouping.undo(rows_found, out[rows.start : rows.stop])
    return out
