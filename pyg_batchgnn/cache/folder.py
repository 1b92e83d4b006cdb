"""A saved aggregation cache: META.json and the aggregates of all nodes by original id."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.cache.build import row_blocks
from pyg_batchgnn.cache.fingerprint import GraphFingerprint
from pyg_batchgnn.cache.folder_meta import ARRAY, FORMAT, CacheMeta
from pyg_batchgnn.cache.kinds import Aggregation
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import DatasetError, Schema
from pyg_batchgnn.data.files import (
    META_FILE,
    ArrayPromise,
    file_sha256,
    map_tensor,
    npy_header,
    read_json,
    rename_whole,
    sync_tree,
    verify_tensor,
    writing,
)
from pyg_batchgnn.partition import refuse_existing, with_files

_FILE = f"{ARRAY}.npy"

T = TypeVar("T")


def is_aggregation_cache(folder: str | Path) -> bool:
    """Returns whether a folder says that it holds an aggregation cache."""
    path = Path(folder).expanduser() / META_FILE
    return path.is_file() and read_json(path).get("format") == FORMAT


def verify_aggregation_cache(folder: str | Path) -> None:
    """Compares the file of aggregates with META.json, checksum included, however large it is.

    Raises:
        DatasetError: the file differs.
    """
    path = Path(folder).expanduser()
    verify_tensor(path / _FILE, ARRAY, CacheMeta.read(path).promise)


def refuse_relations(schema: Schema) -> None:
    """Raises NotImplementedError if a graph has several relations: a folder holds those of one."""
    if not schema.is_plain:
        raise NotImplementedError(
            "an aggregation cache is saved and loaded for graphs of one node type and one relation; build "
            "that of several relations when it is needed"
        )


def save_rows(
    path: Path,
    kind: Aggregation,
    fingerprint: GraphFingerprint,
    node: Tensor | None,
    rows: Tensor,
    comm: Communicator | None,
) -> Path:
    """Writes a folder; see `AggregationCache.save`. All ranks write their rows to one file.

    Args:
        path: the folder; it must not exist.
        kind, fingerprint: for META.json.
        node: [n] original ids of the rows; None where the rows are those of all nodes in order.
        rows: [n, F] aggregates.
        comm: of all ranks; None in one process.
    """
    temporary, leads = path.with_name(f".{path.name}.partial"), comm is None or comm.rank == 0

    def all_ranks(work: Callable[[], T]) -> T:
        return work_with_files(comm, work)

    shape = (fingerprint.num_nodes, fingerprint.columns)
    try:
        if comm is not None:
            refuse_existing(path, comm)
        all_ranks(lambda: _begin(path, temporary, shape, rows.dtype) if leads else None)
        all_ranks(lambda: _write(temporary / _FILE, shape, node, rows))
        all_ranks(lambda: _end(path, temporary, kind, fingerprint, shape, rows.dtype) if leads else None)
    except BaseException:
        if leads:
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    return path


def load_rows(folder: Path, meta: CacheMeta, node: Tensor, out: Tensor) -> None:
    """Reads the rows of some nodes into memory.

    Args:
        folder: of the cache.
        meta: its META.json.
        node: [n] int64, the original ids of these nodes.
        out: [n, F] of the file's type, written to.
    """
    table = map_tensor(folder / _FILE, ARRAY, meta.promise)
    for rows in row_blocks(len(node)):
        out[rows.start : rows.stop] = table[node[rows.start : rows.stop]]


def work_with_files(comm: Communicator | None, work: Callable[[], T]) -> T:
    """Does work with files. An OSError becomes a DatasetError, on every rank."""
    if comm is not None:
        return with_files(comm, work)
    try:
        return work()
    except DatasetError:
        raise
    except OSError as error:
        raise DatasetError(str(error)) from error


def _stored(dtype: torch.dtype) -> np.dtype:
    """Returns NumPy's type for the file. NumPy lacks bfloat16, which is stored as int16."""
    stored = torch.int16 if dtype == torch.bfloat16 else dtype
    return torch.empty(0, dtype=stored).numpy().dtype


def _begin(path: Path, temporary: Path, shape: tuple[int, int], dtype: torch.dtype) -> None:
    if path.exists():
        raise DatasetError(f"{path}: exists already; remove it or choose another folder")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    header = npy_header(_stored(dtype), shape)
    with writing(temporary / _FILE), (temporary / _FILE).open("wb") as stream:
        stream.write(header)
        stream.flush()
        # The rows are written through a map, where a full disk would end the process.
        os.posix_fallocate(stream.fileno(), 0, len(header) + shape[0] * shape[1] * _stored(dtype).itemsize)


def _write(file: Path, shape: tuple[int, int], node: Tensor | None, rows: Tensor) -> None:
    if not rows.numel():
        return
    offset = len(npy_header(_stored(rows.dtype), shape))
    stored = rows.view(torch.int16) if rows.dtype == torch.bfloat16 else rows
    mapped = np.memmap(file, _stored(rows.dtype), "r+", offset, shape)
    for block in row_blocks(len(rows)):
        at = slice(block.start, block.stop)
        mapped[at if node is None else node[at].numpy()] = stored[at].numpy()
    mapped.flush()


def _end(
    path: Path,
    temporary: Path,
    kind: Aggregation,
    fingerprint: GraphFingerprint,
    shape: tuple[int, int],
    dtype: torch.dtype,
) -> None:
    promise = ArrayPromise(str(dtype).removeprefix("torch."), shape, file_sha256(temporary / _FILE))
    CacheMeta(kind, fingerprint, promise).write(temporary)
    sync_tree(temporary)
    rename_whole(temporary, path)
