"""Reports on the quality of a partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from pyg_batchgnn.partition.loads import Load

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
        loads: nodes, in-edges, splits and balanced weights, each of every type that has some.
    """

    types: dict[str, tuple[PartCounts, ...]]
    cut_pairs: tuple[tuple[int, ...], ...]
    halo_pairs: tuple[tuple[int, ...], ...]
    hosts: tuple[int, ...]
    loads: tuple[Load, ...] = ()

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
        """Returns a table with one line per part, and one per type and part in a graph of several
        node types."""
        several = len(self.types) > 1
        names = ("part", "type") if several else ("part",)
        title = f"edge cut {self.edge_cut:.1%}"
        if len(set(self.hosts)) > 1:
            title += f", between hosts {self.host_cut:.1%}"
        sums = {(load.name, load.node_type): load.sums for load in self.loads}
        columns = dict.fromkeys(load.name for load in self.loads)
        table = Table(*names, *columns, "cut", "halo", title=title)
        for node_type, parts in self.types.items():
            for number, part in enumerate(parts):
                first = (str(number), node_type) if several else (str(number),)
                found = (sums.get((name, node_type)) for name in columns)
                counts = (0 if every is None else every[number] for every in found)
                table.add_row(*first, *map(_shown, counts), _shown(part.cut), _shown(part.halo))
        for column in table.columns[len(names) :]:
            column.justify = "right"
        return table

    def balance_table(self) -> Table:
        """Returns a table with one line per load, and one per load and type in a graph of several
        node types: how even it is, and what was allowed."""
        several = len(self.types) > 1
        names = ("load", "type") if several else ("load",)
        table = Table(*names, "max / mean", "allowed", "fullest part", title="balance")
        for load in self.loads:
            first = (load.name, load.node_type) if several else (load.name,)
            allowed = "-" if load.slack is None else f"{load.slack:g}" + ("" if load.is_met else ", not met")
            table.add_row(*first, f"{load.balance:.3f}", allowed, str(load.fullest))
        for column in table.columns[len(names) :]:
            column.justify = "right"
        return table


def _shown(count: float) -> str:
    return f"{count:,}" if isinstance(count, int) else f"{count:,.4g}"
