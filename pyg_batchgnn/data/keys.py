"""The keys of nodes in a folder made of tables: keys by id, and ids by key.

It needs pyarrow, which is imported when there are keys to read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from pyg_batchgnn.data.errors import DatasetError, DatasetNotFoundError, broken
from pyg_batchgnn.data.files.durable import read_json
from pyg_batchgnn.data.meta import group_folder
from pyg_batchgnn.types import Group, RowKind

KEYS_FOLDER = "keys"  # the folder of the keys within a data set's folder
_KEPT = 256 << 20  # bytes of keys that are kept in memory
_ROW, _ID = "\0row", "\0id"  # names of columns that no key has


_UNITS = ("s", "ms", "us", "ns", "D")


@dataclass(frozen=True)
class Clock:
    """How a folder's times, int64 numbers, are read and shown.

    >>> Clock("s").moment("1970-01-02")
    86400
    """

    unit: str | None = None  # "s", "ms", "us", "ns" or "D" since 1970-01-01; None: plain integers
    timezone: str | None = None  # the zone in which times are shown

    def column(self, times: np.ndarray) -> Any:
        """Returns times [n] int64 as Arrow timestamps, dates or integers."""
        import pyarrow as pa

        if self.unit is None:
            return pa.array(times)
        if self.unit == "D":
            return pa.array(times.astype(np.int32)).cast(pa.date32())
        return pa.array(times).cast(pa.timestamp(self.unit, self.timezone))

    def moment(self, text: str) -> int:
        """Returns the time of a text: an integer, or a date such as 2024-03-01 or
        2024-03-01T12:00:00+01:00, in UTC if it has no zone. Raises `DatasetError` for other texts,
        and for a date if times are plain integers."""
        try:
            return int(text)
        except ValueError:
            pass
        try:
            date = datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 knows no Z
        except ValueError:
            fact = "is neither an integer nor a date like 2024-03-01"
            raise DatasetError(f"the time {text!r} {fact}; give one of them") from None
        if self.unit is None:
            raise DatasetError(
                f"the time {text!r} is a date, but the data says no unit of its times, in keys/times.json; "
                f"give an integer"
            )
        if date.tzinfo is not None:
            date = date.astimezone(timezone.utc).replace(tzinfo=None)
        return int(np.datetime64(date, "us").astype(f"datetime64[{self.unit}]").astype(np.int64))


def whole_below(kind: Any) -> int:
    """Returns the number below which all whole numbers are exact in a floating-point Arrow type."""
    return {16: 1 << 11, 32: 1 << 24}.get(kind.bit_width, 1 << 53)


@dataclass(frozen=True)
class FolderKeys:
    """The keys of a data set's nodes, in a folder of Parquet files by node type."""

    folder: Path

    @classmethod
    def of(cls, name: str | None) -> FolderKeys | None:
        """Returns the keys of a data set, or None if it has none. ``name``: its name or path, as
        for `load_dataset`. Raises `DatasetError` if it has keys, but pyarrow is missing."""
        if name is None:
            return None
        path = Path(name).expanduser()
        path = path if path.is_dir() else Path(name.partition(":")[0]).expanduser()
        folder = path / KEYS_FOLDER
        if not folder.is_dir():
            return None
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise DatasetError(
                f"{folder}: predictions with keys are Parquet files and need pyarrow; pip install pyarrow"
            ) from error
        return cls(folder)

    def table(self, node_type: str, num_nodes: int) -> KeyTable:
        """Returns the keys of a node type."""
        path = self.folder / f"{group_folder(Group(RowKind.NODE, node_type))}.parquet"
        return KeyTable(node_type, num_nodes, path if path.is_file() else None)

    def classes(self, group: Group) -> list[Any] | None:
        """Returns the original values of a group's classes, in the order of class numbers; None:
        the numbers are the values. Raises `DatasetError` if the file is damaged."""
        path = self.folder / f"{group_folder(group)}.classes.json"
        if not path.is_file():
            return None
        values = read_json(path).get("values")
        if not isinstance(values, list):
            raise broken(path, "values", f"is {values!r}, expected a list", "make the folder again")
        return values

    @property
    def clock(self) -> Clock:
        """How the folder's times are read and shown."""
        path = self.folder / "times.json"
        if not path.is_file():
            return Clock()
        content = read_json(path)
        unit, zone = content.get("unit"), content.get("timezone")
        if unit is not None and unit not in _UNITS:
            raise broken(path, "unit", f"is {unit!r}, expected one of {', '.join(_UNITS)}", "correct it")
        return Clock(unit, zone)


class KeyTable:
    """The keys of the nodes of one type. ``path``: their Parquet file; None: the ids are the keys,
    in a column "id". ``names``: the key columns. ``types``: their Arrow types by name. Raises
    `DatasetError` for a damaged file."""

    def __init__(self, node_type: str, num_nodes: int, path: Path | None) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.node_type, self.num_nodes, self._path = node_type, num_nodes, path
        self._kept: OrderedDict[int, Any] = OrderedDict()
        if path is None:
            self.types: Mapping[str, Any] = {"id": pa.int64()}
            self.names: tuple[str, ...] = ("id",)
            return
        try:
            self._file = pq.ParquetFile(path, memory_map=True)
        except (pa.ArrowException, OSError) as error:
            fact = f"not readable as Parquet ({error})"
            raise broken(path, "keys", fact, "make the folder again") from error
        about = self._file.metadata
        if about.num_rows != num_nodes:
            fact = f"has {about.num_rows} rows for {num_nodes} nodes"
            raise broken(path, "keys", fact, "make the folder again")
        self.types = {
            one.name: one.type.value_type if pa.types.is_dictionary(one.type) else one.type
            for one in self._file.schema_arrow
        }
        self.names = tuple(self.types)
        sizes = [about.row_group(at).num_rows for at in range(about.num_row_groups)]
        self._bounds = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])

    def take(self, ids: np.ndarray) -> Any:
        """Returns the keys of the nodes ``ids``, [n] int64, as an Arrow table in that order."""
        import pyarrow as pa

        if self._path is None:
            return pa.table({"id": pa.array(ids)})
        if not len(ids):
            return pa.schema(list(self.types.items())).empty_table()
        group = np.searchsorted(self._bounds, ids, side="right") - 1
        order = np.argsort(group, kind="stable")
        wanted, first = np.unique(group[order], return_index=True)
        pieces = [
            self._group(int(at)).take(pa.array(some - self._bounds[at]))
            for at, some in zip(wanted, np.split(ids[order], first[1:]), strict=True)
        ]
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return pa.concat_tables(pieces).take(pa.array(place))

    def find(self, keys: Any, file: Path) -> np.ndarray:
        """Returns [n] int64, the ids of the nodes with these keys. ``keys``: an Arrow table of the
        key columns. ``file``: where they are from. Raises `DatasetError`, naming file and row, for
        a key that no node has."""
        import pyarrow as pa

        ids = np.full(keys.num_rows, -1, np.int64)
        if self._path is None:
            given = keys.column("id").to_numpy()
            ids = np.where((given >= 0) & (given < self.num_nodes), given, -1).astype(np.int64)
        else:
            numbered = keys.append_column(_ROW, pa.array(np.arange(keys.num_rows)))
            for begin, group in self._groups():
                named = group.append_column(_ID, pa.array(np.arange(begin, begin + group.num_rows)))
                found = numbered.join(named, list(self.names), join_type="inner")
                ids[found.column(_ROW).to_numpy()] = found.column(_ID).to_numpy()
        unknown = np.flatnonzero(ids < 0)
        if len(unknown):
            row = int(unknown[0])
            key = ", ".join(f"{name}={keys.column(name)[row].as_py()!r}" for name in self.names)
            more = f" ({len(unknown)} such rows)" if len(unknown) > 1 else ""
            raise broken(
                file,
                f"row {row}",
                f"no {self.node_type} of the data set has the key {key}{more}",
                "remove the row, or apply the tables to the new data first; the first row is 0",
            )
        return ids

    def _groups(self) -> Iterator[tuple[int, Any]]:
        for at in range(len(self._bounds) - 1):
            yield int(self._bounds[at]), self._group(at)

    def _group(self, at: int) -> Any:
        import pyarrow as pa

        if at not in self._kept:
            self._kept[at] = self._file.read_row_group(at).cast(pa.schema(list(self.types.items())))
            while len(self._kept) > 1 and sum(one.nbytes for one in self._kept.values()) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(at)
        return self._kept[at]


def named_apart(tables: Sequence[KeyTable], prefixes: Sequence[str]) -> list[dict[str, str]]:
    """Returns, for each table, the name of each of its key columns in a file that holds the keys of
    all. A name that several tables have gets the table's prefix: "source_id" and "target_id"."""
    every = [name for table in tables for name in table.names]
    return [
        {name: f"{prefix}{name}" if every.count(name) > 1 else name for name in table.names}
        for table, prefix in zip(tables, prefixes, strict=True)
    ]


def read_ids(file: Path, tables: Sequence[KeyTable], prefixes: Sequence[str]) -> list[np.ndarray]:
    """Returns, for each table, [n] int64: the ids of the nodes whose keys are in a Parquet or CSV
    file. The file names the columns as `named_apart` does. Raises `DatasetError`."""
    names = named_apart(tables, prefixes)
    types = {
        named[name]: kind
        for table, named in zip(tables, names, strict=True)
        for name, kind in table.types.items()
    }
    found = _read_columns(file, types)
    return [
        table.find(found.select(list(named.values())).rename_columns(list(named)), file)
        for table, named in zip(tables, names, strict=True)
    ]


def _read_columns(file: Path, types: Mapping[str, Any]) -> Any:
    import pyarrow as pa
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    if not file.is_file():
        raise DatasetNotFoundError(f"{file}: no such file; give a .parquet or .csv file of keys")
    try:
        if file.suffix == ".parquet":
            with pq.ParquetFile(file, memory_map=True) as opened:
                present = opened.schema_arrow.names
                _check_columns(file, present, types)
                table = opened.read(columns=list(types))
        else:
            with pc.open_csv(file) as opened_csv:
                present = opened_csv.schema.names
            _check_columns(file, present, types)
            options = pc.ConvertOptions(include_columns=list(types), column_types=dict(types))
            table = pc.read_csv(file, convert_options=options)
        for name, kind in types.items():
            if pa.types.is_floating(table.column(name).type) and not pa.types.is_floating(kind):
                column = table.column(name)
                values, most = column.to_numpy(), whole_below(column.type)
                if len(rows := np.flatnonzero(np.abs(values) >= most)):
                    fact = f"is {values[rows[0]]} as {column.type}, several keys from {most:,} on"
                    raise broken(file, f"{name}, row {rows[0]}", fact, f"store the column as {kind}")
        return table.select(list(types)).cast(pa.schema(list(types.items())))
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, DatasetError):
            raise
        wanted = ", ".join(f"{name} as {kind}" for name, kind in types.items())
        raise broken(
            file, wanted, f"cannot be read ({error})", "store the keys as the tables had them"
        ) from error


def _check_columns(file: Path, present: Sequence[str], types: Mapping[str, Any]) -> None:
    for name in types:
        if name not in present:
            remedy = f"name the key columns {', '.join(types)}"
            raise broken(file, name, f"no such column among {list(present)}", remedy)
        if present.count(name) > 1:
            raise broken(file, name, f"{present.count(name)} columns of this name", "rename all but one")
