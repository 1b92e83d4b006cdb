"""Predictions as Parquet files that name nodes by the keys of the tables they came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

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
from pyg_batchgnn.train.node_tasks import ClassTask, LabelTask, PredictedEdges, PredictedNodes
from pyg_batchgnn.train.tasks import NodeTask
from pyg_batchgnn.train.times import is_time
from pyg_batchgnn.types import Group, Relation, RowKind

PREDICTIONS = "predictions.parquet"  # the file name of predictions of nodes, edges and links
KEY_FILES = (".parquet", ".csv")  # the endings of files that name nodes by their keys
_TIME = "time"  # the attribute with the times in a data set that was made of tables
_ROWS = 1 << 17  # rows of a row group


@dataclass(frozen=True, eq=False)
class DatasetKeys:
    """The keys of the nodes of a run's data set, and how its times are written."""

    dataset: Dataset
    folder: FolderKeys | None  # the keys; None if the data set has none, and ids take their place
    time_attr: str  # the name of the attribute with the times of nodes

    @classmethod
    def of(cls, dataset: Dataset, config: TrainConfig) -> DatasetKeys:
        return cls(dataset, FolderKeys.of(config.run.dataset), config.sampling.time_attr or _TIME)

    @property
    def clock(self) -> Clock:
        return Clock() if self.folder is None else self.folder.clock

    def table(self, node_type: str) -> KeyTable:
        """Returns the keys of a node type; in a data set without keys they are the ids."""
        count = self.dataset.nodes_of(node_type).num_nodes
        return (
            KeyTable(node_type, count, None) if self.folder is None else self.folder.table(node_type, count)
        )

    def times(self, predicted: PredictedNodes) -> np.ndarray | None:
        """Returns [N] int64, the times of all predicted nodes or edges; None without times."""
        found = predicted.tables.get(self.time_attr)
        return None if found is None or not is_time(found) else found.reshape(-1).numpy()

    def read_nodes(self, file: Path, node_type: str) -> np.ndarray:
        return read_ids(file, [self.table(node_type)], [""])[0]

    def read_pairs(self, file: Path, links: PredictedLinks) -> np.ndarray:
        source, _, target = links.relation
        ends = read_ids(file, [self.table(source), self.table(target)], ["source_", "target_"])
        return np.stack(ends, axis=1)


def write_nodes(
    folder: Path, keys: DatasetKeys, predicted: PredictedNodes, task: NodeTask, has_embeddings: bool = False
) -> None:
    """Writes predictions.parquet from the arrays in ``folder``, one row per predicted node or edge.
    A node has its key; an edge the keys of both ends, and its id. ``has_embeddings``:
    embeddings.npy is there too. Raises `DatasetError` if the keys name too few classes."""
    (ids, (num_rows,)), node_type = _array(folder, f"{predicted.unit[:-1]}_ids"), predicted.node_type
    predictions, _ = _array(folder, "predictions")
    scores, shape = (
        _array(folder, "probabilities") if isinstance(task, (ClassTask, LabelTask)) else (None, ())
    )
    embeddings = _array(folder, "embeddings")[0] if has_embeddings else None
    group = predicted.edges.group if isinstance(predicted, PredictedEdges) else Group(RowKind.NODE, node_type)
    table, times, is_class = keys.table(node_type), keys.times(predicted), isinstance(task, ClassTask)
    classes = None if keys.folder is None or not is_class else keys.folder.classes(group)
    if classes is not None and len(classes) < shape[1]:
        raise DatasetError(
            f"{keys.dataset.name}: the keys name {len(classes)} classes of {str(group)!r}, but the model has "
            f"{shape[1]}; make the folder again"
        )
    ends = _keys_of_pairs(keys, predicted.relation) if isinstance(predicted, PredictedEdges) else None

    def columns(rows: slice) -> _Columns:
        some = ids(rows)
        found: dict[str, Any] = {} if times is None else {_TIME: keys.clock.column(times[some])}
        found |= _predicted(predictions(rows), task, classes)
        if scores is not None:
            found |= _split("score", scores(rows), classes)
        if embeddings is not None:
            found["embedding"] = _lists(embeddings(rows))
        if isinstance(predicted, PredictedEdges) and ends is not None:
            index = predicted.index[:, torch.from_numpy(some)].numpy()
            return ends(*index), {"edge_id": some, **found}
        return _named(table.take(some)), found

    _write(folder / PREDICTIONS, num_rows, columns)


def write_pairs(folder: Path, keys: DatasetKeys, links: PredictedLinks, at: int | None) -> None:
    """Writes predictions.parquet from the arrays in ``folder``: one row per scored pair, or per
    node and best partner. ``at``: the time of the scores, as a column; None writes none."""
    (scores, shape), ends = _array(folder, "scores"), _keys_of_pairs(keys, links.relation)
    pairs, partners, nodes = (
        _array(folder, name)[0] if (folder / f"{name}.npy").exists() else None
        for name in ("pairs", "partners", "node_ids")
    )
    top = 1 if len(shape) == 1 else shape[1]

    def columns(rows: slice) -> _Columns:
        score = scores(rows).reshape(-1)
        found = _moment(keys, at, len(score))
        if pairs is not None:
            return ends(*pairs(rows).T), {**found, "score": score}
        assert partners is not None and nodes is not None, "pairs or partners are written"
        some = nodes(rows)
        found["rank"] = np.tile(np.arange(1, top + 1, dtype=np.int32), len(some))
        return ends(np.repeat(some, top), partners(rows).reshape(-1)), {**found, "score": score}

    _write(folder / PREDICTIONS, shape[0], columns, per_row=top)


def write_embeddings(folder: Path, keys: DatasetKeys, node_type: str, at: int | None) -> None:
    """Writes TYPE.parquet, the embeddings of all nodes of a type, from TYPE.npy in ``folder``.
    ``at``: the time of the embeddings, as a column; None writes none."""
    name = group_folder(Group(RowKind.NODE, node_type))
    (rows_of, (num_rows, _)), table = _array(folder, name), keys.table(node_type)

    def columns(rows: slice) -> _Columns:
        found = rows_of(rows)
        ids = np.arange(rows.start, rows.start + len(found))
        return _named(table.take(ids)), {**_moment(keys, at, len(found)), "embedding": _lists(found)}

    _write(folder / f"{name}.parquet", num_rows, columns)


#: The columns of some rows of a file: first the keys, then the others.
_Columns: TypeAlias = tuple[dict[str, Any], dict[str, Any]]


def _array(folder: Path, name: str) -> tuple[Callable[[slice], np.ndarray], tuple[int, ...]]:
    """Returns a function that reads some rows of NAME.npy, and the array's shape."""

    def mapped() -> np.ndarray:
        array: np.ndarray = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return array

    return lambda rows: np.array(mapped()[rows]), mapped().shape


def _write(path: Path, num_rows: int, columns: Callable[[slice], _Columns], per_row: int = 1) -> None:
    """Writes a Parquet file, one row group at a time. ``columns``: gives the columns of some of the
    ``num_rows`` rows. A value column that is named as a key column gets an underscore. ``per_row``:
    rows of the file for each row of ``columns``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def group(begin: int) -> Any:
        own, others = columns(slice(begin, min(begin + size, num_rows)))
        return pa.table(own | {f"{name}_" if name in own else name: one for name, one in others.items()})

    size = max(1, _ROWS // per_row)
    with writing(path):
        first = group(0)
        with pq.ParquetWriter(path, first.schema) as file:
            file.write_table(first)
            for begin in range(size, num_rows, size):
                file.write_table(group(begin))


def _keys_of_pairs(
    keys: DatasetKeys, relation: Relation
) -> Callable[[np.ndarray, np.ndarray], dict[str, Any]]:
    """Returns a function from ids of sources and targets, [n] int64 each, to key columns."""
    tables = [keys.table(relation[end]) for end in (0, 2)]
    names = named_apart(tables, ["source_", "target_"])

    def of(*ends: np.ndarray) -> dict[str, Any]:
        return {
            by[name]: column
            for table, by, ids in zip(tables, names, ends, strict=True)
            for name, column in _named(table.take(np.asarray(ids))).items()
        }

    return of


def _named(table: Any) -> dict[str, Any]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _moment(keys: DatasetKeys, at: int | None, count: int) -> dict[str, Any]:
    return {} if at is None else {_TIME: keys.clock.column(np.full(count, at))}


def _predicted(predictions: np.ndarray, task: NodeTask, classes: list[Any] | None) -> dict[str, Any]:
    import pyarrow as pa

    if isinstance(task, ClassTask):
        is_large = any(isinstance(one, int) and one >= 2**63 for one in classes or ())
        values = None if classes is None else pa.array(classes, pa.uint64() if is_large else None)
        numbers = pa.array(predictions)
        return {"prediction": numbers if values is None else values.take(numbers)}
    if isinstance(task, LabelTask):
        predictions = predictions.astype(bool)
    return _split("prediction", predictions, None)


def _split(name: str, values: np.ndarray, classes: list[Any] | None) -> dict[str, Any]:
    if values.ndim == 1 or (values.shape[1] == 1 and classes is None):
        return {name: values.reshape(-1)}
    names = range(values.shape[1]) if classes is None else classes[: values.shape[1]]
    return {f"{name}_{of}": np.ascontiguousarray(values[:, at]) for at, of in enumerate(names)}


def _lists(rows: np.ndarray) -> Any:
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(np.asarray(rows).reshape(-1)), rows.shape[1])
