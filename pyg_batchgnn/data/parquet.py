"""Reads edges from Parquet files (needs pyarrow)."""

from __future__ import annotations

import re
import warnings
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np

from pyg_batchgnn.data.errors import DatasetError, broken


def parquet_files(folder: Path, relation: str | None = None) -> list[Path]:
    """Returns the edge files of a folder, in the order in which their edges are numbered.

    Numbers in their names are compared as numbers.

    ``relation``: the name of a relation's files, which are `edge_index/RELATION.parquet` and
    `edge_index/RELATION.*.parquet`; None means `edges*.parquet`.
    """
    if relation is None:
        return sorted(folder.glob("edges*.parquet"), key=_numbered)
    inside = folder / "edge_index"
    found = [*inside.glob(f"{escape(relation)}.parquet"), *inside.glob(f"{escape(relation)}.*.parquet")]
    return sorted(found, key=_numbered)


def _numbered(path: Path) -> list[tuple[int, str]]:
    """Makes file names compare as 2 before 10."""
    stem = path.name.removesuffix(".parquet")
    return [(int(part), part) if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", stem)]


def has_edges(path: Path) -> bool:
    """Returns whether a Parquet file has a column of edges' ids; False without pyarrow."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return False
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            return not {"src", "dst"}.isdisjoint(file.schema_arrow.names)
    except (OSError, pa.ArrowException):
        return False


def read_parquet_edges(files: list[Path]) -> np.ndarray:
    """Reads the columns src and dst of all files, one after the other.

    Returns:
        [2, E] int32 where every file stores int32 (or less), int64 otherwise.

    Warns:
        UserWarning: a file has further columns, which are not read.

    Raises:
        DatasetError: pyarrow is not installed, or a file is damaged, lacks a column, has it twice,
            or has one that is not of integers or has missing values.
    """
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise DatasetError(f"{files[0]}: reading Parquet needs pyarrow; pip install pyarrow") from error
    pieces = [_read_file(pq, path) for path in files]
    narrow = all(piece.dtype.itemsize <= 4 and piece.dtype != np.uint32 for piece in pieces)
    return np.concatenate(pieces, axis=1, dtype=np.int32 if narrow else np.int64)


def _read_file(pq: Any, path: Path) -> np.ndarray:
    import pyarrow as pa

    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            present = file.schema_arrow.names
            _warn_of_columns(path, present)
            for column in ("src", "dst"):
                if present.count(column) > 1:
                    fact = f"{present.count(column)} columns of this name among {present}"
                    raise broken(path, column, fact, "rename all but one")
                if column not in present:
                    raise broken(
                        path, column, f"no such column among {present}", "name the columns src and dst"
                    )
            table = file.read(columns=["src", "dst"])
    except (pa.ArrowException, OSError) as error:
        fact = f"not readable as Parquet ({error})"
        raise broken(path, "src, dst", fact, "write the file again") from error
    columns = [_column(pa, path, name, table.column(name)) for name in ("src", "dst")]
    return np.stack(columns)


def _warn_of_columns(path: Path, present: list[str]) -> None:
    others = [name for name in present if name not in ("src", "dst")]
    if others:
        warnings.warn(
            f"{path}: the columns {', '.join(map(repr, others))} are not read. Put each into edges/NAME.npy, "
            "one row per edge in the order of the edges, or remove them",
            UserWarning,
            stacklevel=2,
        )


def _column(pa: Any, path: Path, name: str, values: Any) -> np.ndarray:
    if not pa.types.is_integer(values.type):
        raise broken(path, name, f"type is {values.type}, expected int32 or int64", "store integers")
    if values.null_count:
        raise broken(path, name, f"{values.null_count} values are missing", "remove those edges")
    return np.asarray(values.to_numpy())
