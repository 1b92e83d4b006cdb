"""Internal ids of original ids, asked of the ranks that know them.

No rank holds a map of all nodes: each knows the internal ids of a slice of the original ids
(`partition.directory_slice`), and looking others up is collective. Original ids of internal ids are
asked of the owners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.comm import Communicator, Header, MessageKind
from pyg_batchgnn.partition import Part, slice_size

LOOKUP = Header(MessageKind.LOOKUP)


def internal_ids(part: Part, comm: Communicator, original: Tensor, node_type: int = 0) -> Tensor:
    """Looks up the internal ids of original ids ``original`` [n] int64 of one node type.
    Collective, two rounds. Raises IndexError if an id is not in the graph."""
    return internal_ids_by_type(part, comm, {node_type: original})[node_type]


def internal_ids_by_type(part: Part, comm: Communicator, original: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """As `internal_ids`, for original ids [n] int64 by number of the node type. Ranks may ask for
    other types. Two rounds in all."""
    found = SlicedTables(comm, directory_tables(part)).find(list(original.items()), LOOKUP)
    return dict(zip(original, found, strict=True))


def directory_tables(part: Part) -> list[Slices]:
    """Returns the table from original to internal ids of each node type, in slices."""
    tables = []
    for number, name in enumerate(part.schema.node_types):
        bounds = even_bounds(part.book.num_nodes_of(number), part.book.parts)
        what = "node ids" if part.schema.num_types == 1 else f"ids of {name!r}"
        tables.append(Slices(what, bounds, part.directory_of(number)[1]))
    return tables


def original_ids(part: Part, comm: Communicator, internal: Tensor) -> Tensor:
    """Looks up the original ids of internal ids [n] int64 of any types. Collective, two rounds."""
    ops.check_range("internal node ids", internal, part.book.num_nodes)
    owner = part.book.owner(internal)
    return ask(comm, internal, owner, lambda asked: part.node[asked - part.first], LOOKUP)


def edge_targets(part: Part, comm: Communicator, edge: Tensor, relation: int = 0) -> Tensor:
    """Looks up the targets of edges [n] int64, given by input edge ids of a relation, as internal
    ids. Collective, two rounds. Every rank is asked for all edges: not for an epoch's."""
    ops.check_range("edge ids", edge, part.edge_counts[relation], "edge ids")
    asked = comm.all_gather(edge, LOOKUP)
    own, first = part.relations[relation], part.nodes_of(part.schema.target_types[relation]).start
    edge_ids = own.explicit_edge_ids()
    order = torch.argsort(edge_ids)
    ascending = edge_ids[order].to(torch.int64)
    place = torch.searchsorted(ascending, asked.rows).clamp(max=max(order.numel() - 1, 0))
    is_ours = (
        ascending[place] == asked.rows if order.numel() else torch.zeros(len(asked.rows), dtype=torch.bool)
    )
    row = torch.searchsorted(own.indptr, order[place[is_ours]], right=True) - 1
    number = torch.cat([torch.arange(count) for count in asked.counts])[is_ours]
    asker = torch.repeat_interleave(torch.arange(comm.size), torch.tensor(asked.counts))[is_ours]
    answers = torch.stack([number, row + first], dim=1)
    counts = torch.bincount(asker, minlength=comm.size).tolist()
    found = comm.exchange(answers, counts, LOOKUP).rows
    out = torch.empty_like(edge)
    out[found[:, 0]] = found[:, 1]
    return out


def even_bounds(count: int, ranks: int) -> Tensor:
    """Returns [ranks + 1] int64, bounds of equal slices of ``count`` entries but a shorter last."""
    return (torch.arange(ranks + 1) * slice_size(count, ranks)).clamp(max=count)


@dataclass(frozen=True, eq=False)
class Slices:
    """A table of integers that is cut over ranks: each rank holds a range of entries."""

    name: str  # what the numbers are, for errors
    bounds: Tensor  # [ranks + 1] int64, the first number of each rank, then the number of entries
    own: Tensor  # this rank's entries, integers


class SlicedTables:
    """Several tables cut over ranks, which are asked in the same rounds."""

    def __init__(self, comm: Communicator, tables: Sequence[Slices]) -> None:
        self._comm, self.tables = comm, tuple(tables)
        sizes = torch.stack([table.bounds.diff() for table in tables], dim=1)
        #: [ranks, tables], where each table begins among a rank's entries of all tables
        self._starts = sizes.cumsum(1) - sizes

    def find(self, wanted: Sequence[tuple[int, Tensor]], header: Header) -> list[Tensor]:
        """Looks up entries. Collective, two rounds for all. ``wanted``: pairs of a table's position
        and the entry numbers [n] int64. Returns the entries [n] int64 for each pair. Raises
        IndexError if a table has no such entry."""
        none = torch.empty(0, dtype=torch.int64)
        to, place = [none], [none]
        for at, numbers in wanted:
            table = self.tables[at]
            ops.check_range(table.name, numbers, int(table.bounds[-1]))
            holder = torch.searchsorted(table.bounds, numbers, right=True) - 1
            to.append(holder)
            place.append(numbers - table.bounds[holder] + self._starts[holder, at])
        found = ask(self._comm, torch.cat(place), torch.cat(to), self._entries, header)
        return list(found.split([numbers.numel() for _, numbers in wanted]))

    def _entries(self, place: Tensor) -> Tensor:
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
    """Sends each row of ``rows`` [n, ...] as a request to rank ``to`` [n], and returns the
    responses in the same order. ``answer``: computes responses from the requests that arrive.
    Collective, two rounds; none with one rank."""
    if comm.size == 1:
        return answer(rows)
    order = torch.argsort(to, stable=True)
    counts = torch.bincount(to, minlength=comm.size).tolist()
    asked = comm.exchange(rows[order], counts, header)
    found = comm.exchange(answer(asked.rows), asked.counts, header).rows
    out = torch.empty_like(found)
    out[order] = found
    return out
