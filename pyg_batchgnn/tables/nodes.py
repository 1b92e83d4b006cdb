"""The nodes of a type: ids, keys, times, labels, splits and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyg_batchgnn.data import LABELS, SPLITS, Group, RowKind, attribute_array, group_folder, split_array
from pyg_batchgnn.data.files import Made, NpyAppender, write_json
from pyg_batchgnn.tables.description import EdgeTable, NodeTable
from pyg_batchgnn.tables.features import FeaturesOfRows
from pyg_batchgnn.tables.job import ROWS, TIME, ConversionJob, write_rows
from pyg_batchgnn.tables.join import KeyWriter, distinct_keys, repeated
from pyg_batchgnn.tables.rows import BadRows, LabelsOfRows, RowCheck, look_at, splits_of_rows
from pyg_batchgnn.tables.source import RawTable
from pyg_batchgnn.tables.values import is_uuid, uuid_texts


def make_nodes(job: ConversionJob, name: str) -> Made:
    if name not in job.spec.nodes:
        return _nodes_without_table(job, name)
    spec, table, group = job.spec.nodes[name], job.table_of(name), Group(RowKind.NODE, name)
    bad, checks = BadRows(table, spec), FeaturesOfRows(table, spec.features).checks()
    times, fitted = job.times_of(group, spec, table, checks), job.fitted_labels(group)
    labels = LabelsOfRows.wanted(spec.label, table, fitted)
    if labels is not None:
        checks.append(RowCheck(labels.spec.column, labels.parse))
    look_at(table, checks, spec.key, bad)
    _refuse_repeated(job, spec, table, bad)
    splits = splits_of_rows(spec, table, spec.key, times, job.unit, job.fitted is None)
    if labels is None and fitted is not None and splits is not None:  # what has no label is in no split
        splits[:] = -1
    kept = ~bad.is_bad
    files = [*_write_keys(job, group, spec, table, kept), *bad.write(job.bad_file(group))]
    if times is not None:
        files.append(write_rows(job.file(attribute_array(group, TIME)), times, kept))
    files += write_labels(job, group, labels or fitted, table, kept, splits)
    if splits is not None:
        splits[bad.is_bad] = -1
        files += _write_splits(job, group, splits[kept])
    if bad.is_bad.any():
        files.append(job.work(group, "bad"))
        np.save(files[-1], np.flatnonzero(bad.is_bad))
    counts, last = None, None
    if splits is not None:
        counts = {split: int((splits == code).sum()) for code, split in enumerate(SPLITS)}
        if times is not None and counts[SPLITS[0]]:
            last = int(times[splits == 0].max())
    facts = {
        "count": int(kept.sum()),
        "bad": dict(bad.reasons),
        "labels": fitted if labels is None else labels.to_json(),
        "splits": counts,
        "last_training_time": last,
    }
    return facts, files


def _nodes_without_table(job: ConversionJob, name: str) -> Made:
    """Gives ids to nodes of a type that only other tables name, by ascending key."""
    used: list[tuple[RawTable, Sequence[str]]] = []
    for relation, one in job.spec.relations().items():
        if isinstance(one, EdgeTable):
            table = job.table_of(relation)
            used += [(table, one.source)] * (relation[0] == name)
            used += [(table, one.target)] * (relation[2] == name)
        elif relation[2] == name:
            used.append((job.table_of(one[0]), one[1].columns))
    file = job.key_file(Group(RowKind.NODE, name))
    count = distinct_keys(job.engine, used, used[0][1], file)
    nothing: dict[str, Any] = {"labels": None, "splits": None, "last_training_time": None, "bad": {}}
    return {"count": count, **nothing}, [file]


def _refuse_repeated(job: ConversionJob, spec: NodeTable, table: RawTable, bad: BadRows) -> None:
    if not spec.key:
        return
    rows, first = repeated(job.engine, table, spec.key)
    good = ~bad.is_bad[rows]
    rows, first = rows[good], first[good]
    order = np.lexsort((rows, first))
    again = np.zeros(len(rows), np.bool_)
    again[1:] = first[order][1:] == first[order][:-1]
    bad.add(np.sort(rows[order][again]), list(spec.key), "is the key of an earlier row too")


def _write_keys(
    job: ConversionJob, group: Group, spec: NodeTable, table: RawTable, kept: np.ndarray
) -> list[Path]:
    import pyarrow as pa

    if not spec.key:
        return []
    file, kinds = job.key_file(group), {one: table.schema.field(one).type for one in spec.key}
    schema = pa.schema([(one, pa.string() if is_uuid(kind) else kind) for one, kind in kinds.items()])
    with KeyWriter(file, schema) as writer:
        for first, chunk in table.chunks(spec.key):
            here = kept[first : first + len(chunk)]
            chunk = chunk if here.all() else chunk.filter(pa.array(here))
            for at, (name, kind) in enumerate(kinds.items()):
                if is_uuid(kind):
                    chunk = chunk.set_column(at, name, uuid_texts(chunk.column(at).combine_chunks()))
            writer.append(chunk)
    return [file]


def write_labels(
    job: ConversionJob,
    group: Group,
    labels: LabelsOfRows | Mapping[str, Any] | None,
    table: RawTable,
    kept: np.ndarray,
    splits: np.ndarray | None,
) -> list[Path]:
    """Writes "y" of the rows ``kept``. Rows without a label get -1 in `splits`. ``labels``: the
    table's, or what a model knows about labels if the table has none."""
    file = job.file(attribute_array(group, LABELS))
    if not isinstance(labels, LabelsOfRows):
        if labels is None:
            return []
        # As a model that was trained with labels expects them of rows without.
        count = int(kept.sum())
        nothing = {"boolean": np.full((count, 1), -1, np.int8), "class": np.full(count, -1)}
        np.save(file, nothing.get(labels["kind"], np.full(count, np.nan, np.float32)))
        return [file, *_write_classes(job, group, labels)]
    with NpyAppender(file, *labels.form) as writer:
        for first, chunk in table.chunks([labels.spec.column]):
            here = slice(first, first + len(chunk))
            found = labels.parse(chunk.column(0))
            writer.append(labels.final(found)[kept[here]])
            if splits is not None:
                splits[here][found.missing] = -1
    return [file, *_write_classes(job, group, labels.to_json())]


def _write_classes(job: ConversionJob, group: Group, labels: Mapping[str, Any]) -> list[Path]:
    if labels["values"] is None:
        return []
    file = job.journal.folder / "keys" / f"{group_folder(group)}.classes.json"
    file.parent.mkdir(exist_ok=True)
    write_json(file, {"column": labels["column"], "values": labels["values"]})
    return [file]


def _write_splits(job: ConversionJob, group: Group, codes: np.ndarray) -> list[Path]:
    files = [job.work(group, "splits")]
    np.save(files[0], codes)
    for code, split in enumerate(SPLITS):
        files.append(job.file(split_array(group, split)))
        with NpyAppender(files[-1], np.int64) as writer:
            for at in range(0, len(codes), ROWS):
                writer.append(at + np.flatnonzero(codes[at : at + (ROWS)] == code))
    return files


def make_node_features(job: ConversionJob, name: str) -> Made:
    kept, features = job.kept_rows(name), FeaturesOfRows(job.table_of(name), job.spec.nodes[name].features)
    training = kept.copy()
    training[kept] = _training_nodes(job, name)
    return job.write_features(Group(RowKind.NODE, name), features, kept, training)


def _training_nodes(job: ConversionJob, name: str) -> np.ndarray:
    group, count = Group(RowKind.NODE, name), job.facts[f"nodes {name}"]["count"]
    if job.facts[f"nodes {name}"]["splits"] is not None:
        return np.asarray(np.load(job.work(group, "splits")) == 0)
    last = job.last_training_time()
    if last is None or job.spec.nodes[name].time is None:
        return np.ones(count, np.bool_)
    return np.asarray(np.load(job.file(attribute_array(group, TIME)), mmap_mode="r") <= last)
