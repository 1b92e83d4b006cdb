"""The rows of tables: Parquet and CSV files, local or remote, in their order."""

from __future__ import annotations

import bisect
import csv
import gzip
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from pyg_batchgnn.data import DatasetError, whole_below
from pyg_batchgnn.tables.description import EdgeTable, NodeTable

#: Rows that are read and encoded at a time. Statistics are summed in these steps, so another number
#: would change their last bits.
CHUNK = 1 << 17
_PARQUET = (".parquet", ".parq", ".pq")
_CSV_BYTES = 1 << 24
#: A whole number as it is written: no zeros in front, no sign +, within int64.
_WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"
_ROW = "file_row_number"  # DuckDB's column with the position of a row in its file


def need(module: str) -> Any:
    """Imports pyarrow, duckdb or one of their modules. Raises `DatasetError` if it is missing."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise DatasetError(f"tables need {name}; pip install 'pyg_batchgnn[tables]'") from error


def _remote(path: str) -> Any:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise DatasetError(f"{path}: other file systems need fsspec; pip install fsspec") from error
    try:
        return url_to_fs(path)
    except (ImportError, ValueError) as error:
        raise DatasetError(f"{path}: cannot be opened ({error}); correct it") from error


def _is_remote(path: str) -> bool:
    return "://" in path


def open_file(path: str) -> IO[bytes]:
    """Opens a local or remote file for reading, unzipped if it ends in .gz."""
    if _is_remote(path):
        files, inner = _remote(path)
        opened: IO[bytes] = files.open(inner, "rb")
    else:
        opened = Path(path).open("rb")  # noqa: SIM115 (the caller closes it)
    return gzip.open(opened) if path.endswith(".gz") else opened  # type: ignore[return-value]


def state_of(path: str) -> list[Any]:
    """Returns a file's path, size and time of writing, which tell whether it changed."""
    if not _is_remote(path):
        stat = Path(path).stat()
        return [path, stat.st_size, stat.st_mtime_ns]
    files, inner = _remote(path)
    info = files.info(inner)
    when = next(
        (str(info[key]) for key in ("LastModified", "mtime", "etag", "ETag", "created") if key in info), ""
    )
    return [path, info.get("size"), when]


def numbered(path: str) -> list[tuple[int, str]]:
    return [(int(part), part) if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path)]


def expand(where: str, folder: Path, files: Sequence[str]) -> list[str]:
    """Returns the files of names and globs, each name's in natural order. ``where``: the table in
    errors. Raises `DatasetError` if a name has no file."""
    found: list[str] = []
    for name in files:
        if _is_remote(name):
            system, inner = _remote(name)
            protocol = name.partition("://")[0]
            there = [
                f"{protocol}://{one.lstrip('/')}" if protocol != "file" else f"file://{one}"
                for one in system.glob(inner)
            ]
        else:
            pattern = Path(name).expanduser()
            if pattern.is_absolute():
                there = [
                    str(one) for one in Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))
                ]
            elif (folder / name).is_file():
                there = [str(folder / name)]
            else:
                there = [str(one) for one in folder.glob(name)]
        if not there:
            raise DatasetError(f"{where}: files: {name!r} stands for no file in {folder}; correct it")
        found += sorted(there, key=numbered)
    return list(dict.fromkeys(found))


def is_database(path: str) -> bool:
    """Returns True if a local file is a DuckDB database, by ending and header."""
    if _is_remote(path) or not path.lower().endswith((".duckdb", ".ddb", ".db")):
        return False
    with open_file(path) as stream:
        return stream.read(12)[8:] == b"DUCK"


def _stage_database(where: str, path: str, table: str | None, copy: Path) -> None:
    """Copies a table of a database, opened for reading only, to a Parquet file."""
    duckdb, temporary = need("duckdb"), copy.with_suffix(".partial")
    if copy.is_file():
        return
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        with duckdb.connect(path, read_only=True, config={"memory_limit": "1GB"}) as database:
            known = [name for (name,) in database.execute("SHOW TABLES").fetchall()]
            if table is None or table not in known:
                raise DatasetError(
                    f"{where}: table: {path} has no table {table!r}; it has {', '.join(known) or 'none'}"
                )
            rows = f"(SELECT * FROM {quoted(table)})"
            database.execute(f"COPY {rows} TO {literal(str(temporary))} (FORMAT parquet)")
    except duckdb.Error as error:
        fact = f"not readable as a DuckDB database ({error})"
        raise DatasetError(f"{path}: {fact}; write it again, or wait for who writes it") from error
    temporary.rename(copy)


@dataclass(frozen=True)
class TablePart:
    path: str  # the file, as errors name it
    parquet: str  # the local Parquet file to read: the same or a copy
    rows: int  # the number of rows
    first: int  # position of its first row in the table
    delimiter: str  # of a CSV file; "" for Parquet
    schema: Any  # Arrow types by column


@dataclass(frozen=True)
class RawTable:
    """The rows of a table, as they are in its files."""

    where: str  # the table in errors, such as [nodes.user]
    parts: tuple[TablePart, ...]  # the files in order
    schema: Any  # Arrow types by column
    #: rows of CSV files with a wrong number of columns: file, record from 1 on, text
    torn: tuple[tuple[str, int, str], ...] = ()

    @cached_property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def type_of(self, column: str, key: str) -> Any:
        """Returns the Arrow type of a column. ``key``: the key of the description that names it,
        for the `DatasetError` if there is no such column."""
        if column not in self.schema.names:
            raise DatasetError(
                f"{self.where}: {key}: there is no column {column!r} in {self.parts[0].path}; it has "
                f"{', '.join(self.schema.names)}"
            )
        return self.schema.field(column).type

    def chunks(self, columns: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """Yields (first row, Arrow table) of `CHUNK` rows at a time, in order."""
        pa = need("pyarrow")
        schema = pa.schema([self.schema.field(name) for name in dict.fromkeys(columns)])
        waiting: list[Any] = []
        first = held = 0
        for batch in self._batches(schema):
            waiting.append(batch)
            held += len(batch)
            while held >= CHUNK:
                table = pa.Table.from_batches(waiting, schema)
                yield first, table.slice(0, CHUNK)
                first, held = first + CHUNK, held - CHUNK
                waiting = table.slice(CHUNK).to_batches()
        if held:
            yield first, pa.Table.from_batches(waiting, schema)

    def _batches(self, schema: Any) -> Iterator[Any]:
        pq, pa = need("pyarrow.parquet"), need("pyarrow")
        for part in self.parts:
            try:
                with pq.ParquetFile(part.parquet, pre_buffer=False) as file:
                    for batch in file.iter_batches(CHUNK, columns=schema.names):
                        table = pa.Table.from_batches([batch]).select(schema.names)
                        yield from table.cast(schema).to_batches() if table.schema != schema else [batch]
            except (pa.ArrowException, OSError) as error:
                fact = f"is damaged, or a value does not fit the type of the other files ({error})"
                raise DatasetError(f"{part.path}: {fact}; give all files one type") from error

    def sql(self, columns: dict[str, str], as_keys: bool = False) -> str:
        """Returns a query for the rows with their positions, `_row`. ``columns``: column by its
        name in the result. Whole numbers in CSV files are integers in the result. ``as_keys``: True
        makes floats integers, or NULL if they stand for none or for several. Raises `DatasetError`
        if DuckDB, which ignores case, cannot tell a column from another one."""
        lower, queries = [name.lower() for name in self.schema.names], []
        for column in [*columns.values(), *(one for one in self.schema.names if one.lower() == _ROW)]:
            if lower.count(column.lower()) > 1 or column.lower() in ("", _ROW):
                fact = "has no name, one that DuckDB takes, or one that differs from another only by case"
                raise DatasetError(
                    f"{self.where}: {self.parts[0].path}: column {column!r}: {fact}; rename it"
                )
        for part in self.parts:
            found = [f"{self._value(part, of, as_keys)} AS {quoted(name)}" for name, of in columns.items()]
            file = f"read_parquet({literal(part.parquet)}, {_ROW} = true)"
            queries.append(f"SELECT {', '.join(found)}, {_ROW} + {part.first} AS _row FROM {file}")
        return " UNION ALL ".join(queries)

    def _value(self, part: TablePart, column: str, as_key: bool) -> str:
        pa, kind, name = need("pyarrow"), part.schema.field(column).type, quoted(column)
        if as_key and pa.types.is_floating(kind):
            exact = f"{name} = floor({name}) AND abs({name}) < {whole_below(kind)}"
            return f"CASE WHEN {exact} THEN TRY_CAST({name} AS BIGINT) END"
        return f"CAST({name} AS BIGINT)" if self.schema.field(column).type == pa.int64() else name

    def place(self, row: int) -> str:
        """Returns where a row is, as a text: file and line, or row group and row."""
        file, group, inner = self.file_and_row(row)
        if group is None:
            return f"{file}: line {self.lines([(file, inner)])[0]}"
        return f"{file}: row group {group}, row {inner}"

    def file_and_row(self, row: int) -> tuple[str, int | None, int]:
        """Returns file, row group and position in the file of a row. In CSV the group is None, and
        the position is that of the record, from 1 on; the first record names the columns."""
        part = self.parts[bisect.bisect_right(self._firsts, row) - 1]  # of empty files the last
        inner = row - part.first
        if part.delimiter:
            return part.path, None, inner + 2 + bisect.bisect_right(self._torn_at[part.path], inner)
        return part.path, bisect.bisect_right(self._groups[part], inner), inner

    @cached_property
    def _torn_at(self) -> dict[str, list[int]]:
        """By file: how many whole rows lie before each row with a wrong number of columns."""
        torn = {part.path: [one for file, one, _ in self.torn if file == part.path] for part in self.parts}
        return {path: [number - 2 - at for at, number in enumerate(of)] for path, of in torn.items()}

    def lines(self, records: Sequence[tuple[str, int]]) -> list[int]:
        """Returns the lines on which CSV records end. ``records``: (file, record from 1 on)."""
        delimiter = max(part.delimiter for part in self.parts)
        found = {path: {number for of, number in records if of == path} for path in dict(records)}
        ends = {path: _lines_of(path, delimiter, numbers) for path, numbers in found.items()}
        return [ends[path][number] for path, number in records]

    @cached_property
    def _firsts(self) -> list[int]:
        return [part.first for part in self.parts]

    @cached_property
    def _groups(self) -> dict[TablePart, list[int]]:
        metas = {part: need("pyarrow.parquet").read_metadata(part.parquet) for part in self.parts}
        return {
            part: list(itertools.accumulate(meta.row_group(at).num_rows for at in range(meta.num_row_groups)))
            for part, meta in metas.items()
        }

    def value(self, row: int, column: str) -> Any:
        for first, chunk in self.chunks([column]):
            if row < first + len(chunk):
                return chunk.column(0)[row - first].as_py()
        raise IndexError(row)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _lines_of(path: str, delimiter: str, records: set[int]) -> dict[int, int]:
    """Returns by record of a CSV file the line on which it ends, both from 1. The first record
    names the columns. Empty lines are no records."""
    found, last = dict.fromkeys(records, 0), max(records, default=0)
    if not records:
        return found
    with open_file(path) as stream:
        lines = csv.reader((one.decode("utf-8", "replace") for one in stream), delimiter=delimiter)
        for number, _ in enumerate((line for line in lines if line), 1):
            if number in found:
                found[number] = lines.line_num
            if number >= last:
                break
    return found


def open_table(where: str, spec: NodeTable | EdgeTable, folder: Path, staged: Path) -> RawTable:
    """Opens the files of a table. CSV and remote files are copied, once, to Parquet files in
    ``staged``. Raises `DatasetError` if a file is missing or damaged, or columns differ."""
    pa = need("pyarrow")
    parts: list[TablePart] = []
    torn: list[tuple[str, int, str]] = []
    texts, seen = set[str](), set[str]()
    for number, path in enumerate(expand(where, folder, spec.files)):
        in_database, copy = is_database(path), staged / f"{number:05}.parquet"
        is_parquet = path.lower().endswith(_PARQUET) if spec.format is None else spec.format == "parquet"
        is_csv = not in_database and not is_parquet
        if spec.table is not None and not in_database:
            raise DatasetError(f"{where}: table: {path} is no DuckDB database; leave table out")
        if in_database:
            _stage_database(where, path, spec.table, copy)
        elif is_csv:
            found = _stage_csv(where, path, spec, copy)
            texts |= set(found["texts"])
            seen |= set(found["seen"])
            torn += [tuple(one) for one in found["torn"]]
        elif _is_remote(path):
            _stage_remote(path, copy)
        file = str(copy) if in_database or is_csv or _is_remote(path) else path
        rows, schema = _outline(path, file)
        first = sum(part.rows for part in parts)
        parts.append(TablePart(path, file, rows, first, spec.delimiter if is_csv else "", _plain(schema)))
    for part in parts:
        if set(part.schema.names) != set(parts[0].schema.names):
            differ = sorted(set(part.schema.names) ^ set(parts[0].schema.names))
            raise DatasetError(
                f"{where}: {part.path} and {parts[0].path} do not have the same columns: "
                f"{', '.join(differ)}; write them with the same, or name them in two tables"
            )
    try:
        schema = pa.unify_schemas([part.schema for part in parts], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DatasetError(
            f"{where}: the files differ in the type of a column ({error}); write them again with one"
        ) from error
    for name in sorted(seen - texts):
        schema = schema.set(schema.get_field_index(name), pa.field(name, pa.int64()))
    return RawTable(where, tuple(parts), schema, tuple(torn))


def _plain(schema: Any) -> Any:
    pa = need("pyarrow")
    is_dictionary = pa.types.is_dictionary
    return pa.schema(
        [(one.name, one.type.value_type if is_dictionary(one.type) else one.type) for one in schema]
    )


def _outline(path: str, file: str) -> tuple[int, Any]:
    pa, pq = need("pyarrow"), need("pyarrow.parquet")
    try:
        with pq.ParquetFile(file) as opened:
            schema = opened.schema_arrow
            for name in schema.names:
                if schema.names.count(name) > 1:
                    raise DatasetError(f"{path}: has two columns {name!r}; rename one")
            return opened.metadata.num_rows, schema
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{path}: not readable as Parquet ({error}); write the file again") from error


def _stage_remote(path: str, copy: Path) -> None:
    if copy.is_file():
        return
    temporary = copy.with_suffix(".partial")
    copy.parent.mkdir(parents=True, exist_ok=True)
    with open_file(path) as stream, temporary.open("wb") as out:
        while piece := stream.read(_CSV_BYTES):
            out.write(piece)
    temporary.rename(copy)


def _stage_csv(where: str, path: str, spec: NodeTable | EdgeTable, copy: Path) -> dict[str, Any]:
    """Copies a CSV file to a Parquet file of texts. Returns "texts": columns with a value that is
    no whole number; "seen": columns with any value; "torn": as in a `RawTable`."""
    pa, pq, pc = need("pyarrow"), need("pyarrow.parquet"), need("pyarrow.compute")
    note = copy.with_suffix(".json")
    if copy.is_file() and note.is_file():
        return dict(json.loads(note.read_text(encoding="utf-8")))
    copy.parent.mkdir(parents=True, exist_ok=True)
    temporary, torn = copy.with_suffix(".partial"), list[tuple[str, int, str]]()
    with open_file(path) as stream:
        names = _header(path, stream, spec.delimiter)
    texts, seen = set[str](), set[str]()
    with open_file(path) as stream:
        reader = _csv_reader(where, path, stream, names, spec, torn)
        with pq.ParquetWriter(temporary, pa.schema([(name, pa.string()) for name in names])) as writer:
            try:
                for batch in reader:
                    writer.write_batch(batch)
                    for name in names:
                        column = batch.column(name)
                        if column.null_count < len(column):
                            seen.add(name)
                        if (
                            name not in texts
                            and pc.all(pc.match_substring_regex(column, _WHOLE)).as_py() is False
                        ):
                            texts.add(name)
            except pa.ArrowInvalid as error:
                raise DatasetError(f"{path}: not readable as CSV ({error}); correct the file") from error
    found = {"texts": sorted(texts), "seen": sorted(seen), "torn": torn}
    note.write_text(json.dumps(found), encoding="utf-8")
    temporary.rename(copy)
    return found


def _header(path: str, stream: IO[bytes], delimiter: str) -> list[str]:
    try:
        line = next(csv.reader((one.decode("utf-8-sig") for one in stream), delimiter=delimiter), [])
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise DatasetError(f"{path}: not readable as CSV ({error}); give files in UTF-8") from error
    if not line or len(set(line)) < len(line) or "" in line:
        raise DatasetError(
            f"{path}: the first line is {','.join(line)!r}; a CSV file starts with the names of its columns, "
            f"each once"
        )
    return line


def _csv_reader(
    where: str,
    path: str,
    stream: IO[bytes],
    names: list[str],
    spec: NodeTable | EdgeTable,
    torn: list[tuple[str, int, str]],
) -> Any:
    pa, pcsv = need("pyarrow"), need("pyarrow.csv")

    def on_torn(row: Any) -> str:
        if spec.on_bad_rows == "error":
            return "error"
        torn.append((path, -1 if row.number is None else row.number, row.text or ""))
        return "skip"

    try:
        return pcsv.open_csv(
            stream,
            pcsv.ReadOptions(use_threads=False, block_size=_CSV_BYTES),
            pcsv.ParseOptions(delimiter=spec.delimiter, newlines_in_values=True, invalid_row_handler=on_torn),
            pcsv.ConvertOptions(
                column_types={name: pa.string() for name in names},
                strings_can_be_null=True,
                null_values=list(spec.nulls),
            ),
        )
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            return iter(())
        raise DatasetError(f"{path}: {where}: not readable as CSV ({error}); correct the file") from error
