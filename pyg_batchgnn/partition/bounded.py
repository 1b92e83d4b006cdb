"""Rounds of bounded size over long arrays, the same number of rounds on every rank."""

from __future__ import annotations

from collections.abc import Iterator

from pyg_batchgnn.comm import Communicator

#: A rank receives at most this many bytes of rows in one round, if all ranks send it all they have.
ROUND_BYTES = 16 << 20


def rows_per_round(row_bytes: int, ranks: int) -> int:
    """Returns the number of rows that each rank handles in one round."""
    return max(256, ROUND_BYTES // (max(row_bytes, 1) * ranks))


def own_rounds(comm: Communicator, rows: int, row_bytes: int, most: int | None = None) -> Iterator[range]:
    """Yields this rank's own rows in rounds. Collective.

    Ranges are empty at the end where other ranks have more rows.

    Args:
        comm: the communicator of all ranks.
        rows: the number of rows of this rank.
        row_bytes: the bytes of a row.
        most: a number of rows that no rank exceeds, equal on all ranks. Where they fit one round,
            ranks need not ask each other for the largest number of rows.
    """
    step = rows_per_round(row_bytes, comm.size)
    if most is None or most > step:
        most = comm.max(rows)
    for at in range(0, most, step):
        yield range(min(at, rows), min(at + step, rows))


def shared_rounds(comm: Communicator, rows: int, row_bytes: int) -> Iterator[range]:
    """Yields this rank's share of rows that all ranks can read (a file's), in rounds.

    The ranks go through the rows side by side: within a round the rows of rank 0 come first, then
    those of rank 1, and all of them before the next round's: what is received in order of ranks is
    in order of rows. The last round is shared as evenly as the others.
    """
    step = rows_per_round(row_bytes, comm.size)
    for at in range(0, rows, step * comm.size):
        share = min(step, -(-(rows - at) // comm.size))
        first = at + comm.rank * share
        yield range(min(first, rows), min(first + share, rows))
