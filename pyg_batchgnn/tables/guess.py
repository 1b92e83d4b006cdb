"""A first draft of a description, guessed from files, for a person to edit."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.tables.description import (
    FILE,
    PARTS,
    ColumnFeature,
    EdgeTable,
    ForeignKey,
    GraphDescription,
    LabelColumn,
    NodeTable,
    TableSplit,
    TimeColumn,
    to_toml,
)
from pyg_batchgnn.tables.join import Engine, compared
from pyg_batchgnn.tables.source import RawTable, is_database, need, numbered, open_file, open_table, quoted
from pyg_batchgnn.tables.values import is_number, is_text, is_uuid, is_vector

_ENDINGS = (".parquet", ".csv", ".tsv")
_LABELS = ("label", "y", "target", "class", "fraud", "is_fraud", "churn", "churned", "outcome")
_TIMES = ("time", "timestamp", "ts", "at", "date", "day", "when", "created", "datetime")
_SHARE = 0.9  # A column is a foreign key if this share of its values are keys of the other table.
#: Distinct values that are compared with a key; categories that get a column each.
_COMPARED, _FEW = 10_000, 32
_EXACT = 1_000_000  # Distinct values are counted exactly in tables of at most so many rows.
#: Whole numbers in these ranges are taken for seconds and milliseconds since 1970.
_SECONDS, _MILLISECONDS = (3 * 10**8, 5 * 10**9), (3 * 10**11, 5 * 10**12)
_OF_DATABASE = (
    "{}: is a database, of which there is no draft; write a graph.toml whose tables name it as files, and "
    "each its table"
)
_HEAD = """A first draft, guessed from the files. Read it, correct it, then:
    batchgnn tables check THIS_FOLDER
    batchgnn tables convert THIS_FOLDER --out DATA
which prints the command that trains on the result.
Files are names or globs. A table of [nodes.TYPE] has one node per row, a table of
[edges."SOURCE,NAME,TARGET"] one edge per row. Encoders of features: number, log, quantile,
boolean, category, hashed, ids, calendar, list."""


@dataclass
class _ColumnFacts:
    """What was found about a column."""

    name: str
    kind: str  # text, whole, number, boolean, time, list or other
    rows: int  # rows of the table
    there: int  # rows with a value
    distinct: int  # distinct values, counted or estimated
    low: Any = None  # the least number
    high: Any = None  # the largest number
    middle: Any = None  # the median

    @property
    def note(self) -> str:
        missing = self.rows - self.there
        share = f", {100 * missing / self.rows:.0f} % missing" if missing else ""
        about = "" if self.rows <= _EXACT else "about "
        return "vectors" if self.kind == "list" else f"{about}{self.distinct:,} different values{share}"


@dataclass
class _Guess:
    name: str
    files: tuple[str, ...]
    raw: RawTable
    delimiter: str = ","
    columns: dict[str, _ColumnFacts] = field(default_factory=dict)
    key: str | None = None
    named: dict[str, str] = field(default_factory=dict)  # node type by column that names it
    label: str | None = None
    time: TimeColumn | None = None

    @property
    def type(self) -> str:
        name = self.name
        if name.endswith("ies") and len(name) > 6:
            return f"{name[:-3]}y"
        return name[:-1] if name.endswith("s") and not name.endswith("ss") and len(name) > 2 else name


def draft(folder: str | Path, place: str | Path | None = None) -> str:
    """Returns the text of a `graph.toml` for the Parquet and CSV files in a folder.

    >>> [line for line in draft("shop").splitlines() if line.startswith("[edges")]
    ['[edges."customer,orders,product"]']

    Keys are columns without repeats; foreign keys are guessed by name and checked by values.
    ``place``: the folder of the future `graph.toml`, from which files are named; None: the same
    folder. Raises `DatasetError` without such files."""
    folder = Path(folder).expanduser()
    groups = _groups(folder)
    for path in () if groups else (folder, *folder.glob("*")):
        if path.is_file() and is_database(str(path)):
            raise DatasetError(_OF_DATABASE.format(path))
    if not folder.is_dir():
        raise DatasetError(f"{folder}: no such folder; give one with Parquet or CSV files")
    if not groups:
        raise DatasetError(f"{folder}: has no files that end in {', '.join(_ENDINGS)}; give another folder")
    with tempfile.TemporaryDirectory(prefix="batchgnn-") as work:
        engine = Engine(Path(work) / "spilled", 2 << 30, os.cpu_count() or 1)
        try:
            guesses = [_look(engine, folder, Path(work), name, files) for name, files in groups.items()]
            _find_foreign_keys(engine, guesses)
            for guess in guesses:  # a row of a table that names no others is no event
                guess.time = _time_of(guess) if guess.named or _ends(guess) else None
            inner = "." if place is None else os.path.relpath(folder, place)
            for guess in guesses if inner != "." else ():
                guess.files = tuple(f"{inner}/{file}" for file in guess.files)
            empty = [one.name for one in sorted(folder.glob("[!.]*")) if _is_table(one, empty=True)]
            note = f"# Left out, as they are empty: {', '.join(empty)}.\n" if empty else ""
            return note + _written(engine, folder, guesses)
        finally:
            engine.close()


def _groups(folder: Path) -> dict[str, tuple[str, ...]]:
    """Returns the files of each table. Files that differ in a number are parts of one table, and so
    are the files of a subfolder."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("[!.]*"), key=lambda one: numbered(one.name)):
        for file in sorted(path.glob("[!.]*")) if path.is_dir() else [path]:
            if _is_table(file):
                own = Path(file.name.removesuffix(".gz")).stem
                stem = path.name if path.is_dir() else re.sub(r"[._-]*(part)?[._-]*\d+$", "", own)
                found.setdefault((stem or own).replace(",", "_"), []).append(file)
    tables: dict[str, tuple[str, ...]] = {}
    for name, files in found.items():
        if len(files) == 1:
            tables[name] = (str(files[0].relative_to(folder)),)
        elif files[0].parent != folder:
            tables[name] = (f"{files[0].parent.name}/*{files[0].suffix}",)
        else:
            tables[name] = tuple(str(one.relative_to(folder)) for one in files)
    return tables


def _is_table(file: Path, empty: bool = False) -> bool:
    ending = Path(file.name.removesuffix(".gz")).suffix.lower()
    return ending in _ENDINGS and file.is_file() and (file.stat().st_size == 0) == empty


def _look(engine: Engine, folder: Path, work: Path, name: str, files: tuple[str, ...]) -> _Guess:
    first, delimiter = next(folder.glob(files[0]), folder / files[0]), ","
    if first.suffix.lower() != ".parquet":
        with open_file(str(first)) as stream:
            line = stream.readline()
        delimiter = max(",;\t|", key=lambda one: line.count(one.encode()))
    raw = open_table(f"[{name}]", NodeTable(files, delimiter=delimiter), folder, work / name)
    guess = _Guess(name, files, raw, delimiter)
    for column in raw.schema:
        guess.columns[column.name] = _facts(engine, raw, column)
    guess.key = _key_of(engine, guess)
    for column, facts in guess.columns.items():
        if facts.kind in ("boolean", "text", "whole", "number") and _plain(column) in _LABELS:
            guess.label = column
            break
    return guess


def _facts(engine: Engine, raw: RawTable, column: Any) -> _ColumnFacts:
    kind = _kind(column.type)
    rows = f"({raw.sql({'c': column.name})})"
    if kind in ("list", "other"):
        return _ColumnFacts(column.name, kind, raw.rows, raw.rows, 0)
    distinct = "count(DISTINCT c)" if raw.rows <= _EXACT else "approx_count_distinct(c)"
    counts = engine.columns(
        f"SELECT count(c) AS n, {distinct} AS d, "
        f"count(TRY_CAST(c AS DOUBLE)) FILTER (NOT regexp_matches(c, '^[+-]?0[0-9]')) AS x, "
        f"count(TRY_CAST(c AS TIMESTAMP)) AS t, "
        f"count(*) FILTER (lower(CAST(c AS VARCHAR)) IN ('true', 'false')) AS b FROM {rows}"
        if is_text(column.type)
        else f"SELECT count(c) AS n, {distinct} AS d, 0, 0, 0 FROM {rows}"
    )
    there, different, numbers, times, flags = (int(one[0]) for one in counts)
    if kind == "text" and there:
        kinds = (("boolean", flags), ("number", numbers), ("time", times), ("text", there))
        kind = next(name for name, count in kinds if count == there)
    found = _ColumnFacts(column.name, kind, raw.rows, there, min(different, there))
    if kind in ("whole", "number") and there:
        low, high, middle = engine.columns(
            "SELECT min(x), max(x), quantile_disc(x, 0.5) FROM "
            f"(SELECT CAST(c AS DOUBLE) AS x FROM {rows}) WHERE x IS NOT NULL AND NOT isnan(x)"
        )
        found.low, found.high, found.middle = low[0], high[0], middle[0]
    return found


def _kind(kind: Any) -> str:
    types = need("pyarrow").types
    if is_uuid(kind) or is_text(kind):
        return "text"
    for name, test in (
        ("boolean", types.is_boolean),
        ("whole", types.is_integer),
        ("number", types.is_floating),
        ("number", types.is_decimal),
        ("time", types.is_timestamp),
        ("time", types.is_date),
        ("list", is_vector),
    ):
        if test(kind):
            return name
    return "other"


def _key_of(engine: Engine, guess: _Guess) -> str | None:
    """Returns the first column with a key's name, no missing value and no repeats; else None."""
    names = ("id", "key", "uuid", f"{guess.type}_id", f"{guess.type}id", guess.type, f"{guess.name}_id")
    order = sorted(guess.columns, key=lambda one: (_plain(one) not in names, not _is_id(one)))
    first = next(iter(guess.columns))
    for name in order:
        facts = guess.columns[name]
        looks = _is_id(name) or _plain(name) in names or (name == first and facts.kind == "text")
        if looks and facts.kind in ("text", "whole") and facts.there == facts.rows:
            query = f"SELECT count(DISTINCT c) FROM ({guess.raw.sql({'c': name})})"
            if facts.distinct > 0.8 * facts.rows and int(engine.columns(query)[0][0]) == facts.rows:
                return name
    return None


def _plain(name: str) -> str:
    """Returns a name in lower case with _ between words: customer_no for Customer No."""
    return re.sub(r"\W+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).strip("_").lower()


def _is_id(name: str) -> bool:
    return re.search(r"(^|_)(id|key|uuid|hash|no|nr)$", _plain(name)) is not None


def _time_of(guess: _Guess) -> TimeColumn | None:
    words = {name: set(_plain(name).split("_")) for name in guess.columns}
    for name, facts in guess.columns.items():
        if facts.kind == "time":
            return TimeColumn(name)
        if facts.kind == "whole" and words[name] & set(_TIMES):
            for unit, (low, high) in (("s", _SECONDS), ("ms", _MILLISECONDS)):
                if facts.there and low <= facts.low and facts.high <= high:
                    return TimeColumn(name, unit)
            return TimeColumn(name)
        if facts.kind == "number" and words[name] & {"day", "days"}:
            return TimeColumn(name, "D")
    return None


def _find_foreign_keys(engine: Engine, guesses: list[_Guess]) -> None:
    keyed = [one for one in guesses if one.key is not None]
    for guess in guesses:
        for name, facts in guess.columns.items():
            if (
                facts.kind not in ("text", "whole", "number")
                or name in (guess.key, guess.label)
                or not facts.there
            ):
                continue
            ranked = sorted(keyed, key=lambda other, name=name: -_likeness(name, other))  # type: ignore[misc]
            for other in ranked:
                likely = _likeness(name, other) > 0
                only = len(keyed) == 1 and name.lower() in ("src", "dst", "source", "target", "from", "to")
                if facts.kind == "number" and not is_number(guess.raw.schema.field(name).type):
                    continue
                if (likely or only or (facts.kind == "text" and facts.distinct > 20)) and _are_keys(
                    engine, guess, name, other, _SHARE if likely or only else 0.999
                ):
                    guess.named[name] = other.type
                    break


def _likeness(column: str, other: _Guess) -> int:
    name, key = _plain(column), _plain(other.key or "")
    kind, table = _plain(other.type), _plain(other.name)
    if name == key and key not in ("id", "key", "uuid"):
        return 3
    if name in (kind, table, f"{kind}_id", f"{kind}id", f"{table}_id", f"{kind}_key"):
        return 2
    return int(re.search(rf"(^|_)({re.escape(kind)}|{re.escape(table)})(_|$|id$)", name) is not None)


def _are_keys(engine: Engine, guess: _Guess, column: str, other: _Guess, share: float) -> bool:
    assert other.key is not None
    kinds = [guess.raw.schema.field(column).type, other.raw.schema.field(other.key).type]
    cast = compared(kinds) or "VARCHAR"
    found, total = engine.columns(
        f"SELECT count(*) FILTER (c IN (SELECT CAST(k AS {cast}) FROM ({other.raw.sql({'k': other.key})}))), "
        f"count(*) FROM (SELECT DISTINCT CAST(c AS {cast}) AS c FROM ({guess.raw.sql({'c': column})}) "
        f"WHERE c IS NOT NULL LIMIT {_COMPARED})"
    )
    return int(found[0]) >= share * int(total[0]) > 0


def _written(engine: Engine, folder: Path, guesses: list[_Guess]) -> str:
    nodes: dict[str, NodeTable] = {}
    edges: dict[tuple[str, str, str], EdgeTable] = {}
    comments: dict[tuple[str, ...], str] = {}
    labelled = next((one for one in guesses if one.label is not None), None)
    for guess in guesses:
        ends = None if guess is labelled else _ends(guess)
        relation = None if ends is None else (ends[0][1], guess.name, ends[1][1])
        path = ("nodes", guess.type) if relation is None else ("edges", ",".join(relation))
        comments |= _zone_note(guess, path)
        if ends is not None and relation is not None:
            source, target = ends[0][0], ends[1][0]
            features = _features(guess, {source, target}, comments, path)
            edges[relation] = EdgeTable(
                guess.files, (source,), (target,), guess.time, features=features, delimiter=guess.delimiter
            )
            continue
        used = {guess.key, *guess.named, guess.label if guess is labelled else None}
        nodes[guess.type] = NodeTable(
            guess.files,
            () if guess.key is None else (guess.key,),
            guess.time,
            LabelColumn(guess.label) if guess is labelled and guess.label is not None else None,
            _split(engine, guess) if guess is labelled else None,
            {_relation_name(name): ForeignKey((name,), kind) for name, kind in guess.named.items()},
            _features(guess, used, comments, path),
            delimiter=guess.delimiter,
        )
        if guess.key is None:
            fact = "No column is a key: a node is named by the position of its row.\n"
            comments[path] = fact + comments.get(path, "")
    if labelled is None and edges:
        _, relation = max((guess.raw.rows, rel) for guess in guesses for rel in edges if rel[1] == guess.name)
        guess = next(one for one in guesses if one.name == relation[1])
        edges[relation] = replace(edges[relation], split=_split(engine, guess))
        comments["edges", ",".join(relation), "split"] = "the links to be predicted: train --task link"
    elif labelled is None:
        comments[()] = 'No label was found: add label = "COLUMN" and split to the table to be predicted.'
    columns = [(f"{one.type}.{name}", of) for one in guesses for name, of in one.columns.items()]
    twos = [
        name for name, of in columns if of.kind == "boolean" or (of.distinct, of.low, of.high) == (2, 0, 1)
    ]
    if labelled is None and twos:
        found = f"Columns of two values, as labels are: {', '.join(twos)}."
        comments[()] = f"{comments.get((), '')}\n{found}".strip()
    spec = GraphDescription(nodes, edges, folder=folder).to_dict()
    head = "\n".join(f"# {one}" for one in [*_HEAD.splitlines(), *comments.pop((), "").splitlines()])
    return f"{head}\n\n{to_toml(spec, comments)}"


def _zone_note(guess: _Guess, path: tuple[str, ...]) -> dict[tuple[str, ...], str]:
    if guess.time is None:
        return {}
    column = guess.time.column
    kind = guess.raw.schema.field(column).type
    bare = need("pyarrow").types.is_timestamp(kind) and kind.tz is None
    note = f'without a zone: UTC, or else {{ column = "{column}", timezone = "Europe/Berlin" }}'
    return {(*path, "time"): note} if bare or is_text(kind) else {}


def _relation_name(column: str) -> str:
    return re.sub(r"[\W_]*(id|key|uuid)$", "", column, flags=re.IGNORECASE).replace(",", " ") or column


def _ends(guess: _Guess) -> list[tuple[str, str]] | None:
    """Returns (column, node type) of both ends if the table is an edge table, else None."""
    if guess.key is not None:
        return None
    others = {
        name: _relation_name(name)
        for name, facts in guess.columns.items()
        if len(guess.named) < 2 and facts.kind in ("text", "whole") and _is_id(name)
    }
    found = {**others, **guess.named}
    return [(name, found[name]) for name in guess.columns if name in found] if len(found) == 2 else None


def _features(
    guess: _Guess, used: Iterable[str | None], comments: dict[tuple[str, ...], str], path: tuple[str, ...]
) -> dict[str, ColumnFeature]:
    found: dict[str, ColumnFeature] = {}
    left = []
    for name, facts in guess.columns.items():
        if name in used or (guess.time is not None and name == guess.time.column):
            continue
        feature = _feature(guess, facts)
        if feature is None:
            left.append(f"{name} ({facts.kind}, {facts.note})")
            continue
        found[name] = feature
        comments |= {(*path, "features", name): facts.note}
    if left:
        comments[(*path, "features") if found else path] = f"Not used: {', '.join(left)}."
    return found


def _feature(guess: _Guess, facts: _ColumnFacts) -> ColumnFeature | None:
    if not facts.there or facts.kind == "other":
        return None
    if facts.kind in ("boolean", "list"):
        return ColumnFeature(facts.kind)
    if facts.kind == "time":
        is_date = need("pyarrow").types.is_date(guess.raw.schema.field(facts.name).type)
        return ColumnFeature("calendar", parts=PARTS[is_date:])  # dates have no hours
    if facts.kind in ("whole", "number"):
        if facts.kind == "whole" and facts.distinct <= _FEW // 4:
            return ColumnFeature("category")
        if _is_id(facts.name):
            return None
        skewed = facts.low >= 0 and facts.high > 20 * max(facts.middle, 1)
        return ColumnFeature("log" if skewed else "number")
    if facts.distinct <= _FEW:
        return ColumnFeature("category")
    return ColumnFeature("hashed") if facts.distinct < facts.there / 2 else None


def _split(engine: Engine, guess: _Guess) -> TableSplit:
    """Returns a split by time, 60 % training and 20 % validation; without times by fractions."""
    if guess.time is None:
        return TableSplit(fractions=(0.8, 0.1, 0.1))
    facts = guess.columns[guess.time.column]
    cast = "TIMESTAMP" if facts.kind == "time" else "DOUBLE"
    column = f"CAST({quoted('c')} AS {cast})"
    shown = ("CAST(CAST(x AS DATE) AS VARCHAR)", "strftime(x, '%Y-%m-%dT%H:%M:%SZ')")
    query = f"SELECT quantile_disc({column}, Q) AS x FROM ({guess.raw.sql({'c': guess.time.column})})"
    if cast == "DOUBLE":
        ends = [int(engine.columns(query.replace("Q", share))[0][0]) for share in ("0.6", "0.8")]
        return TableSplit(train_until=ends[0], val_until=ends[1])
    for form in shown:
        texts = [
            str(engine.columns(f"SELECT {form} AS x FROM ({query.replace('Q', share)})")[0][0])
            for share in ("0.6", "0.8")
        ]
        if texts[0] != texts[1]:
            break
    return TableSplit(train_until=texts[0], val_until=texts[1])


def write_draft(folder: str | Path, out: Path | None = None) -> Path:
    """Writes a draft of a description to `graph.toml` in the folder, or to ``out``. Returns the
    file. Raises `DatasetError` if it exists.

    >>> write_draft("shop", Path("draft.toml"))
    PosixPath('draft.toml')
    """
    file = Path(folder).expanduser() / FILE if out is None else out
    if file.exists():
        raise DatasetError(f"{file}: exists already; remove it, or give another file with --out")
    file.write_text(draft(folder, file.parent), encoding="utf-8")
    return file
