"""Reports on the quality of a partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.partition.checks import check_comm
from pyg_batchgnn.partition.part import Part, parts_of

#: The number of nodes marked at a time, where distinct ones are counted, and of edges read at a
#: time.
_MARKS = 1 << 26
_EDGES = 1 << 22


_COLUMNS = ("nodes", "edges", "train", "cut", "halo")


@dataclass(frozen=True)
class PartCounts:
    """The counts of one part, of all node types or of one.

    Attributes:
        nodes, edges, train: the numbers of nodes, of their in-edges, of training nodes among them.
        cut: the number of in-edges from nodes of other parts.
        halo: the number of distinct nodes of other parts that in-edges come from. That of a type
            counts the nodes that are of the type themselves.
    """

    nodes: int
    edges: int
    train: int
    cut: int
    halo: int

    @classmethod
    def sum(cls, counts: Sequence[PartCounts]) -> PartCounts:
        """Returns the sums."""
        return cls(*(sum(getattr(one, name) for one in counts) for name in _COLUMNS))


@dataclass(frozen=True)
class PartitionReport:
    """The counts of all parts.

    Attributes:
        types: by the name of the node type, the counts of each part, in order.
        cut_pairs: one row per part and one column per other part, the in-edges of the part from
            nodes of the other part.
        halo_pairs: one row per part and one column per other part, the distinct nodes of the other
            part that in-edges of the part come from.
        hosts: the host of each part.
    """

    types: dict[str, tuple[PartCounts, ...]]
    cut_pairs: tuple[tuple[int, ...], ...]
    halo_pairs: tuple[tuple[int, ...], ...]
    hosts: tuple[int, ...]

    @property
    def parts(self) -> tuple[PartCounts, ...]:
        """The counts of each part, of all node types."""
        return tuple(map(PartCounts.sum, zip(*self.types.values(), strict=True)))

    @property
    def edge_cut(self) -> float:
        """The share of all edges that join different parts."""
        edges = sum(part.edges for part in self.parts)
        return sum(part.cut for part in self.parts) / edges if edges else 0.0

    @property
    def host_cut(self) -> float:
        """The share of all edges that join different hosts."""
        edges = sum(part.edges for part in self.parts)
        cut = sum(
            count
            for part, counts in enumerate(self.cut_pairs)
            for other, count in enumerate(counts)
            if self.hosts[part] != self.hosts[other]
        )
        return cut / edges if edges else 0.0

    def balance(self, of: str, node_type: str | None = None) -> float:
        """Returns the largest count over the mean, 1 at best.

        Args:
            of: nodes, edges, train or halo.
            node_type: the type that is counted; all types if it is None.
        """
        parts = self.parts if node_type is None else self.types[node_type]
        counts = [getattr(part, of) for part in parts]
        return max(counts) * len(counts) / sum(counts) if sum(counts) else 1.0

    def table(self) -> Table:
        """Returns a table with one line per part, and the balance below. In a graph of several node
        types there is a line per type and part, and the balance is that of the worst type."""
        several = len(self.types) > 1
        names = ("part", "type") if several else ("part",)
        title = f"edge cut {self.edge_cut:.1%}"
        if len(set(self.hosts)) > 1:
            title += f", between hosts {self.host_cut:.1%}"
        table = Table(*names, *_COLUMNS, title=title, show_footer=True)
        for node_type, parts in self.types.items():
            for number, part in enumerate(parts):
                first = (str(number), node_type) if several else (str(number),)
                table.add_row(*first, *(f"{getattr(part, name):,}" for name in _COLUMNS))
        table.columns[0].footer = "max / mean"
        for column, name in zip(table.columns[len(names) :], _COLUMNS, strict=True):
            column.justify = "right"
            column.footer = f"{max(self.balance(name, node_type) for node_type in self.types):.3f}"
        return table


def report_partition(
    parts: Part | Sequence[Part], comm: Communicator, hosts: int | None = None
) -> PartitionReport:
    """Counts all parts, on every rank. Collective; only counts travel.

    Args:
        parts: this rank's part, or parts.
        comm: the communicator of all ranks.
        hosts: the number of hosts that get parts in order, as many each. By default the parts are
            on the hosts of the ranks if there is a part per rank, otherwise on one host.
    """
    mine = parts_of(parts)
    check_comm(comm)
    counted = {str(part.number): _count(part) for part in mine}
    found = {int(number): counts for said in comm.all_gather_json(counted) for number, counts in said.items()}
    counts = [found[number] for number in sorted(found)]
    return PartitionReport(
        {name: tuple(PartCounts(*part["types"][name]) for part in counts) for name in counts[0]["types"]},
        tuple(tuple(part["cut"]) for part in counts),
        tuple(tuple(part["halo"]) for part in counts),
        _hosts(comm, len(counts), hosts),
    )


def _hosts(comm: Communicator, parts: int, hosts: int | None) -> tuple[int, ...]:
    """Returns the host of each part."""
    if hosts is not None:
        return tuple(part * hosts // parts for part in range(parts))
    return tuple(comm.hosts) if parts == comm.size else (0,) * parts


def _count(part: Part) -> dict[str, Any]:
    """Returns the counts of each node type, in the order of `PartCounts`, and the halo by part."""
    schema = part.schema
    cut, halo = _outside(part)
    edges = [0] * schema.num_types
    for target, one in zip(schema.target_types, part.relations, strict=True):
        edges[target] += one.num_edges
    of_types = halo.sum(0).tolist()
    return {
        "types": {
            name: [
                len(part.nodes_of(at)),
                edges[at],
                part.split("train", name).numel(),
                int(cut[:, at].sum()),
                of_types[at],
            ]
            for at, name in enumerate(schema.node_types)
        },
        "cut": cut.sum(1).tolist(),
        "halo": halo.sum(1).tolist(),
    }


def _outside(part: Part) -> tuple[Tensor, Tensor]:
    """Returns the in-edges from other parts, [parts, types] by the part of the source and the type
    of the target; and [parts, types], the nodes of other parts that they come from."""
    schema, book, own = part.schema, part.book, part.book.nodes_of(part.number)
    cut, halo = torch.zeros(2, book.parts, schema.num_types, dtype=torch.int64)
    for begin in range(0, book.num_nodes, _MARKS):
        seen = torch.zeros(min(_MARKS, book.num_nodes - begin), dtype=torch.bool)
        for target, edges in zip(schema.target_types, part.relations, strict=True):
            for source in edges.indices.split(_EDGES):
                here = source[(source >= begin) & (source < begin + len(seen))]
                outside = here[(here < own.start) | (here >= own.stop)]
                cut[:, target] += torch.bincount(book.owner(outside), minlength=book.parts)
                seen[(outside - begin).to(torch.int64)] = True
        bounds = (book.offsets - begin).clamp(0, len(seen)).tolist()
        for cell, (first, last) in enumerate(pairwise(bounds)):
            halo.view(-1)[cell] += seen[first:last].sum()
    return cut, halo
