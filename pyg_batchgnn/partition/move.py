"""Moves rows between ranks: to where they belong, and from where they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, MessageKind, Received
from pyg_batchgnn.partition.book import PartitionBook


def send_rows(comm: Communicator, rows: Tensor, to: Tensor) -> Tensor:
    """Sends each row to a rank, in rounds of bounded size. Collective. ``rows``: [n, ...]. ``to``:
    [n] int64 ranks. Returns the rows that came from all ranks, in an order that depends on the
    rounds. Counts as `MessageKind.PARTITION`."""
    came = [rows[:0]]
    row_bytes = rows.itemsize * math.prod(rows.shape[1:])
    for own in own_rounds(comm, len(rows), row_bytes):
        piece = slice(own.start, own.stop)
        came.append(send(comm, rows[piece], group(to[piece], comm.size)).rows)
    return torch.cat(came)


def node_values(comm: Communicator, book: PartitionBook, node: Tensor, own: Tensor) -> Tensor:
    """Returns [n] int64, the values of nodes, asked from their owners in rounds. Collective.
    ``node``: [n] internal ids; n may differ between ranks. ``own``: [own nodes] int64, the values
    of this rank's nodes. Counts as `MessageKind.PARTITION`."""
    offsets = book.part_offsets
    first = int(offsets[comm.rank])
    remote = Remote(lambda ids: group_by_range(ids, offsets), lambda ids: own[ids - first], (), own.dtype)
    return pull(comm, remote, node)


@dataclass(frozen=True)
class Grouping:
    """A stable order of rows by group."""

    #: [n], positions of the rows in order of groups; None: they are in order already
    order: Tensor | None
    counts: list[int]  # rows of each group

    def apply(self, rows: Tensor) -> Tensor:
        return rows if self.order is None else rows.index_select(0, self.order)

    def sorted(self, rows: Tensor) -> tuple[Tensor, list[int]]:
        return self.apply(rows), self.counts

    def undo(self, rows: Tensor, out: Tensor) -> None:
        """Writes rows that are in order of groups back to their old positions."""
        if self.order is None:
            out.copy_(rows)
        else:
            out.index_copy_(0, self.order.to(torch.int64), rows)


def group(owner: Tensor, groups: int) -> Grouping:
    order, counts = ops.group_by_owner(owner, groups)
    return Grouping(order, counts.tolist())


def group_by_range(values: Tensor, bounds: Tensor) -> Grouping:
    """Groups rows by the range of each value [n]. ``bounds``: [ranges + 1] int64, ascending."""
    order, counts = ops.group_by_range(values, bounds)
    return Grouping(order, counts.tolist())


def send(comm: Communicator, rows: Tensor, grouping: Grouping) -> Received:
    return comm.exchange(*grouping.sorted(rows), MessageKind.PARTITION)


@dataclass(frozen=True)
class Remote:
    """An array whose rows are spread over all ranks."""

    group: Callable[[Tensor], Grouping]  # groups row ids [n] by the rank that holds each
    #: returns rows that this rank holds, by [n] row ids in any order, which it may overwrite
    read: Callable[[Tensor], Tensor]
    shape: tuple[int, ...]  # of one row
    dtype: torch.dtype

    @property
    def row_bytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def pull(
    comm: Communicator, remote: Remote, ids: Tensor, out: Tensor | None = None, most: int | None = None
) -> Tensor:
    """Returns the rows ``ids`` [n] of an array, asked from their holders in rounds. Collective. n
    may differ between ranks; narrow ids cost less. ``out``: [n, *shape] to write to; may be ``ids``
    itself. ``most``: no rank has more ids, as in `own_rounds`."""
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


#: The most bytes of rows that a rank receives in one round, if all ranks send it all they have.
ROUND_BYTES = 16 << 20


def rows_per_round(row_bytes: int, ranks: int) -> int:
    return max(256, ROUND_BYTES // (max(row_bytes, 1) * ranks))


def own_rounds(comm: Communicator, rows: int, row_bytes: int, most: int | None = None) -> Iterator[range]:
    """Yields this rank's rows in rounds, as ranges; ranks with fewer rows end with empty ones.
    Collective. ``row_bytes``: bytes of a row. ``most``: a number that no rank's ``rows`` exceeds,
    the same on all. If it fits one round, ranks need not ask for the largest number."""
    step = rows_per_round(row_bytes, comm.size)
    if most is None or most > step:
        most = comm.max(rows)
    for at in range(0, most, step):
        yield range(min(at, rows), min(at + step, rows))


def shared_rounds(comm: Communicator, rows: int, row_bytes: int) -> Iterator[range]:
    """Yields this rank's share of rows that all ranks can read (a file's), in rounds. In each
    round, rank 0 has the first rows, rank 1 the next ones: what is received in order of rounds and
    ranks is in order of rows."""
    step = rows_per_round(row_bytes, comm.size)
    for at in range(0, rows, step * comm.size):
        share = min(step, -(-(rows - at) // comm.size))
        first = at + comm.rank * share
        yield range(min(first, rows), min(first + share, rows))


def add_rows(out: Tensor, row: Tensor, values: Tensor) -> Tensor:
    """Adds ``values`` [n, k] to the rows ``row`` [n] of ``out`` [m, k], and returns ``out``. It
    adds column by column: torch adds whole rows one call at a time, which takes 10 to 30 times as
    long if rows are so narrow."""
    for into, added in zip(out.unbind(1), values.unbind(1), strict=True):
        into.index_add_(0, row, added)
    return out
