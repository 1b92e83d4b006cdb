"""The rows that each step of a macrobatch reads and changes, told to their owners once.

The owner of a row learns which rows every rank needs for each of the steps. A step then takes one
exchange of rows and one of gradients, and no ids (design, section 8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Header
from pyg_batchgnn.embed.tables import NodeOwners

#: The internal ids of the nodes of one minibatch, [N_t] int64 by number of the node type.
WantedRows = Sequence[Tensor]


@dataclass(frozen=True, eq=False)
class TableExchange:
    """The rows of one table that a step reads and changes, and how they travel."""

    #: [N] int64, by node of this rank's minibatch: i for row i of this rank's table, ~i for row i
    #: of those that come from other ranks, by rank
    source: Tensor
    asked: list[int]  # by rank, the number of rows that come from it
    #: [sum(asked) + 1] int64, where each such row's nodes begin in ``sent``; None if one each
    sent_ptr: Tensor | None
    sent: Tensor  # [.] int64, the nodes of each row that comes from another rank. Their gradients go back.
    served: Tensor  # [S] int64, the rows of this rank that go to other ranks, by rank
    served_counts: list[int]  # by rank, the number of rows that go to it
    changes: ops.RowChanges  # the rows of this rank that any rank reads, and so may change


@dataclass(frozen=True, eq=False)
class StepExchange:
    """The rows of all tables that a step reads and changes."""

    header: Header  # the epoch, the macrobatch and the number of the step in it
    tables: list[TableExchange]  # by table


@dataclass(frozen=True, eq=False)
class _Asked:
    """The rows of one table that a minibatch needs."""

    unique: Tensor  # [U] int64, their internal ids, ascending
    place: Tensor  # [N] int64, the position of each node's row in ``unique``
    ends: list[int]  # [R] where the rows of each rank end in ``unique``

    def of(self, rank: int) -> slice:
        return slice(self.ends[rank - 1] if rank else 0, self.ends[rank])

    @property
    def counts(self) -> list[int]:
        return [end - begin for begin, end in zip([0, *self.ends], self.ends, strict=False)]


class StepPlanner:
    """Plans which rows travel in the steps of macrobatches."""

    def __init__(self, owners: NodeOwners, node_types: Sequence[int]) -> None:
        self._owners, self._types = owners, node_types
        self._wire = ops.id_dtype(int(owners.book.sizes.max()))

    def plan(
        self, minibatches: Sequence[WantedRows], header: Header, comm: Communicator | None
    ) -> list[StepExchange]:
        """Returns the plan of each minibatch's step. Collective, one round for all."""
        asked = [[self._ask(wanted[number], number) for number in self._types] for wanted in minibatches]
        served = self._exchange(asked, header, comm)
        return [
            StepExchange(
                Header(header.kind, header.epoch, header.macrobatch, number),
                [self._table(*each) for each in zip(self._types, mine, theirs, strict=True)],
            )
            for number, (mine, theirs) in enumerate(zip(asked, served, strict=True))
        ]

    def _ask(self, node: Tensor, node_type: int) -> _Asked:
        book = self._owners.book
        unique, (place,) = ops.unique_nodes([node], book.num_nodes)
        stops = torch.tensor([book.nodes_of(part, node_type).stop for part in range(book.parts)])
        return _Asked(unique, place, torch.searchsorted(unique, stops).tolist())

    def _exchange(
        self, asked: Sequence[Sequence[_Asked]], header: Header, comm: Communicator | None
    ) -> list[list[list[Tensor]]]:
        """Returns the rows of this rank that others read, by minibatch, table and reading rank."""
        none = torch.empty(0, dtype=torch.int64)
        own, ranks = self._owners.rank, range(self._owners.book.parts)
        if comm is None:
            return [[[none for _ in ranks] for _ in tables] for tables in asked]
        every = [one for tables in asked for one in tables]
        messages = [self._message(every, rank) if rank != own else none.to(self._wire) for rank in ranks]
        items = [sum(one.counts[rank] for one in every) if rank != own else 0 for rank in ranks]
        received = comm.exchange(messages, None, header, ops.empty, items).split()
        rows = [self._read(message, len(every)) for message in received]  # by rank
        types = range(len(self._types))
        return [
            [[rows[rank][number * len(types) + at] for rank in ranks] for at in types]
            for number in range(len(asked))
        ]

    def _message(self, asked: Sequence[_Asked], rank: int) -> Tensor:
        """Returns the lists' sizes, then the wanted rows as their owner counts; empty if none."""
        counts = [one.counts[rank] for one in asked]
        if not any(counts):
            return torch.empty(0, dtype=self._wire)
        firsts = [self._owners.book.nodes_of(rank, number).start for number in self._types]
        rows = [one.unique[one.of(rank)] - firsts[at % len(firsts)] for at, one in enumerate(asked)]
        return torch.cat([torch.tensor(counts, dtype=self._wire), *(row.to(self._wire) for row in rows)])

    def _read(self, message: Tensor, lists: int) -> list[Tensor]:
        if not message.numel():
            return [torch.empty(0, dtype=torch.int64)] * lists
        counts = message[:lists].tolist()
        return [rows.to(torch.int64) for rows in message[lists:].split(counts)]

    def _table(self, node_type: int, asked: _Asked, served: Sequence[Tensor]) -> TableExchange:
        rank, own = self._owners.rank, asked.of(self._owners.rank)
        source = ops.gather_rows(self._codes(asked, node_type), asked.place)
        here = (source >= 0).nonzero().view(-1)
        away = (source < 0).nonzero().view(-1)
        count = len(asked.unique) - (own.stop - own.start)
        order, nodes = ops.group_by_owner(~source[away], count)
        sent = away if order is None else away[order.to(torch.int64)]
        is_single = sent.numel() == count
        return TableExchange(
            source=source,
            asked=[0 if at == rank else number for at, number in enumerate(asked.counts)],
            sent_ptr=None if is_single else torch.cat([torch.zeros(1, dtype=torch.int64), nodes.cumsum(0)]),
            sent=sent,
            served=torch.cat(list(served)),
            served_counts=[len(rows) for rows in served],
            changes=self._changes(node_type, source, here, served),
        )

    def _codes(self, asked: _Asked, node_type: int) -> Tensor:
        """Returns where each row of ``asked.unique`` comes from, as in `TableExchange.source`."""
        rank = self._owners.rank
        own, first = asked.of(rank), self._owners.book.nodes_of(rank, node_type).start
        before, behind = own.start, len(asked.unique) - own.stop
        return torch.cat(
            [~torch.arange(before), asked.unique[own] - first, ~torch.arange(before, before + behind)]
        )

    def _changes(
        self, node_type: int, source: Tensor, here: Tensor, served: Sequence[Tensor]
    ) -> ops.RowChanges:
        """Returns the rows that change, with gradients in the order of ranks, then of nodes."""
        rank = self._owners.rank
        before = sum(len(rows) for rows in served[:rank])
        total = sum(len(rows) for rows in served)
        rows = torch.cat([*served[:rank], source[here], *served[rank + 1 :]])
        codes = torch.cat([~torch.arange(before), here, ~torch.arange(before, total)])
        row, (place,) = ops.unique_nodes([rows], len(self._owners.book.nodes_of(rank, node_type)))
        order, counts = ops.group_by_owner(place, row.numel())
        ptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        return ops.RowChanges(row, ptr, codes if order is None else codes[order.to(torch.int64)])
