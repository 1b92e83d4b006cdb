"""Tables that are cut into slices, one per rank, and asked for any of their entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Header
from pyg_batchgnn.partition import slice_size


def even_bounds(count: int, ranks: int) -> Tensor:
    """Returns the bounds of slices of ``count`` entries, of which all but the last are as long."""
    return (torch.arange(ranks + 1) * slice_size(count, ranks)).clamp(max=count)


@dataclass(frozen=True, eq=False)
class Slices:
    """A table whose entries are numbered from 0. Each rank has a range of them.

    Attributes:
        name: what the numbers are, for errors.
        bounds: [ranks + 1] int64, the first number of each rank, then the number of entries.
        own: this rank's entries, integers.
    """

    name: str
    bounds: Tensor
    own: Tensor

    def holder(self, number: Tensor) -> Tensor:
        """Returns the ranks that have some entries, [n] int64."""
        return torch.searchsorted(self.bounds, number, right=True) - 1


class SlicedTables:
    """Several tables that are asked together.

    Args:
        comm: of all ranks.
        tables: the tables, cut in the same way on every rank.
    """

    def __init__(self, comm: Communicator, tables: Sequence[Slices]) -> None:
        self._comm, self.tables = comm, tuple(tables)
        sizes = torch.stack([table.bounds.diff() for table in tables], dim=1)
        #: [ranks, tables], where each table begins among a rank's entries of all tables
        self._starts = sizes.cumsum(1) - sizes

    def find(self, wanted: Sequence[tuple[int, Tensor]], header: Header) -> list[Tensor]:
        """Looks up entries of any of the tables. Collective, two rounds for all.

        Args:
            wanted: positions of tables, each with [n] int64 numbers of entries; ranks may want any.
            header: of the exchanges.

        Returns:
            [n] int64 entries for each of them.

        Raises:
            IndexError: a table has no such entry.
        """
        none = torch.empty(0, dtype=torch.int64)
        to, place = [none], [none]
        for at, numbers in wanted:
            table = self.tables[at]
            ops.check_range(table.name, numbers, int(table.bounds[-1]))
            holder = table.holder(numbers)
            to.append(holder)
            place.append(numbers - table.bounds[holder] + self._starts[holder, at])
        found = ask(self._comm, torch.cat(place), torch.cat(to), self._entries, header)
        return list(found.split([numbers.numel() for _, numbers in wanted]))

    def _entries(self, place: Tensor) -> Tensor:
        """Returns this rank's entries at some places among those of all tables."""
        if len(self.tables) == 1:
            return self.tables[0].own[place].to(torch.int64)
        starts = self._starts[self._comm.rank]
        number = torch.searchsorted(starts, place, right=True) - 1
        found = torch.empty_like(place)
        for at, table in enumerate(self.tables):
            which = (number == at).nonzero().view(-1)
            found[which] = table.own[place[which] - starts[at]].to(torch.int64)
        return found


def ask(
    comm: Communicator, rows: Tensor, to: Tensor, answer: Callable[[Tensor], Tensor], header: Header
) -> Tensor:
    """Sends each question to a rank and returns the answers in their order. Collective, two rounds.

    A world of one rank makes no exchange.

    Args:
        comm: of all ranks.
        rows: [n, ...], one question per row.
        to: [n] int64, the ranks that know the answers.
        answer: returns one row per question that came from the ranks.
        header: of the exchanges.
    """
    if comm.size == 1:
        return answer(rows)
    order = torch.argsort(to, stable=True)
    counts = torch.bincount(to, minlength=comm.size).tolist()
    asked = comm.exchange(rows[order], counts, header)
    found = comm.exchange(answer(asked.rows), asked.counts, header).rows
    out = torch.empty_like(found)
    out[order] = found
    return out
