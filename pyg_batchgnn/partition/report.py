"""Reports on the quality of a partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from rich.table import Table

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.partition.checks import check_comm
from pyg_batchgnn.partition.part import Part, parts_of

#: The number of nodes marked at a time, where distinct ones are counted, and of edges read at a
#: time.
_MARKS = 1 << 26
_EDGES = 1 << 22


@dataclass(frozen=True)
class PartCounts:
    """The counts of one part.

    Attributes:
        nodes, edges, train: the numbers of nodes, of their in-edges, of training nodes among them.
        cut: the number of in-edges from nodes of other parts.
        halo: the number of distinct nodes of other parts that they come from.
    """

    nodes: int
    edges: int
    train: int
    cut: int
    halo: int


@dataclass(frozen=True)
class PartitionReport:
    """The counts of all parts, in order."""

    parts: tuple[PartCounts, ...]

    @property
    def edge_cut(self) -> float:
        """The share of all edges that join different parts."""
        edges = sum(part.edges for part in self.parts)
        return sum(part.cut for part in self.parts) / edges if edges else 0.0

    def balance(self, of: str) -> float:
        """Returns the largest count over the mean, 1 at best.

        Args:
            of: nodes, edges, train or halo.
        """
        counts = [getattr(part, of) for part in self.parts]
        return max(counts) * len(counts) / sum(counts) if sum(counts) else 1.0

    def table(self) -> Table:
        """Returns a table with one line per part, and the balance below."""
        columns = ("nodes", "edges", "train", "cut", "halo")
        table = Table("part", *columns, title=f"edge cut {self.edge_cut:.1%}", show_footer=True)
        for number, part in enumerate(self.parts):
            table.add_row(str(number), *(f"{getattr(part, name):,}" for name in columns))
        table.columns[0].footer = "max / mean"
        for column, name in zip(table.columns[1:], columns, strict=True):
            column.justify = "right"
            column.footer = f"{self.balance(name):.3f}"
        return table


def report_partition(parts: Part | Sequence[Part], comm: Communicator) -> PartitionReport:
    """Counts all parts, on every rank. Collective; only counts travel.

    Args:
        parts: this rank's part, or parts.
        comm: the communicator of all ranks.
    """
    mine = parts_of(parts)
    check_comm(comm)
    counted = {str(part.number): list(_count(part)) for part in mine}
    found = {int(number): counts for said in comm.all_gather_json(counted) for number, counts in said.items()}
    return PartitionReport(tuple(PartCounts(*found[number]) for number in sorted(found)))


def _count(part: Part) -> tuple[int, int, int, int, int]:
    last = part.first + part.num_nodes
    cut = halo = 0
    for begin in range(0, part.book.num_nodes, _MARKS):
        seen = torch.zeros(min(_MARKS, part.book.num_nodes - begin), dtype=torch.bool)
        for source in part.in_edges.indices.split(_EDGES):
            here = source[(source >= begin) & (source < begin + len(seen))]
            outside = here[(here < part.first) | (here >= last)]
            cut += outside.numel()
            seen[(outside - begin).to(torch.int64)] = True
        halo += int(seen.sum())
    return part.num_nodes, part.in_edges.indices.numel(), part.split("train").numel(), cut, halo
