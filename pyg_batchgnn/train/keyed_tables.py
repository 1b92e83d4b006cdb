"""Predictions as Parquet files with the keys of the nodes, of a data set that was made of tables.

A file is written one row group at a time, from the arrays of the predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyg_batchgnn.data import (
    Clock,
    Dataset,
    DatasetError,
    FolderKeys,
    KeyTable,
    group_folder,
    named_apart,
    read_ids,
)
from pyg_batchgnn.data.files import writing
from pyg_batchgnn.train.config.train_config import TrainConfig
from pyg_batchgnn.train.link_tasks import PredictedLinks
from pyg_batchgnn.train.node_tasks import ClassTask, LabelTask
from pyg_batchgnn.train.tasks import NodeTask
from pyg_batchgnn.train.times import is_time
from pyg_batchgnn.types import Group, RowKind

#: The file of predictions of nodes and of links.
PREDICTIONS = "predictions.parquet"
#: The endings of files that name nodes by their keys.
KEY_FILES = (".parquet", ".csv")
#: The attribute with the times of a data set that was made of tables.
_TIME = "time"
#: Rows of a row group.
_ROWS = 1 << 17

# Keys #############################################################################################


@dataclass(frozen=True, eq=False)
class DatasetKeys:
    """The keys of the nodes of a run's data set, and the meaning of its times."""

    dataset: Dataset  # the data set
    folder: FolderKeys | None  # the folder of the keys; None if it has none, and nodes go by their ids
    time_attr: str  # the attribute that holds the times of nodes

    @classmethod
    def of(cls, dataset: Dataset, config: TrainConfig) -> DatasetKeys:
        """Returns the keys of the data set that a run names."""
        return cls(dataset, FolderKeys.of(config.run.dataset), config.sampling.time_attr or _TIME)

    @property
    def clock(self) -> Clock:
        """The meaning of the times."""
        return Clock() if self.folder is None else self.folder.clock

    def table(self, node_type: str) -> KeyTable:
        """Returns the keys of a type. Those of a data set without keys are positions."""
        count = self.dataset.nodes_of(node_type).num_nodes
        return (
            KeyTable(node_type, count, None) if self.folder is None else self.folder.table(node_type, count)
        )

    def times(self, node_type: str) -> np.ndarray | None:
        """Returns [N] int64, the times of the nodes of a type, or None if they have none."""
        found = self.dataset.nodes_of(node_type).tables.get(self.time_attr)
        return None if found is None or not is_time(found) else found.reshape(-1).numpy()

    def read_nodes(self, file: Path, node_type: str) -> np.ndarray:
        """Returns [n] int64, the ids of the nodes that a file names by their keys."""
        return read_ids(file, [self.table(node_type)], [""])[0]

    def read_pairs(self, file: Path, links: PredictedLinks) -> np.ndarray:
        """Returns [P, 2] int64, the ids of the sources and targets that a file names."""
        source, _, target = links.relation
        ends = read_ids(file, [self.table(source), self.table(target)], ["source_", "target_"])
        return np.stack(ends, axis=1)


# Files ############################################################################################


def write_nodes(
    folder: Path, keys: DatasetKeys, node_type: str, task: NodeTask, has_embeddings: bool = False
) -> None:
    """Writes the predictions of nodes that lie in a folder as arrays."""
    ids, predictions = _array(folder, "node_ids"), _array(folder, "predictions")
    scores = _array(folder, "probabilities") if isinstance(task, (ClassTask, LabelTask)) else None
    embeddings = _array(folder, "embeddings") if has_embeddings else None
    table, times, is_class = keys.table(node_type), keys.times(node_type), isinstance(task, ClassTask)
    classes = None if keys.folder is None or not is_class else keys.folder.classes(node_type)
    if classes is not None and scores is not None and len(classes) < scores.shape[1]:
        raise DatasetError(
            f"{keys.dataset.name}: the keys name {len(classes)} classes of {node_type!r}, but the model has "
            f"{scores.shape[1]}; make the folder again"
        )

    def columns(rows: slice) -> _Columns:
        some = ids[rows]
        found: dict[str, Any] = {} if times is None else {_TIME: keys.clock.column(times[some])}
        found |= _predicted(predictions[rows], task, classes)
        if scores is not None:
            found |= _split("score", scores[rows], classes)
        if embeddings is not None:
            found["embedding"] = _lists(embeddings[rows])
        return _Columns(_named(table.take(some)), found)

    _write(folder / PREDICTIONS, len(ids), columns)


def write_pairs(folder: Path, keys: DatasetKeys, links: PredictedLinks, at: int | None) -> None:
    """Writes the scores of pairs that lie in a folder as arrays."""
    pairs, scores = _array(folder, "pairs"), _array(folder, "scores")
    ends = _PairKeys.named(keys, links)

    def columns(rows: slice) -> _Columns:
        some = pairs[rows]
        found = {**_moment(keys, at, len(some)), "score": scores[rows]}
        return _Columns(ends.of(some[:, 0], some[:, 1]), found)

    _write(folder / PREDICTIONS, len(pairs), columns)


def write_partners(folder: Path, keys: DatasetKeys, links: PredictedLinks, at: int | None) -> None:
    """Writes the best partners of nodes that lie in a folder as arrays, a row for each partner."""
    ids, partners, scores = (_array(folder, name) for name in ("node_ids", "partners", "scores"))
    ends, top = _PairKeys.named(keys, links), partners.shape[1]

    def columns(rows: slice) -> _Columns:
        count = len(ids[rows])
        found = {
            **_moment(keys, at, count * top),
            "rank": np.tile(np.arange(1, top + 1, dtype=np.int32), count),
            "score": scores[rows].reshape(-1),
        }
        return _Columns(ends.of(np.repeat(ids[rows], top), partners[rows].reshape(-1)), found)

    _write(folder / PREDICTIONS, len(ids), columns, per_row=top)


def write_embeddings(folder: Path, keys: DatasetKeys, node_type: str, at: int | None) -> None:
    """Writes the embeddings of all nodes of a type from an array. ``at``: as of `write_pairs`."""
    name = group_folder(Group(RowKind.NODE, node_type))
    rows_of, table = _array(folder, name), keys.table(node_type)

    def columns(rows: slice) -> _Columns:
        found = rows_of[rows]
        ids = np.arange(rows.start, rows.start + len(found))
        return _Columns(
            _named(table.take(ids)), {**_moment(keys, at, len(found)), "embedding": _lists(found)}
        )

    _write(folder / f"{name}.parquet", len(rows_of), columns)


class _ArrayRows:
    """The rows of a .npy file. No more than are asked for are in memory at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.shape = self._mapped().shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        return np.array(self._mapped()[rows])

    def _mapped(self) -> np.ndarray:
        array: np.ndarray = np.load(self._path, mmap_mode="r", allow_pickle=False)
        return array


def _array(folder: Path, name: str) -> _ArrayRows:
    return _ArrayRows(folder / f"{name}.npy")


def _write(path: Path, num_rows: int, columns: Callable[[slice], _Columns], per_row: int = 1) -> None:
    """Writes a file of some rows, one row group after the other."""
    import pyarrow.parquet as pq

    size = max(1, _ROWS // per_row)
    with writing(path):
        first = columns(slice(0, min(size, num_rows))).table()
        with pq.ParquetWriter(path, first.schema) as file:
            file.write_table(first)
            for begin in range(size, num_rows, size):
                file.write_table(columns(slice(begin, min(begin + size, num_rows))).table())


# Columns ##########################################################################################


@dataclass(frozen=True, eq=False)
class _Columns:
    """The columns of some rows of a file."""

    keys: dict[str, Any]  # those of the keys, by name
    others: dict[str, Any]  # those behind them. One that has the name of a key gets an underscore.

    def table(self) -> Any:
        import pyarrow as pa

        others = {f"{name}_" if name in self.keys else name: one for name, one in self.others.items()}
        return pa.table({**self.keys, **others})


@dataclass(frozen=True, eq=False)
class _PairKeys:
    """The keys of the ends of pairs, and the names of their columns."""

    tables: tuple[KeyTable, KeyTable]
    names: list[dict[str, str]]

    @classmethod
    def named(cls, keys: DatasetKeys, links: PredictedLinks) -> _PairKeys:
        source, _, target = links.relation
        tables = keys.table(source), keys.table(target)
        return cls(tables, named_apart(tables, ["source_", "target_"]))

    def of(self, sources: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
        """Returns the key columns of pairs of ids, [n] int64 each."""
        return {
            names[name]: column
            for table, names, ids in zip(self.tables, self.names, (sources, targets), strict=True)
            for name, column in _named(table.take(np.asarray(ids))).items()
        }


def _named(table: Any) -> dict[str, Any]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _moment(keys: DatasetKeys, at: int | None, count: int) -> dict[str, Any]:
    """Returns the column of one time for all rows; none without a time."""
    return {} if at is None else {_TIME: keys.clock.column(np.full(count, at))}


def _predicted(predictions: np.ndarray, task: NodeTask, classes: list[Any] | None) -> dict[str, Any]:
    """Returns the columns of what was predicted: classes by their values, labels as booleans."""
    import pyarrow as pa

    if isinstance(task, ClassTask):
        numbers = pa.array(predictions)
        return {"prediction": numbers if classes is None else _values_of(classes).take(numbers)}
    if isinstance(task, LabelTask):
        predictions = predictions.astype(bool)
    return _split("prediction", predictions, None)


def _values_of(classes: list[Any]) -> Any:
    """Returns the values of classes as an Arrow array; those beyond int64 are uint64."""
    import pyarrow as pa

    is_large = any(isinstance(one, int) and one >= 2**63 for one in classes)
    return pa.array(classes, pa.uint64() if is_large else None)


def _split(name: str, values: np.ndarray, classes: list[Any] | None) -> dict[str, Any]:
    """Returns a column for each class or label of values [n] or [n, C]; one alone has no suffix."""
    if values.ndim == 1 or (values.shape[1] == 1 and classes is None):
        return {name: values.reshape(-1)}
    names = range(values.shape[1]) if classes is None else classes[: values.shape[1]]
    return {f"{name}_{of}": np.ascontiguousarray(values[:, at]) for at, of in enumerate(names)}


def _lists(rows: np.ndarray) -> Any:
    """Returns rows [n, columns] as an Arrow array of lists of a fixed size."""
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(np.asarray(rows).reshape(-1)), rows.shape[1])
