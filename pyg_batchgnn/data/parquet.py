"""Reads edges, nodes and their attributes from Parquet files; it needs pyarrow."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np

from pyg_batchgnn.data.errors import DatasetError, broken
from pyg_batchgnn.data.meta import group_folder
from pyg_batchgnn.types import EDGES, NODES, Group

ENDS = ("src", "dst")  # the columns with the ends of edges


def parquet_files(folder: Path, group: Group) -> list[Path]:
    """Returns the Parquet files of a group's nodes or edges, in the order in which their rows get
    ids: numbers in names are compared as numbers. They are `nodes*.parquet` or `edges*.parquet` in
    a homogeneous graph, else `nodes/TYPE.parquet` or `edge_index/RELATION.parquet`, or several with
    a further part in the name, as in `nodes/TYPE.1.parquet`."""
    if group in (NODES, EDGES):
        found = [*folder.glob("nodes*.parquet" if group.is_node else "edges*.parquet")]
    else:
        place, name = folder / ("nodes" if group.is_node else "edge_index"), escape(group_folder(group))
        found = [*place.glob(f"{name}.parquet"), *place.glob(f"{name}.*.parquet")]
    return sorted(found, key=_numbered)


def _numbered(path: Path) -> list[tuple[int, str]]:
    """Returns a key by which file names sort with 2 before 10."""
    stem = path.name.removesuffix(".parquet")
    return [(int(part), part) if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", stem)]


def has_edges(path: Path) -> bool:
    """Returns True if a Parquet file has a column of edges' ends; False without pyarrow."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return False
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            return not set(ENDS).isdisjoint(file.schema_arrow.names)
    except (OSError, pa.ArrowException):
        return False


def read_parquet_edges(files: Sequence[Path]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns the edges of all files, file after file, [2, E] int32 if no file has wider ids, else
    int64; and the other columns by name, [E, ...]."""
    _, columns = read_parquet(files, ENDS)
    ends = [columns.pop(name) for name in ENDS]
    narrow = all(one.dtype.itemsize <= 4 and one.dtype != np.uint32 for one in ends)
    return np.stack(ends, dtype=np.int32 if narrow else np.int64, casting="unsafe"), columns


def read_parquet(files: Sequence[Path], ids: Sequence[str] = ()) -> tuple[int, dict[str, np.ndarray]]:
    """Returns the number of rows of all files, and the columns that a tensor can hold, by name,
    file after file. Missing floating-point numbers are NaN. A UserWarning names other columns.
    ``ids``: columns of integers that must be there. Raises `DatasetError`."""
    pq = _pyarrow(files)
    import pyarrow as pa

    pieces, rows = [], 0
    for path in files:
        with _reading(path, ids), pq.ParquetFile(path, memory_map=True) as file:
            read = _columns_of(pa, file, path, ids)
            table = file.read(columns=read)
        rows += table.num_rows
        pieces.append({name: _values(pa, path, name, table.column(name)) for name in read})
    first = pieces[0]
    for path, columns in zip(files, pieces, strict=True):
        if different := first.keys() ^ columns.keys():
            fact = f"is a column of {path.name} or of {files[0].name}, but not of both"
            raise broken(path, min(different), fact, "write the same columns to all parts")
        for name, values in columns.items():
            like = first[name]
            if name not in ids and (values.dtype, values.shape[1:]) != (like.dtype, like.shape[1:]):
                fact = f"is {values.dtype} {list(values.shape[1:])}, but {like.dtype} {list(like.shape[1:])}"
                raise broken(path, name, f"{fact} in {files[0].name}", "write it with one type")
    return rows, {name: np.concatenate([columns[name] for columns in pieces]) for name in first}


@contextmanager
def _reading(path: Path, ids: Sequence[str]) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, DatasetError):
            raise
        what = ", ".join(ids) or "columns"
        raise broken(path, what, f"not readable as Parquet ({error})", "write the file again") from error


def _columns_of(pa: Any, file: Any, path: Path, ids: Sequence[str]) -> list[str]:
    schema, present = file.schema_arrow, file.schema_arrow.names
    for column in ids:
        if column not in present:
            fact = f"no such column among {present}"
            raise broken(path, column, fact, f"name the columns {' and '.join(ids)}")
    read = [one.name for one in schema if one.name in ids or _is_held(pa, one.type)]
    if others := [f"{one.name} ({one.type})" for one in schema if one.name not in read]:
        warnings.warn(
            f"{path}: the columns {', '.join(others)} are not read, as no tensor holds them. Store numbers, "
            f"booleans, times or lists of a fixed size, or remove them",
            UserWarning,
            stacklevel=2,
        )
    for column in read:
        if present.count(column) > 1:
            fact = f"{present.count(column)} columns of this name among {present}"
            raise broken(path, column, fact, "rename all but one")
    for name in ids:
        if not pa.types.is_integer(schema.field(name).type):
            fact = f"type is {schema.field(name).type}, expected int32 or int64"
            raise broken(path, name, fact, "store integers")
    return read


def count_rows(files: Sequence[Path]) -> int:
    pq = _pyarrow(files)
    rows = 0
    for path in files:
        with _reading(path, ()), pq.ParquetFile(path) as file:
            rows += file.metadata.num_rows
    return rows


def columns_of_edges(files: Sequence[Path]) -> list[str]:
    import pyarrow as pa

    pq = _pyarrow(files)
    with _reading(files[0], ENDS), pq.ParquetFile(files[0]) as file:
        return [name for name in _columns_of(pa, file, files[0], ENDS) if name not in ENDS]


def parquet_pieces(
    files: Sequence[Path], columns: Sequence[str], size: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yields columns of all files, by name, at most ``size`` rows at a time."""
    import pyarrow as pa

    pq = _pyarrow(files)
    for path in files:
        with _reading(path, columns), pq.ParquetFile(path) as file:
            for batch in file.iter_batches(size, columns=list(columns)):
                table = pa.Table.from_batches([batch])
                if table.num_rows:
                    yield {name: _values(pa, path, name, table.column(name)) for name in columns}


def _pyarrow(files: Sequence[Path]) -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise DatasetError(f"{files[0]}: reading Parquet needs pyarrow; pip install pyarrow") from error
    return pq


def _is_held(pa: Any, kind: Any) -> bool:
    if pa.types.is_fixed_size_list(kind):
        return _is_number(pa, kind.value_type)
    return _is_number(pa, kind) or _is_time(pa, kind)


def _is_number(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_time(pa: Any, kind: Any) -> bool:
    types = pa.types
    return bool(types.is_timestamp(kind) or types.is_date(kind) or types.is_duration(kind))


def _values(pa: Any, path: Path, name: str, values: Any) -> np.ndarray:
    rows, kind = len(values), values.type
    is_list = pa.types.is_fixed_size_list(kind)
    missing = values.null_count
    if is_list and not missing:
        parts = [chunk.flatten() for chunk in values.chunks]
        values, kind = pa.chunked_array(parts, kind.value_type), kind.value_type
        missing = values.null_count
    if missing and pa.types.is_floating(kind):
        values = values.fill_null(float("nan"))
    elif missing:
        remedy = "remove those edges" if name in ENDS else "fill them, or store floating-point numbers"
        raise broken(path, name, f"{missing} values are missing", remedy)
    if _is_time(pa, kind):
        whole = values.cast(pa.int32()) if pa.types.is_date32(kind) else values
        values = whole.cast(pa.int64())
    found = np.asarray(values.to_numpy())
    return found.reshape(rows, -1 if rows else 0) if is_list else found
