"""The edges of a relation, from an edge table or a foreign key, with attributes and links."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyg_batchgnn.data import (
    EDGE_FEATURES,
    EDGE_ID,
    SPLITS,
    Group,
    LinkArray,
    Relation,
    RowKind,
    attribute_array,
    edge_array,
    reverse_of,
    whole_below,
)
from pyg_batchgnn.data.files import EdgeAppender, Made
from pyg_batchgnn.tables.description import EdgeTable, ForeignKey
from pyg_batchgnn.tables.features import FeaturesOfRows
from pyg_batchgnn.tables.job import ROWS, TIME, ConversionJob, write_rows
from pyg_batchgnn.tables.join import IdFile, match, match_rows
from pyg_batchgnn.tables.nodes import write_labels
from pyg_batchgnn.tables.rows import BadRows, LabelsOfRows, RowCheck, look_at, splits_of_rows
from pyg_batchgnn.tables.source import RawTable, need
from pyg_batchgnn.tables.values import is_text, missing_in


def make_edges(job: ConversionJob, relation: Relation) -> Made:
    one, group = job.spec.relations()[relation], Group(RowKind.EDGE, relation)
    ends = [job.facts[f"nodes {end}"]["count"] for end in (relation[0], relation[2])]
    dtype = np.int32 if max(ends) < 2**31 else np.int64
    file = job.file(edge_array("edge_index", group))
    if not isinstance(one, EdgeTable):
        return _foreign_key_edges(job, group, one[0], one[1], dtype, file)
    table = job.table_of(relation)
    bad, features = BadRows(table, one), FeaturesOfRows(table, one.features)
    checks, fitted = features.checks(), job.fitted_labels(group)
    times, labels = job.times_of(group, one, table, checks), LabelsOfRows.wanted(one.label, table, fitted)
    if labels is not None:
        checks.append(RowCheck(labels.spec.column, labels.parse))
    look_at(table, checks, (), bad)
    ids = IdFile(job.work(group, "ids"), dtype, (2, table.rows))
    for at, (end, columns) in enumerate(((relation[0], one.source), (relation[2], one.target))):
        _match(job, end, table, columns, ids, at)
        _refuse_unmatched(job, end, table, columns, ids.values[at], bad)
    kept = ~bad.is_bad
    ends_of = tuple(dict.fromkeys([*one.source, *one.target]))
    codes = splits_of_rows(one, table, ends_of, times, job.unit, job.fitted is None)
    files = bad.write(job.bad_file(group))
    has_labels = (labels or fitted) is not None
    if labels is None and has_labels:  # what has no label is in no split
        codes = None
    files += write_labels(job, group, labels or fitted, table, kept, codes)
    counts, training = None, None
    if codes is not None and one.split is not None:
        codes[bad.is_bad] = -1
        counts = {split: int((codes == code).sum()) for code, split in enumerate(SPLITS)}
        files += _write_links(job, group, ids.values, codes, times, kept if has_labels else None)
        training = codes == 0
        # Sampling by time looks only back. Other sampling would see the links that are predicted,
        # as it may where their labels are.
        if not one.split.is_by_time and not has_labels:
            kept &= codes < 1
    if not kept.all():
        _write_pairs(file, ids.values, kept)
    ids.close()
    if kept.all():
        ids.path.rename(file)
    else:
        ids.path.unlink()
    files.append(file)
    if times is not None:
        files.append(write_rows(job.file(attribute_array(group, TIME)), times, kept))
    if training is None:
        last = job.last_training_time()
        training = kept if times is None or last is None else kept & (times <= last)
    found, more = job.write_features(group, features, kept, training)
    attributes = [column for column, spec in one.features.items() if spec.encoder == "ids"]
    attributes += [EDGE_FEATURES] * bool(found["columns"]) + [TIME] * (times is not None)
    said = fitted if labels is None else labels.to_json()
    facts = {"count": int(kept.sum()), "bad": dict(bad.reasons), "links": counts, "attributes": attributes}
    facts["labels"] = said
    return facts | found, files + more


def _foreign_key_edges(
    job: ConversionJob, group: Group, name: str, key: ForeignKey, dtype: type, file: Path
) -> Made:
    table, spec = job.table_of(name), job.spec.nodes[name]
    # Torn rows were counted with the nodes.
    bad, kept = BadRows(table, spec, with_torn=False), job.kept_rows(name)
    ids = IdFile(job.work(group, "ids"), dtype, (1, table.rows))
    _match(job, key.type, table, key.columns, ids, 0)
    of, reason = _ids_of_rows(kept), _no_key(job, key.type, table, key.columns)
    edges = 0
    with EdgeAppender(file, dtype) as writer:
        for first, chunk in table.chunks(list(key.columns)):
            here = slice(first, first + len(chunk))
            named, found = kept[here].copy(), ids.values[0, here]
            for column in key.columns:
                named &= ~missing_in(chunk.column(column))
            bad.add(first + np.flatnonzero(named & (found < 0)), key.columns, reason)
            named &= found >= 0
            writer.append(of[here][named], found[named])
            edges += int(named.sum())
    ids.close()
    ids.path.unlink()
    files = [file, *bad.write(job.bad_file(group))]
    nothing: dict[str, Any] = {"links": None, "states": {}, "columns": [], "attributes": [], "labels": None}
    return {"count": edges, "bad": dict(bad.reasons), **nothing}, files


def make_reverse(job: ConversionJob, relation: Relation) -> Made:
    """Writes the reverse of a relation: ends exchanged, attributes the same."""
    group, back = Group(RowKind.EDGE, relation), Group(RowKind.EDGE, reverse_of(relation))
    index = np.load(job.file(edge_array("edge_index", group)), mmap_mode="r")
    files = [job.file(edge_array("edge_index", back))]
    with EdgeAppender(files[0], index.dtype) as writer:
        for at in range(0, index.shape[1], ROWS):
            writer.append(index[1, at : at + ROWS], index[0, at : at + ROWS])
    for name in job.facts[f"edges {','.join(relation)}"]["attributes"]:
        files.append(job.file(attribute_array(back, name)))
        shutil.copyfile(job.file(attribute_array(group, name)), files[-1])
    return {"count": index.shape[1]}, files


def _match(
    job: ConversionJob, end: str, table: RawTable, columns: Sequence[str], ids: IdFile, at: int
) -> None:
    spec = job.spec.nodes.get(end)
    if spec is None or spec.key:
        match(job.engine, table, columns, job.key_file(Group(RowKind.NODE, end)), ids, at)
        return
    match_rows(job.engine, table, columns[0], _ids_of_rows(job.kept_rows(end)), ids, at)


def _refuse_unmatched(
    job: ConversionJob, end: str, table: RawTable, columns: Sequence[str], ids: np.ndarray, bad: BadRows
) -> None:
    if not any(bool((ids[at : at + ROWS] < 0).any()) for at in range(0, len(ids), ROWS)):
        return
    reason = _no_key(job, end, table, columns)
    for first, chunk in table.chunks(columns):
        lost = ids[first : first + len(chunk)] < 0
        missing = np.any([missing_in(chunk.column(column)) for column in columns], axis=0)
        bad.add(first + np.flatnonzero(lost & missing), columns, "is a key without a value")
        bad.add(first + np.flatnonzero(lost & ~missing), columns, reason)


def _no_key(job: ConversionJob, end: str, table: RawTable, columns: Sequence[str]) -> str:
    """Returns the reason for rows with a key that no node has; with a hint if types differ."""
    kinds = [table.schema.field(column).type for column in columns]
    spec = job.spec.nodes.get(end)
    own = [job.table_of(end).schema.field(one).type for one in spec.key] if spec else []
    found = f"is the key of no {end}"
    for kind, other in zip(kinds, own or kinds, strict=True):
        if is_text(kind) != is_text(other):
            return f"{found} (these are {kind}, those of {end} {other}: a text 007 is no number 7)"
        if need("pyarrow").types.is_floating(kind) and kind.bit_width < 64:
            return f"{found} ({kind} tells whole numbers apart below {whole_below(kind):,} alone)"
    return found


def _write_pairs(file: Path, ids: np.ndarray, wanted: np.ndarray) -> Path:
    with EdgeAppender(file, ids.dtype) as writer:
        for at in range(0, len(wanted), ROWS):
            part = slice(at, at + ROWS)
            writer.append(ids[0, part][wanted[part]], ids[1, part][wanted[part]])
    return file


def _write_links(
    job: ConversionJob,
    group: Group,
    ids: np.ndarray,
    codes: np.ndarray,
    times: np.ndarray | None,
    kept: np.ndarray | None,
) -> list[Path]:
    """Writes the links of each split. ``kept``: if links are edges: which rows are edges."""
    rows = {TIME: times, EDGE_ID: None if kept is None else _ids_of_rows(kept)}
    files = []
    for code, split in enumerate(SPLITS):
        file = job.file(str(LinkArray(group, split, "index")))
        files.append(_write_pairs(file, ids, codes == code))
        for name, values in rows.items():
            if values is not None:
                files.append(write_rows(job.file(str(LinkArray(group, split, name))), values, codes == code))
    return files


def _ids_of_rows(kept: np.ndarray) -> np.ndarray:
    """Returns the id of each row of a table, -1 for rows that are no nodes or edges."""
    return np.where(kept, np.cumsum(kept) - 1, -1)
