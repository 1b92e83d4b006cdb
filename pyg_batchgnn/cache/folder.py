"""A saved aggregation cache: META.json and the aggregates of all targets by original id."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.cache.build import Aggregation, GraphFingerprint, row_blocks
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import DatasetError
from pyg_batchgnn.data.files import (
    META_FILE,
    ArrayPromise,
    MetaFormat,
    begin_folder,
    broken,
    file_sha256,
    map_tensor,
    npy_header,
    rename_whole,
    sync_tree,
    system_message,
    verify_tensor,
    writing,
)
from pyg_batchgnn.partition import refuse_existing, with_files
from pyg_batchgnn.types import NewRows

_ARRAY = "aggregates"
_ANEW = "make the cache again, or give another folder"
VERSION = 2
FORMAT = MetaFormat("pyg_batchgnn.aggregation_cache", (VERSION,), "AggregationCache.save", _ANEW)


@dataclass(frozen=True)
class CacheMeta:
    """The contents of a cache folder's META.json."""

    kind: Aggregation  # the aggregation
    fingerprint: GraphFingerprint  # of the edges and the features that the aggregates were made of
    promise: ArrayPromise  # what the file of the aggregates must be
    digest: str = ""  # SHA-256 of META.json, by which ranks see that they read the same folder

    def write(self, folder: Path) -> None:
        made_of = asdict(self.fingerprint)
        only = {"relation": None, "aggregation": self.kind.value, "made_of": made_of, "array": _ARRAY}
        FORMAT.write(folder, VERSION, {"relations": [only]}, {_ARRAY: self.promise})

    @classmethod
    def read(cls, folder: Path) -> CacheMeta:
        """Reads and checks META.json. Raises DatasetNotFoundError if it is missing, DatasetError if
        it is damaged or of another format or version."""
        path = folder / META_FILE
        content, digest = FORMAT.read(folder)
        with FORMAT.parsing(folder):
            relations = [(one["relation"], one) for one in content["relations"]]
            if [names for names, _ in relations] != [None]:
                fact = f"has aggregates of the relations {[names for names, _ in relations]}"
                raise broken(path, "relations", fact, "caches by relation are gone: train without a cache")
            only = relations[0][1]
            kind = Aggregation(only["aggregation"])
            fingerprint = GraphFingerprint.from_dict(only["made_of"])
            found = cls(kind, fingerprint, ArrayPromise.from_json(content["arrays"][_ARRAY]), digest)
        found._check(path)
        return found

    def _check(self, path: Path) -> None:
        shape = (self.fingerprint.num_nodes, self.fingerprint.columns)
        if self.promise.shape != shape:
            fact = f"shape is {list(self.promise.shape)}, made of {list(shape)}"
            raise broken(path, _ARRAY, fact, _ANEW)
        if self.promise.dtype not in ("float32", "float64", "bfloat16"):
            fact = f"dtype is {self.promise.dtype!r}, which no aggregates have"
            raise broken(path, _ARRAY, fact, _ANEW)

    def check_fingerprint(self, folder: Path, seen: GraphFingerprint) -> None:
        if differences := self.fingerprint.differences(seen):
            fact = f"was made of other data: the graph has {', '.join(differences)}"
            raise DatasetError(f"{folder}: the aggregation cache {fact}; {_ANEW}")

    def check_kind(self, folder: Path, wanted: Aggregation | None) -> None:
        if wanted not in (None, self.kind):
            fact = f"holds aggregates by {self.kind.value}, but {wanted.value} is wanted"
            raise DatasetError(f"{folder}: {fact}; {_ANEW}")


T = TypeVar("T")


def is_aggregation_cache(folder: str | Path) -> bool:
    """Returns whether a folder's META.json says that it holds an aggregation cache."""
    return FORMAT.is_in(folder)


def verify_aggregation_cache(folder: str | Path) -> None:
    """Compares all files of a cache folder with META.json, checksums included. Raises
    DatasetNotFoundError for a missing file, DatasetError for one that differs."""
    path = Path(folder).expanduser()
    verify_tensor(_file(path), _ARRAY, CacheMeta.read(path).promise)


def save_rows(
    path: Path,
    kind: Aggregation,
    fingerprint: GraphFingerprint,
    node: Tensor | None,
    rows: Tensor,
    comm: Communicator | None,
) -> Path:
    """Writes a cache folder; all ranks write to the same files. ``node``: [n] original ids of the
    rows [n, F]; None for all nodes in order."""
    temporary, leads = path.with_name(f".{path.name}.partial"), comm is None or comm.rank == 0
    file, shape = _file(temporary), (fingerprint.num_nodes, fingerprint.columns)
    stored = rows.view(torch.int16) if rows.dtype == torch.bfloat16 else rows
    dtype = torch.empty(0, dtype=stored.dtype).numpy().dtype
    header = npy_header(dtype, shape)

    def begin() -> None:
        begin_folder(path, temporary)
        with writing(file), file.open("wb") as stream:
            stream.write(header)
            stream.flush()
            # Rows are written through a map, where a full disk would end the process.
            os.posix_fallocate(stream.fileno(), 0, len(header) + math.prod(shape) * dtype.itemsize)

    def write() -> None:
        if not rows.numel():
            return
        mapped = np.memmap(file, dtype, "r+", len(header), shape)
        for block in row_blocks(len(rows)):
            at = slice(block.start, block.stop)
            mapped[at if node is None else node[at].numpy()] = stored[at].numpy()
        mapped.flush()

    def end() -> None:
        promise = ArrayPromise(str(rows.dtype).removeprefix("torch."), shape, file_sha256(file))
        CacheMeta(kind, fingerprint, promise).write(temporary)
        sync_tree(temporary)
        rename_whole(temporary, path)

    try:
        if comm is not None:
            refuse_existing(path, comm)
        work_with_files(comm, lambda: begin() if leads else None)
        work_with_files(comm, write)
        work_with_files(comm, lambda: end() if leads else None)
    except BaseException:
        if leads:
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    return path


def load_rows(folder: Path, meta: CacheMeta, node: Tensor, out: NewRows) -> None:
    """Reads the rows of nodes [n] int64, given by original ids, into ``out`` [n, F]."""
    table = map_tensor(_file(folder), _ARRAY, meta.promise)
    for rows in row_blocks(len(node)):
        out.write(rows.start, table[node[rows.start : rows.stop]])


def work_with_files(comm: Communicator | None, work: Callable[[], T]) -> T:
    """Runs ``work``. An OSError on one rank becomes a DatasetError on every rank."""
    if comm is not None:
        return with_files(comm, work)
    try:
        return work()
    except DatasetError:
        raise
    except OSError as error:
        raise DatasetError(system_message(error)) from error


def _file(folder: Path) -> Path:
    return folder / f"{_ARRAY}.npy"
