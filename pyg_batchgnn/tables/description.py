"""The description of a graph in tables: `graph.toml`, and the same as objects."""

from __future__ import annotations

import json
import sys
import zoneinfo
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pyg_batchgnn.data import DatasetError, Relation, reverse_of

FILE = "graph.toml"  # the file's name in a folder of tables
ENCODERS = ("number", "log", "quantile", "boolean", "category", "hashed", "ids", "calendar", "list")
#: Encoders that users may look for, and why they do not exist.
_NO_ENCODERS = {
    "since_seed": "is not known before sampling, as it depends on the seed's time",
    "text": "is none: give vectors of the texts as a column of lists, with the encoder list",
}
UNITS = ("D", "s", "ms", "us", "ns")  # units of times, from coarse to fine, in NumPy's letters
PARTS = ("hour", "weekday", "day", "month")
#: A bound of a split by time: an ISO 8601 text, a date, or a whole number in the column's unit.
Moment = str | int | date
_Part = TypeVar("_Part")


@dataclass(frozen=True)
class TimeColumn:
    """A column of times."""

    column: str  # the column's name
    #: the unit of numbers, counted from 1970-01-01: "D", "s", "ms", "us" or "ns". None: plain
    #: integers.
    unit: str | None = None
    timezone: str = "UTC"  # the zone of texts and timestamps without one, such as "Europe/Berlin"


@dataclass(frozen=True)
class LabelColumn:
    """The column of labels."""

    column: str  # the column's name
    #: "boolean", "class" or "value". None: by the column: booleans; classes if it has texts or
    #: whole numbers; values if it has other numbers.
    kind: str | None = None


@dataclass(frozen=True)
class TableSplit:
    """The split of a table's rows into "train", "val" and "test", in one of three ways."""

    #: a column with the values train, val and test; rows with other values are in no split
    column: str | None = None
    #: the shares of the three splits, by a hash of the key (of links: of both keys)
    fractions: tuple[float, float, float] | None = None
    train_until: Moment | None = None  # times before it are for training
    #: times from there on and before it are for validation, later ones for test
    val_until: Moment | None = None

    @property
    def bounds(self) -> list[Moment]:
        """The bounds of a split by time that are given."""
        return [one for one in (self.train_until, self.val_until) if one is not None]

    @property
    def is_by_time(self) -> bool:
        """True for a split by time."""
        return self.train_until is not None


@dataclass(frozen=True)
class ColumnFeature:
    """How a column becomes features."""

    encoder: str  # one of `ENCODERS`, such as "number" or "category"
    #: with "category", how many categories get a column; with "ids", how many get an id
    limit: int | None = None
    buckets: int = 64  # with "hashed", the number of columns
    parts: tuple[str, ...] = PARTS  # with "calendar", some of "hour", "weekday", "day" and "month"
    unit: str | None = None  # with "calendar", as in a `TimeColumn`
    timezone: str = "UTC"  # with "calendar", as in a `TimeColumn`


@dataclass(frozen=True)
class ForeignKey:
    """Columns of a table that name rows of another table: they become a relation."""

    columns: tuple[str, ...]  # the columns, in the order of the other table's key
    type: str  # the node type of the other table
    reverse: bool | None = None  # whether the reverse relation is stored too. None: as in `TableOptions`.


@dataclass(frozen=True)
class NodeTable:
    """A table with one node per row."""

    #: files or globs, in the folder of the description or elsewhere, also s3:// and such. Numbers
    #: in names are compared as numbers.
    files: tuple[str, ...]
    key: tuple[str, ...] = ()  # the columns that name a row; (): its position does
    time: TimeColumn | None = None  # when a node comes into being
    label: LabelColumn | None = None  # what is to be predicted of the nodes
    split: TableSplit | None = None  # the nodes for training, validation and test
    foreign_keys: Mapping[str, ForeignKey] = field(default_factory=dict)  # by the name of their relation
    features: Mapping[str, ColumnFeature] = field(default_factory=dict)  # by column, in order
    format: str | None = None  # "parquet" or "csv". None: by the ending of the file.
    delimiter: str = ","  # the delimiter of CSV
    nulls: tuple[str, ...] = ("",)  # the texts in CSV that mean no value
    on_bad_rows: str = "error"  # "error", or "set aside": bad rows are left out, and written to a file
    table: str | None = None  # if the file is a DuckDB database: the table or view in it


@dataclass(frozen=True)
class EdgeTable:
    """A table with one edge per row. All else is as in a `NodeTable`."""

    files: tuple[str, ...]
    source: tuple[str, ...]  # the columns that name the source, in the order of its key
    target: tuple[str, ...]  # the columns that name the target, in the order of its key
    time: TimeColumn | None = None  # when an edge comes into being
    label: LabelColumn | None = None  # what is to be predicted of the edges
    #: with a label, the edges for training, validation and test. Without one, the edges become
    #: links to predict. None: nothing is predicted.
    split: TableSplit | None = None
    features: Mapping[str, ColumnFeature] = field(default_factory=dict)
    reverse: bool | None = None  # whether the reverse relation is stored too. None: as in `TableOptions`.
    format: str | None = None
    delimiter: str = ","
    nulls: tuple[str, ...] = ("",)
    on_bad_rows: str = "error"
    table: str | None = None


@dataclass(frozen=True)
class TableOptions:
    """Options of the whole graph."""

    name: str = ""  # the data set's name; "": the name of the description's folder
    reverse: bool = True  # whether every relation gets its reverse, so that messages flow both ways
    time_unit: str | None = None  # the unit of all times in the result. None: the finest unit of the columns.


@dataclass(frozen=True)
class GraphDescription:
    """A graph in tables: which table holds what, and what becomes of each column.

    >>> user = NodeTable(("users.csv",), ("id",), features={"age": ColumnFeature("number")})
    >>> follows = EdgeTable(("follows.csv",), ("who",), ("whom",))
    >>> graph = GraphDescription({"user": user}, {("user", "follows", "user"): follows})
    >>> print(graph.types())
    ['user']

    Raises:
        DatasetError: something does not fit together.
    """

    nodes: Mapping[str, NodeTable]  # the node tables by type. Types that only other tables name have none.
    edges: Mapping[Relation, EdgeTable] = field(default_factory=dict)  # the edge tables by relation
    options: TableOptions = field(default_factory=TableOptions)  # options of the whole graph
    folder: str | Path = ""  # the folder in which relative names of files are found

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def read(cls, path: str | Path) -> GraphDescription:
        """Reads a description. ``path``: its file, or the folder with `graph.toml`. Raises a
        `DatasetError` that names the table, the key and the value."""
        path = Path(path).expanduser()
        path = path / FILE if path.is_dir() else path
        if not path.is_file():
            raise DatasetError(f"{path}: no such file; batchgnn tables describe FOLDER writes a first draft")
        try:
            spec = _toml().loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DatasetError(f"{path}: not valid TOML ({error}); correct it") from error
        return cls.from_dict(spec, path.parent, str(path))

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any], folder: str | Path, file: str = FILE) -> GraphDescription:
        """Makes a description of the contents of a `graph.toml`. ``file``: the name in errors.
        Raises `DatasetError` like `read`."""
        top = _Section(file, "")
        top.check_keys(spec, ("nodes", "edges", "options"))
        nodes, edges = (top.table(spec.get(key, {}), key) for key in ("nodes", "edges"))
        try:
            return cls(
                {name: _Section(file, f"nodes.{name}").part(NodeTable, one) for name, one in nodes.items()},
                {
                    _relation(file, name): _Section(file, f'edges."{name}"').part(EdgeTable, one)
                    for name, one in edges.items()
                },
                _Section(file, "options").part(TableOptions, spec.get("options", {})),
                folder,
            )
        except DatasetError as error:
            text = str(error)
            raise DatasetError(text if text.startswith(file) else f"{file}: {text}") from None

    def to_dict(self) -> dict[str, Any]:
        """Returns the contents of the `graph.toml`, without defaults."""
        found: dict[str, Any] = {}
        if self.nodes:
            found["nodes"] = {name: _given_fields(one) for name, one in self.nodes.items()}
        if self.edges:
            found["edges"] = {",".join(relation): _given_fields(one) for relation, one in self.edges.items()}
        if options := _given_fields(self.options):
            found["options"] = options
        return found

    def write(self, path: str | Path) -> Path:
        """Writes a `graph.toml`, to a file or into a folder, and returns its path."""
        path = Path(path).expanduser()
        path = path / FILE if path.is_dir() else path
        path.write_text(to_toml(self.to_dict()), encoding="utf-8")
        return path

    def relations(self) -> dict[Relation, EdgeTable | tuple[str, ForeignKey]]:
        """Returns where each relation is from: an edge table, or (node type, foreign key)."""
        found: dict[Relation, EdgeTable | tuple[str, ForeignKey]] = dict(self.edges)
        for name, table in self.nodes.items():
            found |= {(name, own, key.type): (name, key) for own, key in table.foreign_keys.items()}
        return found

    def types(self) -> list[str]:
        """Returns the node types: those with tables first, then those that only relations name."""
        named = [end for source, _, target in self.relations() for end in (source, target)]
        return list(dict.fromkeys([*self.nodes, *named]))

    def has_reverse(self, relation: Relation) -> bool:
        """Returns True if the conversion also stores the reverse of ``relation``."""
        one = self.relations()[relation]
        spec = one.reverse if isinstance(one, EdgeTable) else one[1].reverse
        return (self.options.reverse if spec is None else spec) and reverse_of(
            relation
        ) not in self.relations()


def _given_fields(one: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for info in fields(one):
        name, value = info.name, getattr(one, info.name)
        default = info.default_factory() if info.default_factory is not MISSING else info.default
        if value == default and name not in ("files", "source", "target"):
            continue
        if isinstance(value, Mapping):
            found[name] = {key: _short(inner, key) for key, inner in value.items()}
        elif type(value) in _SHORT:
            found[name] = _short(value)
        else:
            found[name] = list(value) if isinstance(value, tuple) else value
            if name in ("files", "key", "source", "target") and len(found[name]) == 1:
                found[name] = found[name][0]
    return found


def _short(one: Any, name: str = "") -> Any:
    """Returns a part of a description: a dict, or a text if that says all. ``name``: its key."""
    found, key = _given_fields(one), _SHORT[type(one)]
    if isinstance(one, ForeignKey) and one.columns == (name,):
        del found["columns"]
    return found[key] if set(found) == {key} else found


def _check(spec: GraphDescription) -> None:
    if not spec.nodes and not spec.edges:
        raise DatasetError('no tables; describe some under [nodes.TYPE] or [edges."source,name,target"]')
    for name, table in spec.nodes.items():
        where = f"[nodes.{name}]"
        _check_common(where, table)
        for own, key in table.foreign_keys.items():
            other = spec.nodes.get(key.type)
            want = max(len(other.key), 1) if other is not None else len(key.columns)
            if len(key.columns) != want:
                raise DatasetError(
                    f"{where}: foreign_keys.{own}: names {len(key.columns)} columns, but the key of "
                    f"{key.type} has {want}; name as many"
                )
            if (name, own, key.type) in spec.edges:
                raise DatasetError(
                    f"{where}: foreign_keys.{own}: there is a link table of this relation; rename it"
                )
    for relation, links in spec.edges.items():
        where = f'[edges."{",".join(relation)}"]'
        _check_common(where, links)
        for end, columns in ((relation[0], links.source), (relation[2], links.target)):
            want = max(len(spec.nodes[end].key), 1) if end in spec.nodes else len(columns)
            if len(columns) != want:
                fact = f"{', '.join(columns)}: {len(columns)} columns, but the key of {end} has {want}"
                raise DatasetError(f"{where}: {fact}; name as many")
    if not spec.relations():
        raise DatasetError(
            'no relations; describe foreign_keys, or a link table [edges."source,name,target"]'
        )


def _check_common(where: str, table: NodeTable | EdgeTable) -> None:
    if table.label is not None and table.label.column in table.features:
        raise DatasetError(f"{where}: features.{table.label.column}: is the label; leave it out")
    if table.split is not None:
        _check_split(where, table.split, table.time)
    for column, one in table.features.items():
        if one.encoder not in ENCODERS:
            fact = f"encoder {one.encoder!r} {_NO_ENCODERS.get(one.encoder, 'does not exist')}"
            raise DatasetError(f"{where}: features.{column}: {fact}; choose among {', '.join(ENCODERS)}")
    for spec in (table.time, *table.features.values()):
        zone = "UTC" if spec is None else spec.timezone
        try:
            zoneinfo.ZoneInfo(zone)
        except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
            raise DatasetError(f"{where}: timezone is {zone!r}; give one such as Europe/Berlin") from None
    if table.on_bad_rows not in _CHOICES["on_bad_rows"]:
        raise DatasetError(f'{where}: on_bad_rows is {table.on_bad_rows!r}; give "error" or "set aside"')


def _check_split(where: str, split: TableSplit, time: TimeColumn | None) -> None:
    ways = [split.column is not None, split.fractions is not None, split.is_by_time]
    if sum(ways) != 1:
        raise DatasetError(
            f"{where}: split: give column, or fractions, or train_until and val_until, and one of them alone"
        )
    if split.fractions is not None:
        shares = split.fractions
        if len(shares) != 3 or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
            raise DatasetError(f"{where}: split.fractions is {list(shares)}; give three shares of the sum 1")
    if split.is_by_time:
        if split.val_until is None:
            raise DatasetError(f"{where}: split: train_until without val_until; give both")
        if time is None:
            raise DatasetError(f"{where}: split: a split by time needs the column of times; give time")
    elif split.val_until is not None:
        raise DatasetError(f"{where}: split: val_until without train_until; give both")


def _toml() -> Any:
    if sys.version_info >= (3, 11):
        import tomllib

        return tomllib
    try:
        import tomli
    except ImportError as error:
        raise DatasetError(
            "graph.toml: Python 3.10 reads TOML with tomli; pip install 'pyg_batchgnn[tables]'"
        ) from error
    return tomli


@dataclass(frozen=True)
class _Section:
    """A table of a TOML file. ``name``: as errors say it."""

    file: str
    name: str

    def error(self, key: str, fact: str, remedy: str) -> DatasetError:
        where = f"[{self.name}]: " if self.name else ""
        return DatasetError(f"{self.file}: {where}{key}{': ' if key else ''}{fact}; {remedy}")

    def table(self, spec: Any, key: str = "") -> Mapping[str, Any]:
        if not isinstance(spec, Mapping):
            raise self.error(key, f"is {spec!r}", "give a table")
        return spec

    def check_keys(self, spec: Mapping[str, Any], known: Sequence[str]) -> None:
        for key in spec:
            if key not in known:
                near = get_close_matches(key, known, 1)
                meant = f"; is {near[0]} meant?" if near else ""
                raise self.error(key, f"is not known{meant}", f"known here: {', '.join(known)}")

    def part(self, cls: type[_Part], spec: Any, **given: Any) -> _Part:
        """Makes a part of a description. The fields of ``cls`` are its keys, with their types."""
        spec = self.table({_SHORT[cls]: spec} if isinstance(spec, str) and cls in _SHORT else spec)
        hints, infos = get_type_hints(cls), {one.name: one for one in fields(cls)}  # type: ignore[arg-type]
        encoder = str(spec.get("encoder"))
        self.check_keys(
            spec, ["encoder", *_OPTIONS.get(encoder, ())] if cls is ColumnFeature else list(infos)
        )
        found = given | {key: self._value(hints[key], key, value) for key, value in spec.items()}
        for key, info in infos.items():
            is_needed = info.default is MISSING and info.default_factory is MISSING
            if is_needed and found.get(key, ()) == ():
                raise self.error(key, "is missing", "give a text or a list of texts")
        return cls(**found)

    def _value(self, hint: Any, key: str, value: Any) -> Any:
        kinds = tuple(one for one in get_args(hint) if one is not NoneType)
        kinds = kinds if isinstance(hint, UnionType) else (hint,)
        kind, inner = kinds[0], f"{self.name}.{key}"
        if is_dataclass(kind):
            return _Section(self.file, inner).part(kind, value)  # type: ignore[arg-type]
        if get_origin(kind) is Mapping:
            of, found = get_args(kind)[1], {}
            for name, one in self.table(value, key).items():
                given = {"columns": (name,)} if of is ForeignKey else {}
                found[name] = _Section(self.file, f"{inner}.{name}").part(of, one, **given)
            return found
        if get_origin(kind) is tuple:
            of, says = (str, "a text or a list of texts")
            if get_args(kind)[0] is float:
                of, says = (int, float), "three shares of the sum 1"
            several = (value,) if isinstance(value, str) else value
            if not isinstance(several, (list, tuple)) or not all(_is(one, of) for one in several):
                raise self.error(key, f"is {value!r}", f"give {says}")
            if wrong := [one for one in several if key in _CHOICES and one not in _CHOICES[key]]:
                raise self.error(key, f"has {wrong[0]!r}", f"choose among {', '.join(_CHOICES[key])}")
            return tuple(several if of is str else map(float, several))
        if not _is(value, kinds) or (kind is int and value < 1):
            says = {bool: "true or false", int: "a whole number, 1 or more", str: "a text"}[kind]
            says = says if len(kinds) == 1 else "a date, a time as ISO 8601, or a whole number"
            raise self.error(key, f"is {value!r}", f"give {says}")
        if key in _CHOICES and value not in _CHOICES[key]:
            raise self.error(key, f"is {value!r}", f"choose among {', '.join(_CHOICES[key])}")
        return value


def _is(value: Any, kinds: Any) -> bool:
    return isinstance(value, kinds) and (not isinstance(value, bool) or kinds == (bool,))


#: The key of each part that a text alone can stand for.
_SHORT: dict[type, str] = {
    **dict.fromkeys((TimeColumn, LabelColumn, TableSplit), "column"),
    ColumnFeature: "encoder",
    ForeignKey: "type",
}
#: The texts that a key may have.
_CHOICES = {
    **{"unit": UNITS, "time_unit": UNITS, "parts": PARTS, "kind": ("boolean", "class", "value")},
    **{"format": ("parquet", "csv"), "on_bad_rows": ("error", "set aside")},
}
_OPTIONS = {
    **{"category": ("limit",), "ids": ("limit",), "hashed": ("buckets",)},
    "calendar": ("parts", "unit", "timezone"),
}


def _relation(file: str, name: str) -> Relation:
    names = [one.strip() for one in name.split(",")]
    if len(names) != 3 or not all(names):
        raise DatasetError(
            f'{file}: [edges."{name}"]: names no relation; write "source type,relation,target type"'
        )
    return names[0], names[1], names[2]


_Comments = Mapping[tuple[str, ...], str]


def to_toml(content: Mapping[str, Any], comments: _Comments | None = None) -> str:
    """Returns TOML. ``comments``: texts above a table or behind a key, by the path to it."""
    lines: list[str] = []
    _write(lines, (), content, comments or {})
    return "\n".join(lines).strip() + "\n"


def _write(lines: list[str], path: tuple[str, ...], table: Mapping[str, Any], comments: _Comments) -> None:
    for key, value in table.items():
        if not _is_section(path, key, value):
            note = comments.get((*path, key), "")
            lines.append(f"{_key(key)} = {_value(value)}{'  # ' + note if note else ''}")
    lines += [f"# {one}" for one in comments.get((*path, ""), "").splitlines()]
    for key, value in table.items():
        if _is_section(path, key, value):
            inner = (*path, key)
            if any(not _is_section(inner, *one) for one in value.items()) or not value:
                lines.append("")
                lines += [f"# {one}" for one in comments.get(inner, "").splitlines()]
                lines.append(f"[{'.'.join(map(_key, inner))}]")
            _write(lines, inner, value, comments)


def _is_section(path: tuple[str, ...], key: str, value: Any) -> bool:
    return isinstance(value, Mapping) and (len(path) < 2 or key in ("features", "foreign_keys"))


def _key(key: str) -> str:
    bare = key and all(one.isascii() and (one.isalnum() or one in "_-") for one in key)
    return key if bare else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    plain = value if isinstance(value, (bool, int, float)) else str(value)
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007F")  # TOML's forms are JSON's
