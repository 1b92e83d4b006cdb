"""Reports how good a partition is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.table import Table
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.partition.checks import check_comm
from pyg_batchgnn.partition.limits import USUAL, Load, sums_of
from pyg_batchgnn.partition.part import Part, parts_of
from pyg_batchgnn.partition.policy import Balanced, PolicyLike, as_policy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_COLUMNS = ("nodes", "edges", "train", "cut", "halo")


@dataclass(frozen=True)
class PartCounts:
    """What one part has, of all node types or of one."""

    nodes: int  # nodes
    edges: int  # in-edges of these nodes
    train: int  # training nodes
    cut: int  # in-edges from nodes of other parts
    halo: int  # distinct nodes of other parts that in-edges come from; by type: of that type

    @classmethod
    def sum(cls, counts: Sequence[PartCounts]) -> PartCounts:
        """Adds up the counts of several parts or types, field by field."""
        return cls(*(sum(getattr(one, name) for one in counts) for name in _COLUMNS))


@dataclass(frozen=True)
class PartitionReport:
    """What all parts have, and how evenly; `report_partition` makes it."""

    types: dict[str, tuple[PartCounts, ...]]  # by node type: the counts of each part
    #: ``[part][other part]``, in-edges of the part from nodes of the other
    cut_pairs: tuple[tuple[int, ...], ...]
    #: the same for the distinct nodes that these edges come from
    halo_pairs: tuple[tuple[int, ...], ...]
    hosts: tuple[int, ...]  # the host of each part
    loads: tuple[Load, ...] = ()  # nodes, in-edges, splits and balanced weights, by type

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
        """Returns the largest count of a part over the mean; 1.0 is even. ``of``: "nodes", "edges",
        "train" or "halo". ``node_type``: counts only this type."""
        parts = self.parts if node_type is None else self.types[node_type]
        counts = [getattr(part, of) for part in parts]
        return max(counts) * len(counts) / sum(counts) if sum(counts) else 1.0

    def table(self) -> Table:
        """Returns a rich table of the parts, by node type if there are several."""
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
        return _justified(table, len(names))

    def balance_table(self) -> Table:
        """Returns a rich table of loads and limits, by node type if there are several."""
        several = len(self.types) > 1
        names = ("load", "type") if several else ("load",)
        table = Table(*names, "max / mean", "allowed", "fullest part", title="balance")
        for load in self.loads:
            first = (load.name, load.node_type) if several else (load.name,)
            allowed = "-" if load.slack is None else f"{load.slack:g}" + ("" if load.is_met else ", not met")
            table.add_row(*first, f"{load.balance:.3f}", allowed, str(load.fullest))
        return _justified(table, len(names))


def _justified(table: Table, names: int) -> Table:
    for column in table.columns[names:]:
        column.justify = "right"
    return table


def _shown(count: float) -> str:
    return f"{count:,}" if isinstance(count, int) else f"{count:,.4g}"


#: Nodes that are marked at a time, to count distinct ones, and edges read at a time.
_MARKS = 1 << 26
_EDGES = 1 << 22


def report_partition(
    parts: Part | Sequence[Part],
    comm: Communicator,
    hosts: int | None = None,
    policy: PolicyLike | None = None,
) -> PartitionReport:
    """Returns the counts of all parts, on every rank. Collective; only counts travel.

    >>> report_partition(part, comm).edge_cut  # of one part
    0.0

    ``parts``: this rank's part, or parts. ``hosts``: the number of hosts that get parts in order,
    as many each; None: the hosts of the ranks if there is a part per rank, else one. ``policy``:
    the policy that made the parts: its limits are compared, its weights counted.
    """
    mine = parts_of(parts)
    check_comm(comm)
    made_by = None if policy is None else as_policy(policy)
    slack = dict(made_by.balance) if isinstance(made_by, Balanced) else {}
    counted = {str(part.number): {**_count(part), "loads": sums_of(part, slack)} for part in mine}
    found = {int(number): counts for said in comm.all_gather_json(counted) for number, counts in said.items()}
    counts = [found[number] for number in sorted(found)]
    of_parts = comm.hosts if len(counts) == comm.size else [0] * len(counts)
    if hosts is not None:
        of_parts = [part * hosts // len(counts) for part in range(len(counts))]
    return PartitionReport(
        {name: tuple(PartCounts(*part["types"][name]) for part in counts) for name in counts[0]["types"]},
        tuple(tuple(part["cut"]) for part in counts),
        tuple(tuple(part["halo"]) for part in counts),
        tuple(of_parts),
        tuple(_loads([part["loads"] for part in counts], slack)),
    )


def _loads(
    parts: Sequence[Mapping[str, Mapping[str, Sequence[float]]]], slack: Mapping[str, float]
) -> Iterator[Load]:
    names = dict.fromkeys(name for part in parts for loads in part.values() for name in loads)
    for name in sorted(names, key=lambda name: USUAL.index(name) if name in USUAL else len(USUAL)):
        for node_type in parts[0]:
            found = [part[node_type].get(name, (0, 0)) for part in parts]
            sums, heaviest = zip(*found, strict=True)
            if any(sums):
                yield Load(name, node_type, sums, max(heaviest), slack.get(name))


def _count(part: Part) -> dict[str, Any]:
    """Returns the part's counts by node type, as for `PartCounts`; cut and halo by other part."""
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
    """Returns in-edges from other parts, and the distinct nodes that they come from, both [parts,
    types], by the part of the source. Edges count for the target's type, nodes for their own."""
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


_LEVEL, _TICK = 6, 0.45  # The most loads whose names are written level, and the inches of each.


def plot_partition(report: PartitionReport, path: Path) -> None:
    """Writes a picture: the balance of each load, the cut of each part, and the halo by pair of
    parts. ``path``: its ending says the format, such as .png."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # slow to import
    from matplotlib.figure import Figure

    wide = max(4.5, _TICK * len(report.loads))
    figure = Figure(figsize=(8.5 + wide, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    balance, cut, halo = figure.subplots(1, 3, width_ratios=(wide, 3.8, 4.2))
    _draw_balance(balance, report)
    shares = [part.cut / part.edges if part.edges else 0.0 for part in report.parts]
    cut.bar(range(len(shares)), shares)
    cut.set(xlabel="part", ylabel="share of its in-edges", title="cut", ylim=(0, None))
    shown = halo.imshow(report.halo_pairs, cmap="Blues")
    figure.colorbar(shown, ax=halo, label="halo nodes")
    halo.set(xlabel="part that owns them", ylabel="part that needs them", title="halo by pair of parts")
    if len(report.parts) <= 32:  # more do not fit beside the axes
        halo.set_xticks(range(len(report.parts)))
        halo.set_yticks(range(len(report.parts)))
    title = f"{len(report.parts)} parts, {report.edge_cut:.1%} of the edges cut"
    if len(set(report.hosts)) > 1:
        title += f", {report.host_cut:.1%} between hosts"
    figure.suptitle(title)
    figure.savefig(path, dpi=110)


def _draw_balance(axes: Axes, report: PartitionReport) -> None:
    halo = Load("halo", "", tuple(part.halo for part in report.parts), 1)
    loads, several = (*report.loads, halo), len(report.types) > 1
    for number, load in enumerate(loads):
        shares = [one / load.mean if load.mean else 1.0 for one in load.sums]
        axes.plot([number] * len(shares), shares, "o", alpha=0.5, color="C0" if load.is_met else "C3")
        if load.slack is not None:
            axes.plot([number - 0.35, number + 0.35], [load.slack] * 2, color="black", linewidth=1.2)
    axes.axhline(1.0, color="grey", linewidth=1)
    names = [f"{load.name}, {load.node_type}" if several and load.node_type else load.name for load in loads]
    upright = len(loads) > _LEVEL
    axes.set_xticks(
        range(len(loads)), names, rotation=60 if upright else 0, ha="right" if upright else "center"
    )
    title = "balance, one point per part"
    limits = any(load.slack is not None for load in loads)
    axes.set(ylabel="over the mean", title=f"{title}; black: allowed" if limits else title)
