"""Turns tables into a data folder, step by step and larger than memory."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from pyg_batchgnn import __version__
from pyg_batchgnn.data import (
    EDGE_FEATURES,
    FEATURES,
    LABELS,
    SPLITS,
    DatasetError,
    Group,
    LinkArray,
    Meta,
    Relation,
    RowKind,
    Schema,
    attribute_array,
    edge_array,
    group_folder,
    reverse_of,
    split_array,
    write_meta,
)
from pyg_batchgnn.data.files import EdgeAppender, NpyAppender, read_json, sync_tree, write_json
from pyg_batchgnn.tables.description import EdgeTable, ForeignKey, GraphDescription, NodeTable
from pyg_batchgnn.tables.features import FeaturesOfRows
from pyg_batchgnn.tables.join import (
    Engine,
    IdFile,
    KeyWriter,
    distinct_keys,
    match,
    repeated,
    stored_type,
)
from pyg_batchgnn.tables.journal import Journal, making
from pyg_batchgnn.tables.rows import (
    BadRows,
    LabelsOfRows,
    RowCheck,
    SplitOfRows,
    look_at,
    times_of_rows,
)
from pyg_batchgnn.tables.source import CHUNK, RawTable, expand, open_table, state_of
from pyg_batchgnn.tables.values import common_unit, is_uuid, missing_in, natural_unit, uuid_texts

#: What `tables.json` says it is.
FORMAT, VERSION, TABLES_FILE = "pyg_batchgnn.tables", 1, "tables.json"
#: Rows that are copied at a time.
_ROWS = 1 << 22
#: The attribute of times.
TIME = "time"
_DEFAULT_MEMORY, _LEAST_MEMORY = 4 << 30, 512 << 20


@dataclass(frozen=True)
class Conversion:
    """The result of a conversion.

    Attributes:
        folder: the data folder.
        nodes: the number of nodes by type.
        edges: the number of edges by relation.
        bad: how many rows of each table were set aside, by reason.
        training: the options of `batchgnn train` that name what is predicted.
    """

    folder: Path
    nodes: Mapping[str, int]
    edges: Mapping[Relation, int]
    bad: Mapping[str, Mapping[str, int]]
    training: str = ""


def convert(
    description: GraphDescription,
    folder: str | Path,
    *,
    memory_limit: int | None = None,
    threads: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Conversion:
    """Converts tables to a data folder, which `read_folder` reads.

    The same tables and the same description give the same bytes, whatever the threads and the
    memory. A conversion that was killed goes on after its last complete step when it is called
    again.

    Args:
        folder: the new folder.
        memory_limit: bytes for the whole process. None: 4 GiB, or half of the memory that is free
            if that is less. What does not fit goes to the disk.
        threads: of DuckDB. None: one per processor.
        progress: is called with the name of each step before it begins.

    Raises:
        DatasetError: a file or a row is wrong, the folder exists, or pyarrow or duckdb are not
            installed.
    """
    return _convert(description, folder, None, memory_limit, threads, progress)


def apply(
    model: str | Path,
    tables: str | Path | GraphDescription,
    folder: str | Path,
    *,
    memory_limit: int | None = None,
    threads: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Conversion:
    """Converts new tables with the encoders that were fitted to others.

    Columns of labels and of splits may be missing.

    Args:
        model: a data folder that `convert` made.
        tables: a description, its file, or a folder of tables with the names that the description
            of the model has.

    The others are those of `convert`.

    Raises:
        DatasetError: as `convert`, or the model's encoders are not those of the description.
    """
    file = Path(model).expanduser() / TABLES_FILE
    if not file.is_file():
        raise DatasetError(f"{file}: no such file; give a data folder that batchgnn tables convert wrote")
    fitted = read_json(file)
    if (fitted.get("format"), fitted.get("version")) != (FORMAT, VERSION):
        fact = (
            f"is {fitted.get('format')!r} {fitted.get('version')!r}, this release reads {FORMAT!r} {VERSION}"
        )
        raise DatasetError(f"{file}: format: {fact}; convert the tables again")
    if not isinstance(tables, GraphDescription):
        place = Path(tables).expanduser()
        if place.is_dir() and not (place / "graph.toml").is_file():
            tables = GraphDescription.from_dict(fitted["description"], place, str(file))
        else:
            tables = GraphDescription.read(place)
    return _convert(tables, folder, fitted, memory_limit, threads, progress)


def _convert(
    description: GraphDescription,
    folder: str | Path,
    fitted: dict[str, Any] | None,
    memory_limit: int | None,
    threads: int | None,
    progress: Callable[[str], None] | None,
) -> Conversion:
    limit = memory_limit or min(_DEFAULT_MEMORY, psutil.virtual_memory().available // 2)
    if limit < _LEAST_MEMORY:
        raise DatasetError(f"memory_limit: is {limit:,} bytes; give {_LEAST_MEMORY:,} or more")
    path = Path(folder).expanduser()
    states = [
        [where, [state_of(file) for file in expand(where, Path(description.folder), table.files)]]
        for where, table in _tables(description).items()
    ]
    made_of = {
        "version": __version__,
        "said": _as_json(description.to_dict()),
        "files": states,
        "fitted": fitted,
    }
    with making(path, made_of) as journal:
        engine = Engine(journal.work / "spilled", limit, threads or os.cpu_count() or 1)
        try:
            return _Job(description, journal, engine, fitted, progress or _silent).run()
        finally:
            engine.close()


def _tables(description: GraphDescription) -> dict[str, NodeTable | EdgeTable]:
    """Returns the tables by their names in errors."""
    return {
        **{f"[nodes.{name}]": table for name, table in description.nodes.items()},
        **{f'[edges."{",".join(relation)}"]': table for relation, table in description.edges.items()},
    }


@dataclass
class _Job:
    """One conversion."""

    said: GraphDescription
    journal: Journal
    engine: Engine
    fitted: dict[str, Any] | None
    progress: Callable[[str], None]
    raw: dict[str, RawTable] = field(default_factory=dict)  # by name in errors
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)  # of each step
    unit: str | None = None  # of all times

    def run(self) -> Conversion:
        for number, (where, table) in enumerate(_tables(self.said).items()):
            self.progress(f"open {where}")
            self.raw[where] = open_table(
                where, table, Path(self.said.folder), self.journal.work / "staged" / str(number)
            )
        if self.fitted is not None:
            self.said = _without_absent(self.said, self.raw)
        self._check_columns()
        self.unit = self._time_unit()
        for name in self.said.types():
            self._step(f"nodes {name}", functools.partial(self._nodes, name))
        for name, table in self.said.nodes.items():
            if table.features:
                self._step(f"features {name}", functools.partial(self._node_features, name))
        for relation in self.said.relations():
            shown = ",".join(relation)
            self._step(f"edges {shown}", functools.partial(self._edges, relation))
            if self.said.has_reverse(relation):
                self._step(f"reverse {shown}", functools.partial(self._reverse, relation))
        self.progress("finish")
        return self._finish()

    def _step(self, name: str, make: Callable[[], tuple[dict[str, Any], list[Path]]]) -> None:
        self.progress(name)
        self.facts[name] = self.journal.step(name, make)

    def _file(self, array: str) -> Path:
        file = self.journal.folder / f"{array}.npy"
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    def _work(self, group: Group, name: str) -> Path:
        file = self.journal.work / group.kind.value / group_folder(group) / f"{name}.npy"
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    # What the description says, held against the columns ##########################################

    def _check_columns(self) -> None:
        for relation, one in self.said.relations().items():
            if isinstance(one, EdgeTable):
                named = {"source": one.source, "target": one.target}
                table = self._table_of(relation)
            else:
                named, table = {f"foreign_keys.{relation[1]}": one[1].columns}, self._table_of(one[0])
            for key, columns in named.items():
                self._check_keys(table, key, columns)
        for name, said in self.said.nodes.items():
            self._check_keys(self._table_of(name), "key", said.key)

    def _check_keys(self, table: RawTable, key: str, columns: Sequence[str]) -> None:
        for column in columns:
            try:
                stored_type(table.type_of(column, key))
            except ValueError as error:
                if isinstance(error, DatasetError):
                    raise
                raise DatasetError(f"{table.where}: {key}: {column} {error}; choose other columns") from None

    def _table_of(self, name: str | Relation) -> RawTable:
        return self.raw[f"[nodes.{name}]" if isinstance(name, str) else f'[edges."{",".join(name)}"]']

    def _time_unit(self) -> str | None:
        units = {}
        for where, said in _tables(self.said).items():
            if said.time is not None:
                kind = self.raw[where].type_of(said.time.column, "time")
                units[f"{where}: time: {said.time.column}"] = natural_unit(kind, said.time)
        found = common_unit(units)
        if self.fitted is not None:
            return self.fitted["time_unit"]
        return found if found is None else self.said.options.time_unit or found

    # Nodes ########################################################################################

    def _nodes(self, name: str) -> tuple[dict[str, Any], list[Path]]:
        """Gives the nodes of a type their ids, and writes keys, times, labels and splits."""
        if name not in self.said.nodes:
            return self._nodes_without_table(name)
        said, table, group = self.said.nodes[name], self._table_of(name), Group(RowKind.NODE, name)
        bad, checks = BadRows(table, said), FeaturesOfRows(table, said.features).checks()
        times, labels = self._times(group, said, table, checks), None
        if said.label is not None:
            labels = self._labels(name, said, table)
            checks.append(RowCheck(said.label.column, labels.parse))
        look_at(table, checks, said.key, bad)
        self._refuse_repeated(said, table, bad)
        splits = self._splits(said, table, said.key, times)
        files = self._write_nodes(group, said, table, bad, times, labels, splits)
        known = None if labels is None else labels.to_json()
        if labels is None and self.fitted is not None and name in self.fitted["labels"]:
            known = self.fitted["labels"][name]
            files += self._write_no_labels(group, known, int(table.rows - bad.is_bad.sum()))
        files += bad.write(self.journal.folder / "bad_rows" / f"{group_folder(group)}.parquet")
        counts: dict[str, int] = {}
        last = None
        if splits is not None:
            for code, split in enumerate(SPLITS):
                rows = np.flatnonzero(splits == code)
                counts[split] = len(rows)
                if code == 0 and times is not None and len(rows):
                    last = int(times[rows].max())
        facts = {
            "count": int(table.rows - bad.is_bad.sum()),
            "bad": dict(bad.reasons),
            "labels": known,
            "splits": counts if splits is not None else None,
            "last_training_time": last,
        }
        return facts, files

    def _times(
        self, group: Group, said: NodeTable | EdgeTable, table: RawTable, checks: list[RowCheck]
    ) -> np.ndarray | None:
        """Adds the check that reads the times; returns where it writes them, [rows] int64."""
        if said.time is None:
            return None
        file = self._work(group, "times_of_rows")
        shape = (table.rows,)
        times: np.ndarray = (
            np.lib.format.open_memmap(file, "w+", np.int64, shape) if table.rows else np.zeros(0, np.int64)
        )
        checks.append(times_of_rows(table, said.time, self.unit, times))
        return times

    def _labels(self, name: str, said: NodeTable, table: RawTable) -> LabelsOfRows:
        assert said.label is not None
        known = None if self.fitted is None else self.fitted["labels"].get(name)
        if known is None:
            return LabelsOfRows.of(said.label, table)
        return LabelsOfRows(said.label, table, known["kind"], known["values"], known["count"])

    def _refuse_repeated(self, said: NodeTable, table: RawTable, bad: BadRows) -> None:
        if not said.key:
            return
        rows, first = repeated(self.engine, table, said.key)
        good = ~bad.is_bad[rows]
        rows, first = rows[good], first[good]
        order = np.lexsort((rows, first))
        again = np.zeros(len(rows), np.bool_)
        again[1:] = first[order][1:] == first[order][:-1]
        bad.add(np.sort(rows[order][again]), list(said.key), "is the key of an earlier row too")

    def _splits(
        self, said: NodeTable | EdgeTable, table: RawTable, keys: tuple[str, ...], times: np.ndarray | None
    ) -> np.ndarray | None:
        """Returns the number of each row's split, -1 in none; None where there are no splits."""
        if said.split is None:
            return None
        found = SplitOfRows(said.split, table, keys)
        if said.split.column is not None:
            table.type_of(said.split.column, "split")
        if said.split.is_by_time:
            assert times is not None and said.time is not None
            found.by_time(times, said.time, self.unit)
        else:
            found.by_columns()
        return found.codes

    def _write_nodes(
        self,
        group: Group,
        said: NodeTable,
        table: RawTable,
        bad: BadRows,
        times: np.ndarray | None,
        labels: LabelsOfRows | None,
        splits: np.ndarray | None,
    ) -> list[Path]:
        """Writes what belongs to the rows that are kept.

        Rows without a label get -1 in `splits`.
        """
        import pyarrow as pa

        files: list[Path] = []
        writers: dict[str, NpyAppender] = {}
        keys = None
        if said.key:
            schema = pa.schema([(one, stored_type(table.schema.field(one).type)) for one in said.key])
            files.append(self._key_file(group))
            keys = KeyWriter(files[-1], schema)
        if times is not None:
            files.append(self._file(attribute_array(group, TIME)))
            writers[TIME] = NpyAppender(files[-1], np.int64)
        columns = list(said.key) + ([labels.said.column] if labels is not None else [])
        y = None
        for first, chunk in table.chunks(columns) if columns else _empty_chunks(table.rows):
            here = slice(first, first + (len(chunk) if chunk is not None else min(CHUNK, table.rows - first)))
            kept = ~bad.is_bad[here]
            if keys is not None:
                keys.append(_key_columns(chunk.select(list(said.key)), kept))
            if times is not None:
                writers[TIME].append(times[here][kept])
            if labels is not None:
                found = labels.parse(chunk.column(labels.said.column))
                final = labels.final(found)
                if y is None:
                    files.append(self._file(attribute_array(group, LABELS)))
                    y = writers[LABELS] = NpyAppender(files[-1], final.dtype, final.shape[1:])
                y.append(final[kept])
                if splits is not None:
                    splits[here][found.missing] = -1
        if keys is not None:
            keys.close()
        for writer in writers.values():
            writer.__exit__(None, None, None)
        if splits is not None:
            splits[bad.is_bad] = -1
            files += self._write_splits(group, splits[~bad.is_bad])
        if bad.is_bad.any():
            files.append(self._work(group, "bad"))
            np.save(files[-1], np.flatnonzero(bad.is_bad))
        return files + ([] if labels is None else self._write_classes(group, labels.to_json()))

    def _write_classes(self, group: Group, labels: Mapping[str, Any]) -> list[Path]:
        if labels["values"] is None:
            return []
        file = self.journal.folder / "keys" / f"{group_folder(group)}.classes.json"
        file.parent.mkdir(exist_ok=True)
        write_json(file, {"column": labels["column"], "values": labels["values"]})
        return [file]

    def _write_no_labels(self, group: Group, labels: Mapping[str, Any], count: int) -> list[Path]:
        """Writes "y" of rows without labels, for a model that was trained with some."""
        file = self._file(attribute_array(group, LABELS))
        nothing = {"boolean": np.zeros((count, 1), np.bool_), "class": np.full(count, -1)}
        np.save(file, nothing.get(labels["kind"], np.full(count, np.nan, np.float32)))
        return [file, *self._write_classes(group, labels)]

    def _write_splits(self, group: Group, codes: np.ndarray) -> list[Path]:
        files = [self._work(group, "splits")]
        np.save(files[0], codes)
        for code, split in enumerate(SPLITS):
            file = self._file(split_array(group, split))
            with NpyAppender(file, np.int64) as writer:
                for at in range(0, len(codes), _ROWS):
                    writer.append(at + np.flatnonzero(codes[at : at + (_ROWS)] == code))
            files.append(file)
        return files

    def _key_file(self, group: Group) -> Path:
        return self.journal.folder / "keys" / f"{group_folder(group)}.parquet"

    def _nodes_without_table(self, name: str) -> tuple[dict[str, Any], list[Path]]:
        """Gives ids to a type that only other tables name: by ascending key."""
        used: list[tuple[RawTable, Sequence[str]]] = []
        for relation, one in self.said.relations().items():
            if isinstance(one, EdgeTable):
                table = self._table_of(relation)
                used += [(table, one.source)] * (relation[0] == name)
                used += [(table, one.target)] * (relation[2] == name)
            elif relation[2] == name:
                used.append((self._table_of(one[0]), one[1].columns))
        file = self._key_file(Group(RowKind.NODE, name))
        count = distinct_keys(self.engine, used, used[0][1], file)
        nothing: dict[str, Any] = {"labels": None, "splits": None, "last_training_time": None, "bad": {}}
        return {"count": count, **nothing}, [file]

    # Features #####################################################################################

    def _node_features(self, name: str) -> tuple[dict[str, Any], list[Path]]:
        said, table, group = self.said.nodes[name], self._table_of(name), Group(RowKind.NODE, name)
        kept = self._kept_rows(name)
        features = FeaturesOfRows(table, said.features)
        states = self._fitted("nodes", name, features)
        if states is None:
            training = self._training_nodes(name)
            rows = _spread(kept, training)
            states = features.fit(int(rows.sum()), lambda first, last: rows[first:last])
        files = features.write(
            states,
            lambda first, last: kept[first:last],
            lambda column: self._file(attribute_array(group, column)),
            FEATURES,
        )
        return {"states": states, "columns": features.names(states)}, files

    def _fitted(self, kind: str, name: str, features: FeaturesOfRows) -> dict[str, Any] | None:
        if self.fitted is None:
            return None
        known = self.fitted["features"][kind].get(name, {"states": {}})["states"]
        if set(known) != set(features.said):
            raise DatasetError(
                f"{features.table.where}: features: are {', '.join(features.said)}, but fitted were "
                f"{', '.join(known) or 'none'}; describe the new tables like the old ones"
            )
        return dict(known)

    def _training_nodes(self, name: str) -> np.ndarray:
        """Returns which nodes of a type are for fitting, [N] bool."""
        group, count = Group(RowKind.NODE, name), self.facts[f"nodes {name}"]["count"]
        if self.facts[f"nodes {name}"]["splits"] is not None:
            return np.asarray(np.load(self._work(group, "splits")) == 0)
        last = self._last_training_time()
        if last is None or self.said.nodes[name].time is None:
            return np.ones(count, np.bool_)
        return np.asarray(np.load(self._file(attribute_array(group, TIME)), mmap_mode="r") <= last)

    def _last_training_time(self) -> int | None:
        steps = [facts for name, facts in self.facts.items() if name.startswith("nodes ")]
        times = [one["last_training_time"] for one in steps]
        return max((one for one in times if one is not None), default=None)

    def _kept_rows(self, name: str) -> np.ndarray:
        """Returns which rows of a node table are nodes, [rows] bool."""
        kept = np.ones(self._table_of(name).rows, np.bool_)
        file = self._work(Group(RowKind.NODE, name), "bad")
        if sum(self.facts[f"nodes {name}"]["bad"].values()) and file.is_file():
            kept[np.load(file)] = False
        return kept

    # Edges ########################################################################################

    def _edges(self, relation: Relation) -> tuple[dict[str, Any], list[Path]]:
        """Writes the edges of a relation, with their attributes and links."""
        one, group = self.said.relations()[relation], Group(RowKind.EDGE, relation)
        ends = [self.facts[f"nodes {end}"]["count"] for end in (relation[0], relation[2])]
        dtype = np.int32 if max(ends) < 2**31 else np.int64
        file = self._file(edge_array("edge_index", group))
        if not isinstance(one, EdgeTable):
            return self._foreign_key_edges(group, one[0], one[1], dtype, file)
        table = self._table_of(relation)
        bad, features = BadRows(table, one), FeaturesOfRows(table, one.features)
        checks = features.checks()
        times = self._times(group, one, table, checks)
        look_at(table, checks, (), bad)
        ids = IdFile(self._work(group, "ids"), dtype, (2, table.rows))
        for at, (end, columns) in enumerate(((relation[0], one.source), (relation[2], one.target))):
            self._match(end, table, columns, ids, at)
            self._refuse_unmatched(end, table, columns, ids.values[at], bad)
        kept = ~bad.is_bad
        codes = self._splits(one, table, tuple(dict.fromkeys([*one.source, *one.target])), times)
        files = bad.write(self.journal.folder / "bad_rows" / f"{group_folder(group)}.parquet")
        counts = None
        training = None
        if codes is not None and one.split is not None:
            codes[bad.is_bad] = -1
            counts = {split: int((codes == code).sum()) for code, split in enumerate(SPLITS)}
            files += self._write_links(group, ids.values, codes, times)
            training = codes == 0
            if not one.split.is_by_time:  # sampling by time looks only back; other sampling would see them
                kept &= codes < 1
        files += self._write_edges(ids, kept, file)
        if times is not None:
            files.append(self._file(attribute_array(group, TIME)))
            _write_rows(files[-1], times, kept)
        states, columns_of = {}, []
        if one.features:
            fitted = self._fitted("edges", ",".join(relation), features)
            if fitted is None:
                rows = kept if training is None else training
                last = self._last_training_time()
                if training is None and times is not None and last is not None:
                    rows = kept & (times <= last)
                fitted = features.fit(int(rows.sum()), lambda first, end: rows[first:end])
            states, columns_of = fitted, features.names(fitted)
            files += features.write(
                states,
                lambda first, end: kept[first:end],
                lambda column: self._file(attribute_array(group, column)),
                EDGE_FEATURES,
            )
        facts = {
            "count": int(kept.sum()),
            "bad": dict(bad.reasons),
            "links": counts,
            "states": states,
            "columns": columns_of,
            "attributes": [
                *(column for column, said in one.features.items() if said.encoder == "ids"),
                *([EDGE_FEATURES] if columns_of else []),
                *([TIME] if times is not None else []),
            ],
        }
        return facts, files

    def _match(self, end: str, table: RawTable, columns: Sequence[str], ids: IdFile, at: int) -> None:
        """Writes the id of each row's end; -1 where it has none."""
        said = self.said.nodes.get(end)
        if said is None or said.key:
            match(self.engine, table, columns, self._key_file(Group(RowKind.NODE, end)), ids, at)
            return
        of = _ids_of_rows(self._kept_rows(end))
        for first, chunk in table.chunks(columns):
            found = chunk.column(0).cast("int64").fill_null(-1).to_numpy()
            inside = (found >= 0) & (found < len(of))
            ids.put(at, first + np.arange(len(found)), np.where(inside, of[np.where(inside, found, 0)], -1))

    def _refuse_unmatched(
        self, end: str, table: RawTable, columns: Sequence[str], ids: np.ndarray, bad: BadRows
    ) -> None:
        if not any(bool((ids[at : at + _ROWS] < 0).any()) for at in range(0, len(ids), _ROWS)):
            return
        for first, chunk in table.chunks(columns):
            lost = ids[first : first + len(chunk)] < 0
            missing = np.any([missing_in(chunk.column(column)) for column in columns], axis=0)
            bad.add(first + np.flatnonzero(lost & missing), columns, "is a key without a value")
            bad.add(first + np.flatnonzero(lost & ~missing), columns, f"is the key of no {end}")

    def _write_edges(self, ids: IdFile, kept: np.ndarray, file: Path) -> list[Path]:
        if kept.all():
            ids.close()
            ids.path.rename(file)
            return [file]
        with EdgeAppender(file, ids.values.dtype) as writer:
            for at in range(0, len(kept), _ROWS):
                part = slice(at, at + (_ROWS))
                writer.append(ids.values[0, part][kept[part]], ids.values[1, part][kept[part]])
        ids.close()
        ids.path.unlink()
        return [file]

    def _write_links(
        self, group: Group, ids: np.ndarray, codes: np.ndarray, times: np.ndarray | None
    ) -> list[Path]:
        files = []
        for code, split in enumerate(SPLITS):
            files.append(self._file(str(LinkArray(group, split, "index"))))
            wanted = codes == code
            with EdgeAppender(files[-1], ids.dtype) as writer:
                for at in range(0, len(codes), _ROWS):
                    part = slice(at, at + (_ROWS))
                    writer.append(ids[0, part][wanted[part]], ids[1, part][wanted[part]])
            if times is not None:
                files.append(self._file(str(LinkArray(group, split, TIME))))
                _write_rows(files[-1], times, wanted)
        return files

    def _foreign_key_edges(
        self, group: Group, name: str, key: ForeignKey, dtype: type, file: Path
    ) -> tuple[dict[str, Any], list[Path]]:
        """Writes the edges from the rows of a table to those that a foreign key names."""
        table, said = self._table_of(name), self.said.nodes[name]
        # Torn rows were counted with the nodes.
        bad, kept = BadRows(replace(table, torn=()), said), self._kept_rows(name)
        ids = IdFile(self._work(group, "ids"), dtype, (1, table.rows))
        self._match(key.type, table, key.columns, ids, 0)
        of = _ids_of_rows(kept)
        edges = 0
        with EdgeAppender(file, dtype) as writer:
            for first, chunk in table.chunks(list(key.columns)):
                here = slice(first, first + len(chunk))
                named, found = kept[here].copy(), ids.values[0, here]
                for column in key.columns:
                    named &= ~missing_in(chunk.column(column))
                bad.add(
                    first + np.flatnonzero(named & (found < 0)), key.columns, f"is the key of no {key.type}"
                )
                named &= found >= 0
                writer.append(of[here][named], found[named])
                edges += int(named.sum())
        ids.close()
        ids.path.unlink()
        files = [file, *bad.write(self.journal.folder / "bad_rows" / f"{group_folder(group)}.parquet")]
        nothing: dict[str, Any] = {"links": None, "states": {}, "columns": [], "attributes": []}
        return {"count": edges, "bad": dict(bad.reasons), **nothing}, files

    def _reverse(self, relation: Relation) -> tuple[dict[str, Any], list[Path]]:
        """Writes the reverse of a relation: the ends exchanged, and the same attributes."""
        group, back = Group(RowKind.EDGE, relation), Group(RowKind.EDGE, reverse_of(relation))
        index = np.load(self._file(edge_array("edge_index", group)), mmap_mode="r")
        files = [self._file(edge_array("edge_index", back))]
        with EdgeAppender(files[0], index.dtype) as writer:
            for at in range(0, index.shape[1], _ROWS):
                writer.append(index[1, at : at + (_ROWS)], index[0, at : at + (_ROWS)])
        for name in self.facts[f"edges {','.join(relation)}"]["attributes"]:
            files.append(self._file(attribute_array(back, name)))
            shutil.copyfile(self._file(attribute_array(group, name)), files[-1])
        return {"count": index.shape[1]}, files

    # The end ######################################################################################

    def _finish(self) -> Conversion:
        types, relations = self.said.types(), list(self.said.relations())
        relations += [reverse_of(one) for one in relations if self.said.has_reverse(one)]
        nodes = {name: self.facts[f"nodes {name}"]["count"] for name in types}
        has_names = (types, relations) != (["node"], [("node", "to", "node")])
        classes = {}
        for name in types:
            labels = self.facts[f"nodes {name}"]["labels"]
            classes[name] = 0 if labels is None else labels["count"]
        name = self.said.options.name or Path(self.said.folder).resolve().name
        source = f"Converted from tables by pyg_batchgnn {__version__}."
        folder = self.journal.folder
        schema = Schema(tuple(types), tuple(relations), has_names)
        fitted = self._write_tables_file()
        origin = {"fitted": fitted}
        write_meta(folder, Meta(name, source, schema, nodes, classes, self.journal.promises, origin))
        if any(table.time is not None for table in _tables(self.said).values()):
            (folder / "keys").mkdir(exist_ok=True)
            zone = None if self.unit is None else "UTC"
            write_json(folder / "keys" / "times.json", {"unit": self.unit, "timezone": zone})
        sync_tree(folder)
        self.journal.finish()
        edges = {one: self.facts[f"edges {','.join(one)}"]["count"] for one in self.said.relations()}
        bad = {step.partition(" ")[2]: facts["bad"] for step, facts in self.facts.items() if facts.get("bad")}
        return Conversion(self.journal.path, nodes, edges, bad, training_options(self.said))

    def _write_tables_file(self) -> str:
        """Writes `tables.json`. Returns a digest of what was fitted."""
        fitted: dict[str, dict[str, Any]] = {"nodes": {}, "edges": {}}
        for step, facts in self.facts.items():
            kind, _, name = step.partition(" ")
            if kind in ("features", "edges") and facts["states"]:
                where = "nodes" if kind == "features" else "edges"
                fitted[where][name] = {"states": facts["states"], "columns": facts["columns"]}
        found = {name: self.facts[f"nodes {name}"]["labels"] for name in self.said.types()}
        labels = {name: one for name, one in found.items() if one is not None}
        said = json.dumps([fitted, labels, self.unit], sort_keys=True)
        write_json(
            self.journal.folder / TABLES_FILE,
            {
                "format": FORMAT,
                "version": VERSION,
                "package": __version__,
                "description": _as_json(self.said.to_dict()),
                "time_unit": self.unit,
                "features": fitted,
                "labels": labels,
            },
        )
        return hashlib.sha256(said.encode()).hexdigest()


# Small hands ######################################################################################


def training_options(said: GraphDescription) -> str:
    """Returns the options of `batchgnn train` for the labels or the links of a description."""
    for name, table in said.nodes.items():
        if table.label is not None:
            of_type = f" --node-type {name}" if len(said.types()) > 1 else ""
            return of_type + _time_option(table)
    for relation, links in said.edges.items():
        if links.split is not None:
            return f" --task link --edge-type {','.join(relation)}{_time_option(links)}"
    return ""


def _time_option(table: NodeTable | EdgeTable) -> str:
    return f" --time-attr {TIME}" if table.split is not None and table.split.is_by_time else ""


def _silent(_step: str) -> None:
    """Says nothing of a step."""


def _as_json(said: Any) -> Any:
    """Returns a description whose dates are texts."""
    if isinstance(said, Mapping):
        return {key: _as_json(one) for key, one in said.items()}
    if isinstance(said, list):
        return [_as_json(one) for one in said]
    return said.isoformat() if hasattr(said, "isoformat") else said


def _without_absent(said: GraphDescription, raw: Mapping[str, RawTable]) -> GraphDescription:
    """Returns a description without labels and splits whose columns new tables do not have."""
    nodes, edges = {}, {}
    for name, node in said.nodes.items():
        names = raw[f"[nodes.{name}]"].schema.names
        label = node.label if node.label is not None and node.label.column in names else None
        split = node.split
        nodes[name] = replace(
            node, label=label, split=None if split and split.column and split.column not in names else split
        )
    for relation, edge in said.edges.items():
        names, split = raw[f'[edges."{",".join(relation)}"]'].schema.names, edge.split
        edges[relation] = replace(
            edge, split=None if split and split.column and split.column not in names else split
        )
    return replace(said, nodes=nodes, edges=edges)


def _empty_chunks(rows: int) -> Any:
    return ((first, None) for first in range(0, rows, CHUNK))


def _key_columns(chunk: Any, kept: np.ndarray) -> Any:
    """Returns the keys of the rows that are kept, UUIDs as texts."""
    import pyarrow as pa

    chunk = chunk if kept.all() else chunk.filter(pa.array(kept))
    for at, column in enumerate(chunk.schema):
        if is_uuid(column.type):
            chunk = chunk.set_column(at, column.name, uuid_texts(chunk.column(at).combine_chunks()))
    return chunk


def _spread(kept: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Returns which rows are wanted, given which of those that are kept are."""
    rows = np.zeros(len(kept), np.bool_)
    rows[kept] = wanted
    return rows


def _ids_of_rows(kept: np.ndarray) -> np.ndarray:
    """Returns the id of each row of a node table, -1 of those that are no nodes."""
    return np.where(kept, np.cumsum(kept) - 1, -1)


def _write_rows(file: Path, values: np.ndarray, wanted: np.ndarray) -> None:
    with NpyAppender(file, values.dtype) as writer:
        for at in range(0, len(values), _ROWS):
            part = slice(at, at + (_ROWS))
            writer.append(values[part][wanted[part]])
