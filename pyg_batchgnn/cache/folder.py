"""A saved aggregation cache: META.json and the aggregates of all targets by original id."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.cache.build import row_blocks
from pyg_batchgnn.cache.fingerprint import GraphFingerprint
from pyg_batchgnn.cache.kinds import Aggregation
from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import DatasetError, edge_array
from pyg_batchgnn.data.files import (
    META_FILE,
    ArrayPromise,
    MetaFormat,
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
from pyg_batchgnn.types import EDGES, Group, Relation, RowKind, Schema

# Folder meta ######################################################################################


_ARRAY = "aggregates"
_ANEW = "make the cache again, or give another folder"
VERSION = 2
FORMAT = MetaFormat("pyg_batchgnn.aggregation_cache", (VERSION,), "AggregationCache.save", _ANEW)


def aggregates_array(relation: Relation | None) -> str:
    """Returns the array of a relation's aggregates, such as `aggregates/author__writes__paper`, or
    `aggregates` for None."""
    return edge_array(_ARRAY, EDGES if relation is None else Group(RowKind.EDGE, relation))


@dataclass(frozen=True)
class RelationMeta:
    """The aggregates of one relation, as META.json has them.

    Attributes:
        relation: the names; None in a graph of one node type and one relation.
        kind: the aggregation.
        fingerprint: of the edges and the features that the aggregates were made of.
        array: the name of the array.
        promise: what its file must be.
    """

    relation: Relation | None
    kind: Aggregation
    fingerprint: GraphFingerprint
    array: str
    promise: ArrayPromise

    @property
    def dtype(self) -> torch.dtype:
        """The type of the aggregates."""
        dtype: torch.dtype = getattr(torch, self.promise.dtype)
        return dtype

    def file(self, folder: Path) -> Path:
        """Returns the file of the aggregates."""
        return folder / f"{self.array}.npy"

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values, the promise left out."""
        return {
            "relation": None if self.relation is None else list(self.relation),
            "aggregation": self.kind.value,
            "made_of": self.fingerprint.to_dict(),
            "array": self.array,
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any], arrays: Mapping[str, Any]) -> RelationMeta:
        """Reads what `to_json` returned.

        Raises:
            KeyError, TypeError, ValueError: an entry is missing or of the wrong type.
        """
        relation = None
        if said["relation"] is not None:
            source, name, target = map(str, said["relation"])
            relation = source, name, target
        if said["array"] != aggregates_array(relation):
            raise ValueError(f"the array of {relation} is {said['array']!r}")
        return cls(
            relation,
            Aggregation(said["aggregation"]),
            GraphFingerprint.from_dict(said["made_of"]),
            str(said["array"]),
            ArrayPromise.from_json(arrays[said["array"]]),
        )

    def check(self, path: Path) -> None:
        """Raises DatasetError unless the promise is one of aggregates. ``path``: META.json."""
        shape = (self.fingerprint.num_nodes, self.fingerprint.columns)
        if self.promise.shape != shape:
            fact = f"shape is {list(self.promise.shape)}, made of {list(shape)}"
            raise broken(path, self.array, fact, _ANEW)
        if self.promise.dtype not in ("float32", "float64", "bfloat16"):
            fact = f"dtype is {self.promise.dtype!r}, which no aggregates have"
            raise broken(path, self.array, fact, _ANEW)

    def check_fingerprint(self, folder: Path, seen: GraphFingerprint) -> None:
        """Raises DatasetError unless the aggregates were made of the data that was seen."""
        if differences := self.fingerprint.differences(seen):
            where = "" if self.relation is None else f" in the relation {self.relation}"
            raise DatasetError(
                f"{folder}: the aggregation cache was made of other data: the graph has "
                f"{', '.join(differences)}{where}; {_ANEW}"
            )


@dataclass(frozen=True)
class CacheMeta:
    """Contents of META.json.

    Attributes:
        relations: the aggregates of each relation.
        digest: SHA-256 of META.json, by which ranks see that they read the same folder.
    """

    relations: Sequence[RelationMeta]
    digest: str = ""

    def write(self, folder: Path) -> None:
        """Writes META.json."""
        content = {"relations": [one.to_json() for one in self.relations]}
        FORMAT.write(folder, VERSION, content, {one.array: one.promise for one in self.relations})

    @classmethod
    def read(cls, folder: Path) -> CacheMeta:
        """Reads and checks META.json.

        Raises:
            DatasetNotFoundError: no such file.
            DatasetError: the file is damaged, or of another format or version.
        """
        path = folder / META_FILE
        content, digest = FORMAT.read(folder)
        with FORMAT.parsing(folder):
            relations = [RelationMeta.from_json(one, content["arrays"]) for one in content["relations"]]
        for at, one in enumerate(relations):
            one.check(path)
            if any(one.relation == other.relation for other in relations[:at]):
                raise broken(path, "relations", f"has {one.array!r} twice", _ANEW)
        return cls(relations, digest)

    def by_number(self, folder: Path, schema: Schema) -> dict[int, RelationMeta]:
        """Returns the aggregates by number of the relation in a graph.

        Raises:
            DatasetError: they are of relations that the graph does not have.
        """
        numbers: dict[Relation | None, int] = {None: 0}
        if not schema.is_plain:
            numbers = {relation: number for number, relation in enumerate(schema.relations)}
        for one in self.relations:
            if one.relation not in numbers:
                held = one.relation or "a graph of one node type and one relation"
                raise DatasetError(
                    f"{folder}: holds aggregates of {held}, but the graph has the relations "
                    f"{list(schema.relations)}; {_ANEW}"
                )
        return dict(sorted((numbers[one.relation], one) for one in self.relations))


def check_kinds(
    folder: Path, found: Mapping[int, RelationMeta], wanted: Mapping[int, Aggregation] | None, schema: Schema
) -> None:
    """Raises DatasetError if a folder holds others than the wanted aggregations.

    Args:
        folder: of the cache.
        found: what it holds, by number of the relation.
        wanted: the aggregation by number of the relation; None: any.
        schema: of the graph.
    """
    if wanted is None:
        return
    for number in sorted({*found, *wanted}):
        held, kind = found.get(number), wanted.get(number)
        if held is None or held.kind is not kind:
            what = "no aggregates" if held is None else f"aggregates by {held.kind.value}"
            of_relation = "" if schema.is_plain else f" of the relation {schema.relations[number]}"
            asked = "none is" if kind is None else f"{kind.value} is"
            raise DatasetError(f"{folder}: holds {what}{of_relation}, but {asked} wanted; {_ANEW}")


# Folder ###########################################################################################


T = TypeVar("T")


def is_aggregation_cache(folder: str | Path) -> bool:
    """Returns whether a folder says that it holds an aggregation cache."""
    return FORMAT.is_in(folder)


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
