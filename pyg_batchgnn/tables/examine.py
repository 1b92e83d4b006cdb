"""A report on tables before they are converted: bad rows, labels, times, degrees and memory."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pyg_batchgnn.data import LABELS, SPLITS, Dataset, EdgeSet, NodeSet, Relation, open_folder
from pyg_batchgnn.data.files import read_json
from pyg_batchgnn.tables.conversion import TABLES_FILE, Conversion, convert
from pyg_batchgnn.tables.description import GraphDescription
from pyg_batchgnn.tables.job import TIME

if TYPE_CHECKING:
    from rich.table import Table

_PIECE = 1 << 22
_SHOWN = 8  # classes that are shown with their counts


@dataclass(frozen=True)
class TableCheck:
    """What `check` found in the tables of a graph."""

    #: by node type or relation, as a text: how many rows are bad, by reason. Conversion sets them
    #: aside, or fails.
    bad: Mapping[str, Mapping[str, int]]
    #: by type, as texts: number of nodes, columns of features, splits, labels
    nodes: Mapping[str, tuple[str, str, str, str]]
    #: by relation, as texts: number of edges, degrees, times, edges out of time
    edges: Mapping[Relation, tuple[str, str, str, str]]
    nbytes: int  # the bytes of all arrays of the data folder
    #: bytes of memory that training takes for the data: the arrays, and the edges once more by
    #: destination, with their order by time. Model, minibatches and learned rows are extra.
    training_bytes: int
    notes: tuple[str, ...] = ()  # what to think of before training

    def tables(self) -> list[Table]:
        """Returns the report as rich tables."""
        from rich.table import Table

        found = []
        bad = [
            (name, f"{count:,}", reason)
            for name, reasons in self.bad.items()
            for reason, count in reasons.items()
        ]
        for title, names, rows in (
            ("Bad rows", ("table", "rows", "reason"), bad or [("all", "0", "")]),
            (
                "Nodes",
                ("type", "nodes", "features", "splits", "labels"),
                [(k, *v) for k, v in self.nodes.items()],
            ),
            (
                "Edges",
                ("relation", "edges", "in-degree, mean and most", "times", "out of time"),
                [("-".join(k), *v) for k, v in self.edges.items()],
            ),
        ):
            table = Table(title=title, title_justify="left")
            for name in names:
                table.add_column(name, overflow="fold")
            for row in rows:
                table.add_row(*row)
            found.append(table)
        return found


def check(
    description: GraphDescription, *, memory_limit: int | None = None, threads: int | None = None
) -> TableCheck:
    """Converts tables to a temporary folder, and reports what was found.

    >>> check(GraphDescription.read("shop")).bad
    {}

    Bad rows of all tables are counted, even if they are an error. ``memory_limit``, ``threads``: as
    for `convert`. Raises `DatasetError` if anything but a row is wrong.
    """
    lenient = replace(
        description,
        nodes={name: replace(one, on_bad_rows="set aside") for name, one in description.nodes.items()},
        edges={name: replace(one, on_bad_rows="set aside") for name, one in description.edges.items()},
    )
    with tempfile.TemporaryDirectory(prefix="batchgnn-") as work:
        made = convert(lenient, Path(work) / "data", memory_limit=memory_limit, threads=threads)
        by_time = f"the split is by time: train with --time-attr {TIME}, or later edges are seen too"
        return _examined(made, (by_time,) if "--time-attr" in made.training else ())


def _examined(made: Conversion, notes: tuple[str, ...]) -> TableCheck:
    dataset = open_folder(made.folder)
    labels = read_json(made.folder / TABLES_FILE)["labels"]
    nbytes = sum(path.stat().st_size for path in made.folder.rglob("*.npy"))
    units = made.folder / "keys" / "times.json"
    unit = read_json(units)["unit"] if units.is_file() else None
    last = _last_seed(dataset)
    return TableCheck(
        made.bad,
        {one.name: _of_nodes(one, labels.get(one.name)) for one in dataset.node_sets},
        {one.relation: _of_edges(dataset, one, unit, last) for one in dataset.edge_sets},
        nbytes,
        nbytes + sum(_held_bytes(dataset, one) for one in dataset.edge_sets),
        notes,
    )


def _held_bytes(dataset: Dataset, edges: EdgeSet) -> int:
    """Returns the bytes of a relation's edges by destination: indptr, sources, ids, and the times
    in order with their positions."""
    source, _, target = edges.relation
    wide = 8 if max(edges.num_edges, dataset.nodes_of(source).num_nodes) >= 1 << 31 else 4
    is_timed = TIME in edges.tables or TIME in dataset.nodes_of(source).tables
    each = 2 * wide + (8 + wide if is_timed else 0)
    return 8 * (dataset.nodes_of(target).num_nodes + 1) + each * edges.num_edges


def _of_nodes(nodes: NodeSet, labels: dict[str, Any] | None) -> tuple[str, str, str, str]:
    x = nodes.tables.get("x")
    columns = "none: learned" if x is None else f"{x.shape[1]} columns"
    splits = ", ".join(f"{name} {len(nodes.splits[name]):,}" for name in SPLITS if name in nodes.splits)
    return f"{nodes.num_nodes:,}", columns, splits or "none", _balance(nodes, labels)


def _balance(nodes: NodeSet, labels: dict[str, Any] | None) -> str:
    """Returns a text: the share of each class, the share of true labels, or the mean of values."""
    if labels is None:
        return "none"
    y = nodes.tables[LABELS].numpy()
    if labels["kind"] == "boolean":
        return f"{labels['column']}: {100 * float(y.mean()) if len(y) else 0:.2f} % true"
    if labels["kind"] == "value":
        known = y[~np.isnan(y)]
        return (
            f"{labels['column']}: mean {known.mean():.4g}, {len(y) - len(known):,} missing"
            if len(known)
            else "none"
        )
    counts = np.bincount(y[y >= 0], minlength=1)
    names = labels["values"] or range(len(counts))
    most = sorted(zip(counts.tolist(), names, strict=False), key=lambda one: (-one[0], str(one[1])))
    shown = [f"{name} {100 * count / max(int(counts.sum()), 1):.1f} %" for count, name in most[:_SHOWN]]
    more = f" and {len(most) - _SHOWN} more" if len(most) > _SHOWN else ""
    missing = int((y < 0).sum())
    return f"{labels['column']}: {', '.join(shown)}{more}{f'; {missing:,} missing' if missing else ''}"


def _of_edges(
    dataset: Dataset, edges: EdgeSet, unit: str | None, last: int | None
) -> tuple[str, str, str, str]:
    ends = [dataset.nodes_of(name) for name in (edges.relation[0], edges.relation[2])]
    targets = ends[1].num_nodes
    degree = np.zeros(targets, np.int64)
    for at in range(0, edges.num_edges, _PIECE):
        degree += np.bincount(edges.edge_index[1, at : at + _PIECE].numpy(), minlength=targets)
    degrees = f"{degree.mean():.1f}, {degree.max():,}" if targets else "none"
    count = f"{edges.num_edges:,}"
    if TIME not in edges.tables or not edges.num_edges:
        return count, degrees, "none", "none"
    times = edges.tables[TIME].numpy()
    bounds = np.asarray([times.min(), times.max()])
    if unit is not None:
        bounds = bounds.astype(f"datetime64[{unit}]").astype("datetime64[s]")
    early = np.zeros(edges.num_edges, np.bool_)
    for row, nodes in enumerate(ends):
        if TIME in nodes.tables:
            early |= nodes.tables[TIME][edges.edge_index[row].long()].numpy() > times
    late = 0 if last is None else int((times > last).sum())
    wrong = ((late, "later than the last seed"), (int(early.sum()), "before an end"))
    said = ", ".join(f"{number:,} {what}" for number, what in wrong if number)
    return count, degrees, " to ".join(map(str, bounds)), said or "none"


def _last_seed(dataset: Dataset) -> int | None:
    found = []
    for nodes in dataset.node_sets:
        if TIME in nodes.tables:
            found += [int(nodes.tables[TIME][one].max()) for one in nodes.splits.values() if len(one)]
    for edges in dataset.edge_sets:
        found += [
            int(one.tables[TIME].max()) for one in edges.links.values() if TIME in one.tables and len(one)
        ]
    return max(found, default=None)
