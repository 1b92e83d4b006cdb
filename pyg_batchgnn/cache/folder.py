"""A saved aggregation cache: META.json and the aggregates of all targets by original id."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.cache.build import row_blocks
from pyg_batchgnn.cache.fingerprint import GraphFingerprint
from pyg_batchgnn.cache.folder_meta import FORMAT, CacheMeta, RelationMeta
from pyg_batchgnn.cache.kinds import Aggregation
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import DatasetError, Relation
from pyg_batchgnn.data.files import (
    META_FILE,
    ArrayPromise,
    file_sha256,
    map_tensor,
    npy_header,
    read_json,
    rename_whole,
    sync_tree,
    system_message,
    verify_tensor,
    writing,
)
from pyg_batchgnn.partition import refuse_existing, with_files

T = TypeVar("T")


def is_aggregation_cache(folder: str | Path) -> bool:
    """Returns whether a folder says that it holds an aggregation cache."""
    path = Path(folder).expanduser() / META_FILE
    return path.is_file() and read_json(path).get("format") == FORMAT


def verify_aggregation_cache(folder: str | Path) -> None:
    """Compares the files of aggregates with META.json, checksums included, however large they are.

    Raises:
        DatasetNotFoundError: a file does not exist.
        DatasetError: a file differs.
    """
    path = Path(folder).expanduser()
    for one in CacheMeta.read(path).relations:
        verify_tensor(one.file(path), one.array, one.promise)


@dataclass(frozen=True, eq=False)
class SavedRows:
    """The aggregates of one relation that a process writes.

    Attributes:
        relation: the names; None in a graph of one node type and one relation.
        array: the name of the array.
        kind, fingerprint: for META.json.
        node: [n] original ids of the rows; None where the rows are those of all nodes in order.
        rows: [n, F] aggregates.
    """

    relation: Relation | None
    array: str
    kind: Aggregation
    fingerprint: GraphFingerprint
    node: Tensor | None
    rows: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """The sizes of the whole array."""
        return self.fingerprint.num_nodes, self.fingerprint.columns

    def file(self, folder: Path) -> Path:
        """Returns the file of the array."""
        return folder / f"{self.array}.npy"

    def meta(self, folder: Path) -> RelationMeta:
        """Returns the entry of META.json, after the file has been written."""
        dtype = str(self.rows.dtype).removeprefix("torch.")
        promise = ArrayPromise(dtype, self.shape, file_sha256(self.file(folder)))
        return RelationMeta(self.relation, self.kind, self.fingerprint, self.array, promise)


def save_rows(path: Path, saved: Sequence[SavedRows], comm: Communicator | None) -> Path:
    """Writes a folder; see `AggregationCache.save`. All ranks write their rows to the same files.

    Args:
        path: the folder; it must not exist.
        saved: the aggregates of each relation.
        comm: of all ranks; None in one process.
    """
    temporary, leads = path.with_name(f".{path.name}.partial"), comm is None or comm.rank == 0

    def all_ranks(work: Callable[[], T]) -> T:
        return work_with_files(comm, work)

    try:
        if comm is not None:
            refuse_existing(path, comm)
        all_ranks(lambda: _begin(path, temporary, saved) if leads else None)
        all_ranks(lambda: _write(temporary, saved))
        all_ranks(lambda: _end(path, temporary, saved) if leads else None)
    except BaseException:
        if leads:
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    return path


def load_rows(folder: Path, meta: RelationMeta, node: Tensor, out: Tensor) -> None:
    """Reads the rows of some nodes into memory.

    Args:
        folder: of the cache.
        meta: what META.json says of the relation.
        node: [n] int64, the original ids of these nodes.
        out: [n, F] of the file's type, written to.
    """
    table = map_tensor(meta.file(folder), meta.array, meta.promise)
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
        raise DatasetError(system_message(error)) from error


def _stored(dtype: torch.dtype) -> np.dtype:
    """Returns NumPy's type for the file. NumPy lacks bfloat16, which is stored as int16."""
    stored = torch.int16 if dtype == torch.bfloat16 else dtype
    return torch.empty(0, dtype=stored).numpy().dtype


def _begin(path: Path, temporary: Path, saved: Sequence[SavedRows]) -> None:
    if path.exists():
        raise DatasetError(f"{path}: exists already; remove it or choose another folder")
    shutil.rmtree(temporary, ignore_errors=True)
    with writing(path):
        temporary.mkdir(parents=True)
    for one in saved:
        file, stored = one.file(temporary), _stored(one.rows.dtype)
        header = npy_header(stored, one.shape)
        file.parent.mkdir(exist_ok=True)
        with writing(file), file.open("wb") as stream:
            stream.write(header)
            stream.flush()
            # Rows are written through a map, where a full disk would end the process.
            os.posix_fallocate(stream.fileno(), 0, len(header) + math.prod(one.shape) * stored.itemsize)


def _write(temporary: Path, saved: Sequence[SavedRows]) -> None:
    for one in saved:
        _write_rows(one.file(temporary), one)


def _write_rows(file: Path, one: SavedRows) -> None:
    rows = one.rows
    if not rows.numel():
        return
    offset = len(npy_header(_stored(rows.dtype), one.shape))
    stored = rows.view(torch.int16) if rows.dtype == torch.bfloat16 else rows
    mapped = np.memmap(file, _stored(rows.dtype), "r+", offset, one.shape)
    for block in row_blocks(len(rows)):
        at = slice(block.start, block.stop)
        mapped[at if one.node is None else one.node[at].numpy()] = stored[at].numpy()
    mapped.flush()


def _end(path: Path, temporary: Path, saved: Sequence[SavedRows]) -> None:
    CacheMeta([one.meta(temporary) for one in saved]).write(temporary)
    sync_tree(temporary)
    rename_whole(temporary, path)
