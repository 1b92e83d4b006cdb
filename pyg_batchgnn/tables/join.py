"""Finds the ids of keys, by DuckDB's joins under a memory limit.

DuckDB may return rows in any order. Every row carries its position, to which its id is written, so
that the result does not depend on threads and memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.data.files import npy_header
from pyg_batchgnn.tables.source import RawTable, literal, need, quoted
from pyg_batchgnn.tables.values import is_number, is_uuid

#: Of a memory limit, what Python, its libraries and chunks under way may take; at most half.
_OURS = 1 << 30
_BATCH = 1 << 18
_FLUSH = 1 << 24  # Ids that are written before the pages of the mapped file are given back.
_GROUP_ROWS = 1 << 19


class Engine:
    """DuckDB in this process, with limits. ``folder``: for what does not fit into memory.
    ``memory_limit``: bytes of the whole process."""

    def __init__(self, folder: Path, memory_limit: int, threads: int) -> None:
        duckdb = need("duckdb")
        folder.mkdir(parents=True, exist_ok=True)
        self.connection = duckdb.connect()
        for setting in (
            f"memory_limit = '{max(memory_limit - _OURS, memory_limit // 2)}B'",
            f"threads = {threads}",
            f"temp_directory = {literal(str(folder))}",
            "preserve_insertion_order = true",
            "enable_progress_bar = false",
        ):
            self.connection.execute(f"SET {setting}")

    def close(self) -> None:
        self.connection.close()

    def batches(self, query: str) -> Iterator[Any]:
        """Yields the result of a query as Arrow batches. Raises `DatasetError` if memory or disk
        are too small, or a value does not fit its column."""
        duckdb = need("duckdb")
        try:
            found = self.connection.sql(query)
            read = getattr(found, "to_arrow_reader", None) or found.fetch_arrow_reader
            yield from read(_BATCH)
        except duckdb.ConversionException as error:
            fact = str(error).partition("\n")[0]
            raise DatasetError(f"tables: {fact}; give all files one type for the column") from error
        except duckdb.Error as error:
            raise DatasetError(f"tables: DuckDB gives up ({error}); check files, memory and disk") from error

    def columns(self, query: str) -> list[np.ndarray]:
        batches = list(self.batches(query))
        if not batches:
            return []
        table = need("pyarrow").Table.from_batches(batches)
        return [np.asarray(column.to_numpy()) for column in table.columns]


def is_key(kind: Any, own: bool) -> bool:
    """Returns True if values of an Arrow type can be keys: no lists, no numbers with a fraction.
    ``own``: False allows floating-point columns that name another table's keys; pandas stores whole
    numbers so if some are missing."""
    types = need("pyarrow").types
    return not (types.is_nested(kind) or types.is_null(kind) or (own and types.is_floating(kind)))


def compared(kinds: Sequence[Any]) -> str:
    """Returns the SQL type in which key columns of Arrow types are compared; "": as they are."""
    types = need("pyarrow").types
    floating = any(types.is_floating(kind) for kind in kinds)
    if len({str(kind) for kind in kinds}) == 1 and not floating and not is_uuid(kinds[0]):
        return ""
    if all(is_number(kind) for kind in kinds):
        return "HUGEINT" if any(types.is_uint64(kind) for kind in kinds) else "BIGINT"
    return "VARCHAR"


def _as(column: str, sql_type: str, kind: Any) -> str:
    """Returns the SQL of a key column in another type. Decimals lose zeros behind the point."""
    found = f"CAST({column} AS {sql_type})" if sql_type else column
    is_decimal = sql_type == "VARCHAR" and need("pyarrow").types.is_decimal(kind)
    return f"regexp_replace({found}, '\\.0+$', '')" if is_decimal else found


class KeyWriter:
    def __init__(self, path: Path, schema: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.schema, self.rows = schema, 0
        self._file = need("pyarrow.parquet").ParquetWriter(path, schema, compression="zstd")
        self._waiting: list[Any] = []

    def append(self, table: Any) -> None:
        self._waiting += table.cast(self.schema).to_batches()
        self.rows += len(table)
        self._write(_GROUP_ROWS)

    def _write(self, least: int) -> None:
        pa = need("pyarrow")
        while sum(map(len, self._waiting)) >= max(least, 1):
            table = pa.Table.from_batches(self._waiting, self.schema)
            self._file.write_table(table.slice(0, _GROUP_ROWS).combine_chunks())
            self._waiting = table.slice(_GROUP_ROWS).to_batches()

    def __enter__(self) -> KeyWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._write(1)
        self._file.close()


def repeated(engine: Engine, table: RawTable, key: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows whose key occurs more than once, ascending, and for each the first row with
    its key. Hashes of 64 bits are counted; keys are compared where hashes are equal."""
    names = {f"k{at}": column for at, column in enumerate(key)}
    rows = f"({table.sql(names)})"
    hashed, known = f"hash({', '.join(names)})", " AND ".join(f"{name} IS NOT NULL" for name in names)
    twice = engine.columns(f"SELECT {hashed} AS h FROM {rows} WHERE {known} GROUP BY h HAVING count(*) > 1")
    nothing = np.zeros(0, np.int64)
    if not twice or not len(twice[0]):
        return nothing, nothing
    pa = need("pyarrow")
    engine.connection.register("_twice", pa.table({"h": pa.array(twice[0], pa.uint64())}))
    keys = ", ".join(names)
    found = engine.columns(
        f"SELECT _row, _first FROM (SELECT _row, min(_row) OVER (PARTITION BY {keys}) AS _first, "
        f"count(*) OVER (PARTITION BY {keys}) AS _count FROM {rows} WHERE {known} AND {hashed} IN "
        f"(SELECT h FROM _twice)) WHERE _count > 1 ORDER BY _row"
    )
    engine.connection.unregister("_twice")
    return (found[0], found[1]) if found else (nothing, nothing)


def distinct_keys(
    engine: Engine, columns: Sequence[tuple[RawTable, Sequence[str]]], names: Sequence[str], path: Path
) -> int:
    """Writes the distinct keys of all columns, ascending, to a key file. ``columns``: tables with
    their key columns. ``names``: the columns of the file. Returns the number of keys."""
    pa = need("pyarrow")
    casts, kinds, of_columns = [], [], []
    for at in range(len(names)):
        found = [table.schema.field(own[at]).type for table, own in columns]
        casts.append(compared(found))
        of_columns.append(found)
        texts = pa.string() if casts[-1] == "VARCHAR" else found[0]
        kinds.append(pa.int64() if casts[-1] in ("BIGINT", "HUGEINT") else texts)
    parts = []
    for number, (table, own) in enumerate(columns):
        inner = table.sql({f"k{at}": column for at, column in enumerate(own)}, as_keys=True)
        shown = ", ".join(
            f"{_as(f'k{at}', cast, of_columns[at][number])} AS k{at}" for at, cast in enumerate(casts)
        )
        parts.append(f"SELECT {shown} FROM ({inner})")
    keys = ", ".join(f"k{at}" for at in range(len(names)))
    known = " AND ".join(f"k{at} IS NOT NULL" for at in range(len(names)))
    query = f"SELECT DISTINCT {keys} FROM ({' UNION ALL '.join(parts)}) WHERE {known} ORDER BY {keys}"
    with KeyWriter(path, pa.schema(list(zip(names, kinds, strict=True)))) as writer:
        for batch in engine.batches(query):
            try:
                writer.append(pa.Table.from_batches([batch]).rename_columns(list(names)))
            except pa.ArrowInvalid as error:
                raise DatasetError(
                    f"{columns[0][0].where}: {', '.join(names)}: keys of the types uint64 and int64 do not "
                    f"fit one type; give all columns of these keys the same"
                ) from error
    return writer.rows


class IdFile:
    """A mapped .npy file of ids, [rows] or [k, rows], to be filled in any order. Written pages go
    back to the system from time to time."""

    def __init__(self, path: Path, dtype: np.dtype | type, shape: tuple[int, ...]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._written = path, 0
        header = npy_header(np.dtype(dtype), shape)
        with path.open("wb") as stream:
            stream.write(header)
            stream.truncate(len(header) + int(np.prod(shape)) * np.dtype(dtype).itemsize)
        self.values: np.ndarray = (
            np.memmap(path, dtype, "r+", len(header), shape) if np.prod(shape) else np.zeros(shape, dtype)
        )

    def put(self, at: int, rows: np.ndarray, ids: np.ndarray) -> None:
        """Writes ``ids`` of the table's ``rows``, positions, to row `at` of the file."""
        if not len(rows):
            return
        first, last = int(rows[0]), int(rows[-1])
        if last - first == len(rows) - 1 and bool((rows[1:] > rows[:-1]).all()):
            self.values[at, first : last + 1] = ids
        else:
            self.values[at, rows] = ids
        self._written += len(rows)
        if self._written >= _FLUSH:
            self.release()

    def release(self) -> None:
        self._written = 0
        mapped = getattr(self.values, "_mmap", None)
        if mapped is not None and hasattr(mapped, "madvise"):
            import mmap

            mapped.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        if isinstance(self.values, np.memmap):
            self.values.flush()
        self.values = self.values[..., :0]
        with self.path.open("rb") as stream:
            os.fsync(stream.fileno())


def match(engine: Engine, table: RawTable, columns: Sequence[str], keys: Path, out: IdFile, at: int) -> None:
    """Writes the id of each row's key to row `at` of ``out``, -1 for a key not in file ``keys``."""
    schema = need("pyarrow.parquet").read_schema(keys)
    names = [f"k{number}" for number in range(len(columns))]
    kinds = [table.schema.field(column).type for column in columns]
    casts = [compared([field.type, kind]) for field, kind in zip(schema, kinds, strict=True)]
    probe = table.sql(dict(zip(names, columns, strict=True)), as_keys=True)
    build = ", ".join(
        f"{_as(quoted(field.name), cast, field.type)} AS {name}"
        for field, cast, name in zip(schema, casts, names, strict=True)
    )
    equal = " AND ".join(
        f"{_as(f'p.{name}', cast, kind)} = n.{name}"
        for name, cast, kind in zip(names, casts, kinds, strict=True)
    )
    query = (
        f"SELECT p._row, coalesce(n._id, -1) AS _id FROM ({probe}) p LEFT JOIN (SELECT {build}, "
        f"file_row_number AS _id FROM read_parquet({literal(str(keys))}, file_row_number = true)) n "
        f"ON {equal}"
    )
    _put(engine, table, query, out, at)


def match_rows(engine: Engine, table: RawTable, column: str, ids: np.ndarray, out: IdFile, at: int) -> None:
    """Writes ids to row `at` of ``out`` for a column that names rows by position, -1 for none.
    ``ids``: the id of each row of the other table."""
    query = f"SELECT _row, CASE WHEN k >= 0 AND k < {len(ids)} THEN CAST(k AS BIGINT) ELSE -1 END AS _id"
    rows = table.sql({"k": column}, as_keys=True)
    _put(engine, table, f"{query} FROM ({rows})", out, at, np.append(ids, -1))


def _put(
    engine: Engine, table: RawTable, query: str, out: IdFile, at: int, ids: np.ndarray | None = None
) -> None:
    count = 0
    for batch in engine.batches(query):
        found = batch.column(1).to_numpy()
        out.put(at, batch.column(0).to_numpy(), found if ids is None else ids[found])
        count += len(batch)
    out.release()
    assert count == table.rows, f"{table.where}: {count} rows were joined of {table.rows}"
