"""Which rows of a table take part: bad rows, splits, labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyg_batchgnn.data import SPLITS, DatasetError
from pyg_batchgnn.tables.description import EdgeTable, LabelColumn, NodeTable, TableSplit, TimeColumn
from pyg_batchgnn.tables.source import CHUNK, RawTable, need
from pyg_batchgnn.tables.values import (
    Parsed,
    as_texts,
    flat,
    hash_texts,
    is_text,
    missing_in,
    mixed,
    moment,
    places_among,
    to_booleans,
    to_numbers,
    to_times,
)

_TORN = "wrong number of columns"


class BadRows:
    """Collects a table's bad rows; ``with_torn``: with rows of a wrong number of columns.
    ``is_bad``: [rows] bool. ``reasons``: how many rows are bad, by reason."""

    def __init__(self, table: RawTable, spec: NodeTable | EdgeTable, with_torn: bool = True) -> None:
        self.torn = table.torn if with_torn else ()
        self.table, self.sets_aside = table, spec.on_bad_rows != "error"
        self.is_bad = np.zeros(table.rows, np.bool_)
        self.reasons: Counter[str] = Counter()
        self._found: list[tuple[np.ndarray, tuple[str, ...], str]] = []
        if self.torn:
            self.reasons[_TORN] = len(self.torn)

    def add(self, rows: np.ndarray, columns: Sequence[str], reason: str) -> None:
        """Adds bad rows, ascending positions. ``columns``: with the bad value. Raises
        `DatasetError` for the first one if bad rows are an error."""
        if not len(rows):
            return
        if not self.sets_aside:
            row = int(rows[0])
            shown = ", ".join(repr(self.table.value(row, column)) for column in columns)
            more = f" ({len(rows):,} rows)" if len(rows) > 1 else ""
            raise DatasetError(
                f"{self.table.place(row)}: {', '.join(columns)}: {shown} {reason}{more}; correct the rows, "
                f'or set on_bad_rows = "set aside" under {self.table.where}'
            )
        rows = rows[~self.is_bad[rows]]
        self.is_bad[rows] = True
        self.reasons[reason] += len(rows)
        self._found.append((rows, tuple(columns), reason))

    def write(self, path: Path) -> list[Path]:
        """Writes the bad rows to a Parquet file, if there are any; returns the files."""
        if not self._found and not self.torn:
            return []
        pa, pq = need("pyarrow"), need("pyarrow.parquet")
        text, whole = pa.string(), pa.int64()
        names = ("file", "row_group", "row", "line", "column", "value", "reason")
        schema = pa.schema(list(zip(names, (text, whole, whole, whole, text, text, text), strict=True)))
        path.parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(path, schema) as writer:
            for lines in self._lines():
                writer.write_table(pa.table(dict(zip(names, lines, strict=True)), schema))
            if self.torn:
                torn = zip(self.torn, self.table.lines([one[:2] for one in self.torn]), strict=True)
                rows = [(file, None, None, line, "", text, _TORN) for (file, _, text), line in torn]
                writer.write_table(pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)), schema))
        return [path]

    def _lines(self) -> Iterator[list[Any]]:
        if not self._found:
            return
        rows = np.concatenate([rows for rows, _, _ in self._found])
        of = np.repeat(np.arange(len(self._found)), [len(rows) for rows, _, _ in self._found])
        order = np.argsort(rows, kind="stable")
        rows, of = rows[order], of[order]
        every = [self.table.file_and_row(int(row)) for row in rows]
        lines = iter(self.table.lines([(file, number) for file, group, number in every if group is None]))
        columns = list(dict.fromkeys(one for _, names, _ in self._found for one in names))
        for first, chunk in self.table.chunks(columns):
            begin, end = np.searchsorted(rows, [first, first + len(chunk)])
            if begin == end:
                continue
            here = chunk.take(rows[begin:end] - first)
            texts = {
                name: [None if one is None else str(one) for one in here[name].to_pylist()]
                for name in columns
            }
            named = [self._found[at] for at in of[begin:end]]
            values = [  # of several columns a missing one is empty
                texts[names[0]][at] if len(names) == 1 else ", ".join(texts[one][at] or "" for one in names)
                for at, (_, names, _) in enumerate(named)
            ]
            places = every[begin:end]
            yield [
                [file for file, _, _ in places],
                [group for _, group, _ in places],
                [None if group is None else row for _, group, row in places],
                [next(lines) if group is None else None for _, group, _ in places],
                [", ".join(names) for _, names, _ in named],
                values,
                [reason for _, _, reason in named],
            ]


@dataclass
class RowCheck:
    column: str
    parse: Callable[[Any], Parsed]  # reads the values
    needs: bool = False  # True: a missing value makes the row bad
    #: takes the first row and the values of each chunk, for later use
    keep: Callable[[int, Parsed], None] | None = None


def look_at(table: RawTable, checks: Sequence[RowCheck], keys: Sequence[str], bad: BadRows) -> None:
    columns = list(dict.fromkeys([*keys, *(check.column for check in checks)]))
    if not columns:
        return
    for first, chunk in table.chunks(columns):
        for key in keys:
            missing = missing_in(chunk.column(key))
            bad.add(first + np.flatnonzero(missing), [key], "is a key without a value")
        for check in checks:
            found = check.parse(chunk.column(check.column))
            bad.add(first + np.flatnonzero(found.bad), [check.column], "cannot be read")
            if check.needs:
                bad.add(first + np.flatnonzero(found.missing), [check.column], "is a time without a value")
            if check.keep is not None:
                check.keep(first, found)


def splits_of_rows(
    spec: NodeTable | EdgeTable,
    table: RawTable,
    keys: Sequence[str],
    times: np.ndarray | None,
    unit: str | None,
    fitting: bool,
) -> np.ndarray | None:
    """Returns [rows] int8, each row's split as an index in `SPLITS`, -1 for none; None without
    splits. Splits by fractions hash ``keys``, or positions without keys. ``fitting``: True raises
    `DatasetError` if a split by column has no row, as encoders learn from the rows."""
    split = spec.split
    if split is None:
        return None
    codes = np.full(table.rows, -1, np.int8)
    if split.is_by_time:
        assert times is not None and spec.time is not None
        where = f"{table.where}: split"
        bounds = [moment(one, spec.time, unit, where) for one in split.bounds]
        if bounds[0] > bounds[1]:
            raise DatasetError(f"{where}: val_until is before train_until; exchange them")
        for at in range(0, len(times), CHUNK):
            codes[at : at + CHUNK] = np.searchsorted(bounds, times[at : at + CHUNK], side="right")
    elif split.column is not None:
        table.type_of(split.column, "split")
        pc = need("pyarrow.compute")
        where = f"{table.where}: split: {split.column}"
        for first, chunk in table.chunks([split.column]):
            texts = pc.utf8_lower(pc.utf8_trim_whitespace(as_texts(chunk.column(0), where)))
            places = places_among(texts, list(_SPLIT_NAMES), where)
            codes[first : first + len(chunk)] = np.asarray([*_SPLIT_NAMES.values(), -1], np.int8)[places]
        if fitting and (codes < 0).all():
            raise DatasetError(f"{where}: no row has one of the values {', '.join(SPLITS)}; correct them")
    elif keys:
        for first, chunk in table.chunks(keys):  # of several keys the order does not matter
            hashes = [hash_texts(as_texts(chunk.column(key), key)) for key in keys]
            one = mixed(np.asarray(np.sum(hashes, axis=0, dtype=np.uint64))) if len(keys) > 1 else hashes[0]
            codes[first : first + len(chunk)] = _shares(split, one)
    else:
        codes[:] = _shares(split, mixed(np.arange(table.rows, dtype=np.uint64)))
    return codes


#: The names of splits in a column, in lower case.
_SPLIT_NAMES = {one: at for at, one in enumerate(SPLITS)}
_SPLIT_NAMES |= {"training": 0, "valid": 1, "validation": 1, "dev": 1, "testing": 2}


def _shares(split: TableSplit, hashes: np.ndarray) -> np.ndarray:
    assert split.fractions is not None
    shares = (hashes >> np.uint64(11)).astype(np.float64) / 2**53
    return np.searchsorted(np.cumsum(split.fractions)[:2], shares, side="right")


_MOST_CLASSES = 1 << 16  # more classes are taken for a mistake


@dataclass
class LabelsOfRows:
    """The labels in a column, and how they become "y"."""

    spec: LabelColumn
    table: RawTable
    kind: str = ""  # "boolean", "class" or "value"
    #: the values of the classes in order; None: they are the class numbers
    values: list[Any] | None = None
    count: int = 0  # the number of classes; 0 for other labels

    @classmethod
    def wanted(
        cls, spec: LabelColumn | None, table: RawTable, fitted: dict[str, Any] | None
    ) -> LabelsOfRows | None:
        """Returns a table's labels, of the kind and classes that a model knows, if ``fitted``; None
        without a label column."""
        if spec is None:
            return None
        if fitted is None:
            return cls.of(spec, table)
        return cls(spec, table, fitted["kind"], fitted["values"], fitted["count"])

    @classmethod
    def of(cls, spec: LabelColumn, table: RawTable) -> LabelsOfRows:
        """Finds kind and classes from all labels of a table. Raises `DatasetError` if there is no
        such column, or too many classes."""
        nothing = need("pyarrow").array([], table.type_of(spec.column, "label"))
        as_texts(nothing, f"{table.where}: label: {spec.column}")  # an error where no value is a class
        found = cls(spec, table, spec.kind or "")
        if spec.kind in ("boolean", "value"):
            return found
        distinct = found._distinct()
        types, kind = need("pyarrow").types, table.schema.field(spec.column).type
        if spec.kind is None and types.is_boolean(kind):
            found.kind = "boolean"
        elif spec.kind is None and types.is_floating(kind):
            found.kind = "value"
        elif spec.kind is None and is_text(kind) and (guess := _kind_of_texts(distinct)) != "class":
            found.kind = guess
        else:
            found.kind = "class"
            found.values = found._classes(distinct)
            found.count = int(max(distinct, default=-1)) + 1 if found.values is None else len(found.values)
        return found

    def _distinct(self) -> list[Any]:
        kind = self.table.schema.field(self.spec.column).type
        if self.spec.kind is None and need("pyarrow").types.is_floating(kind):
            return []
        found: set[Any] = set()
        for _, chunk in self.table.chunks([self.spec.column]):
            found.update(flat(chunk.column(0)).unique().to_pylist())
            if len(found) > _MOST_CLASSES:
                if self.spec.kind is None and is_text(kind) and _kind_of_texts(found) == "value":
                    break  # numbers: the others are read later
                raise DatasetError(
                    f"{self.table.where}: label: {self.spec.column} has more than {_MOST_CLASSES:,} values; "
                    f'give kind = "value" for numbers to be predicted as such'
                )
        infinite = (float("inf"), float("-inf"))
        return sorted(one for one in found if one is not None and one == one and one not in infinite)

    def _classes(self, distinct: list[Any]) -> list[Any] | None:
        whole = all(isinstance(one, (int, float)) and one == int(one) for one in distinct)
        if whole and (not distinct or (min(distinct) >= 0 and max(distinct) < _MOST_CLASSES)):
            return None
        return [one if isinstance(one, (int, str, float)) else str(one) for one in distinct]

    def parse(self, array: Any) -> Parsed:
        """Reads labels from Arrow: bool, class indices int64 (unknown: missing), or float64."""
        where = f"{self.table.where}: label: {self.spec.column}"
        if self.kind == "boolean":
            return to_booleans(array, where)
        if self.kind == "value" or self.values is None:
            found = to_numbers(array, where)
            if self.kind == "value":
                return found
            return Parsed(np.where(found.bad, 0, found.values).astype(np.int64), found.missing, found.bad)
        encoded = flat(flat(array).dictionary_encode())
        known = {one: at for at, one in enumerate(self.values)}
        names = [
            one if isinstance(one, (int, str, float)) else str(one) for one in encoded.dictionary.to_pylist()
        ]
        of = np.asarray([known.get(one, -1) for one in names] + [-1], np.int64)
        codes = of[encoded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)]
        if (codes < 0).any():  # 1 for "1.0", or true for "True"
            codes = np.where(codes < 0, places_among(array, list(map(str, self.values)), where), codes)
        return Parsed(codes, codes < 0, np.zeros(len(codes), np.bool_))

    def final(self, found: Parsed) -> np.ndarray:
        """Returns "y" as stored. Without a label: -1, NaN, or for booleans False."""
        if self.kind == "boolean":
            return (found.values & ~found.missing)[:, None]
        if self.kind == "class":
            return np.where(found.missing, -1, found.values).astype(np.int64)
        return np.where(found.missing, np.nan, found.values).astype(np.float32)

    @property
    def form(self) -> tuple[type, tuple[int, ...]]:
        """The dtype of "y" and the shape of a row."""
        forms = {"boolean": (np.bool_, (1,)), "class": (np.int64, ()), "value": (np.float32, ())}
        return forms[self.kind]

    def to_json(self) -> dict[str, Any]:
        return {"column": self.spec.column, "kind": self.kind, "values": self.values, "count": self.count}


def _kind_of_texts(distinct: Any) -> str:
    texts = [one for one in distinct if one is not None]
    if texts and all(one.strip().lower() in ("true", "false") for one in texts):
        return "boolean"
    try:
        for one in texts:
            float(one)
    except ValueError:
        return "class"
    return "value" if texts else "class"


def times_of_rows(table: RawTable, spec: TimeColumn, unit: str | None, times: np.ndarray) -> RowCheck:
    """Returns a check that reads a column of times into `times`, [rows] int64."""
    table.type_of(spec.column, "time")

    def keep(first: int, found: Parsed) -> None:
        times[first : first + len(found.values)] = np.where(found.missing | found.bad, 0, found.values)

    where = f"{table.where}: time: {spec.column}"
    return RowCheck(spec.column, lambda array: to_times(array, spec, unit, where), True, keep)
