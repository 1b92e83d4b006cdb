"""One conversion: its description, its files, and the results of its steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pyg_batchgnn.data import (
    EDGE_FEATURES,
    FEATURES,
    DatasetError,
    Group,
    Relation,
    RowKind,
    attribute_array,
    group_folder,
)
from pyg_batchgnn.data.files import Journal, Made, NpyAppender, new_file
from pyg_batchgnn.tables.description import EdgeTable, GraphDescription, NodeTable
from pyg_batchgnn.tables.features import FeaturesOfRows
from pyg_batchgnn.tables.join import Engine
from pyg_batchgnn.tables.rows import RowCheck, times_of_rows
from pyg_batchgnn.tables.source import RawTable

TIME = "time"  # the attribute with times
ROWS = 1 << 22  # rows that are copied at a time


@dataclass
class ConversionJob:
    """All that the steps of one conversion share."""

    spec: GraphDescription  # the description
    journal: Journal  # the folder that is made, with its complete steps
    engine: Engine  # joins keys
    fitted: dict[str, Any] | None  # a model's `tables.json`; None: encoders are fitted here
    progress: Callable[[str], None]  # told the name of each step
    raw: dict[str, RawTable] = field(default_factory=dict)  # the tables by their names in errors
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)  # what each step found, by step
    unit: str | None = None  # of all times; None: plain integers, or no times

    def step(self, name: str, make: Callable[[], Made]) -> None:
        self.progress(name)
        self.facts[name] = self.journal.step(name, make)

    def file(self, array: str) -> Path:
        return new_file(self.journal.folder, array)

    def work(self, group: Group, name: str) -> Path:
        return new_file(self.journal.work, f"{group.kind.value}/{group_folder(group)}/{name}")

    def table_of(self, name: str | Relation) -> RawTable:
        return self.raw[f"[nodes.{name}]" if isinstance(name, str) else f'[edges."{",".join(name)}"]']

    def key_file(self, group: Group) -> Path:
        return self.journal.folder / "keys" / f"{group_folder(group)}.parquet"

    def kept_rows(self, name: str) -> np.ndarray:
        """Returns [rows] bool, which rows of a node table are nodes."""
        kept = np.ones(self.table_of(name).rows, np.bool_)
        file = self.work(Group(RowKind.NODE, name), "bad")
        if sum(self.facts[f"nodes {name}"]["bad"].values()) and file.is_file():
            kept[np.load(file)] = False
        return kept

    def labels(self) -> dict[Group, dict[str, Any]]:
        every = [(Group(RowKind.NODE, name), f"nodes {name}") for name in self.spec.types()]
        every += [(Group(RowKind.EDGE, one), f"edges {','.join(one)}") for one in self.spec.relations()]
        found = {group: self.facts[step]["labels"] for group, step in every}
        return {group: one for group, one in found.items() if one is not None}

    def fitted_labels(self, group: Group) -> dict[str, Any] | None:
        """Returns what a model knows about the labels of nodes or edges, or None."""
        found: dict[str, Any] = {} if self.fitted is None else self.fitted["labels"]
        return found.get(group.name if isinstance(group.name, str) else ",".join(group.name))

    def bad_file(self, group: Group) -> Path:
        return self.journal.folder / "bad_rows" / f"{group_folder(group)}.parquet"

    def last_training_time(self) -> int | None:
        steps = [facts for name, facts in self.facts.items() if name.startswith("nodes ")]
        times = [one["last_training_time"] for one in steps]
        return max((one for one in times if one is not None), default=None)

    def write_features(
        self, group: Group, features: FeaturesOfRows, kept: np.ndarray, training: np.ndarray
    ) -> tuple[dict[str, Any], list[Path]]:
        """Writes the features of the rows ``kept``, by a model's encoders, or by encoders fitted to
        the rows ``training``; both [rows] bool. Returns the encoders' states and the meanings of
        columns, and the files. Raises `DatasetError` if the model has other features."""
        kind, own = ("nodes", FEATURES) if group.is_node else ("edges", EDGE_FEATURES)
        if self.fitted is None:
            states = features.fit(training)
        else:
            name = group.name if isinstance(group.name, str) else ",".join(group.name)
            states = self.fitted["features"][kind].get(name, {"states": {}})["states"]
        if set(states) != set(features.spec):
            raise DatasetError(
                f"{features.table.where}: features: are {', '.join(features.spec)}, but fitted were "
                f"{', '.join(states) or 'none'}; describe the new tables like the old ones"
            )
        files = features.write(states, kept, lambda one: self.file(attribute_array(group, one)), own)
        return {"states": states, "columns": features.names(states)}, files

    def times_of(
        self, group: Group, spec: NodeTable | EdgeTable, table: RawTable, checks: list[RowCheck]
    ) -> np.ndarray | None:
        """Adds a check that reads the times to ``checks``. Returns the array that it fills, [rows]
        int64; None without times."""
        if spec.time is None:
            return None
        file = self.work(group, "times_of_rows")
        shape = (table.rows,)
        times: np.ndarray = (
            np.lib.format.open_memmap(file, "w+", np.int64, shape) if table.rows else np.zeros(0, np.int64)
        )
        checks.append(times_of_rows(table, spec.time, self.unit, times))
        return times


def write_rows(file: Path, values: np.ndarray, wanted: np.ndarray) -> Path:
    """Writes the rows of an array that are ``wanted``, [rows] bool."""
    with NpyAppender(file, values.dtype) as writer:
        for at in range(0, len(values), ROWS):
            part = slice(at, at + ROWS)
            writer.append(values[part][wanted[part]])
    return file
