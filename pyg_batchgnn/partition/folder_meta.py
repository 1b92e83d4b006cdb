"""META.json of a folder that holds a partitioned graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyg_batchgnn.data import decoded_by, edge_array
from pyg_batchgnn.data.files import META_FILE, ArrayPromise, MetaFormat, broken, promises
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.types import HOMOGENEOUS, Schema

_REMEDY = "restore the file or partition again"
#: Version 3 has a schema. Homogeneous graphs are written as version 2, without one. Version 4 has
#: tables of int8 codes, which older releases would take for features.
VERSION, TYPED_VERSION, CODES_VERSION = 2, 3, 4
FORMAT = MetaFormat(
    "pyg_batchgnn.partition",
    (VERSION, TYPED_VERSION, CODES_VERSION),
    "save_partition or `batchgnn partition`",
    _REMEDY,
)


@dataclass(frozen=True)
class PartitionMeta:
    schema: Schema  # node types and relations
    book: PartitionBook  # the book of the saved parts
    edge_counts: tuple[int, ...]  # edges by relation in the whole graph
    #: promises by array: ``part-00003/indices``, ``part-00003/nodes/x``, and for scales and
    #: offsets, which all parts share, ``decoding/nodes/x``
    arrays: Mapping[str, ArrayPromise]
    #: how the parts were made: data set, policy, seed
    origin: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""  # of META.json, by which ranks see that they read the same

    def file(self, folder: Path, array: str) -> Path:
        return folder / f"{array}.npy"

    def write(self, folder: Path) -> None:
        typed = self.schema.has_names
        content = {
            **(self.schema.to_json() if typed else {}),
            "offsets": self.book.offsets.tolist(),
            "num_edges": list(self.edge_counts) if typed else self.edge_counts[0],
            "origin": dict(self.origin),
        }
        has_codes = any(decoded_by(array) is not None for array in self.arrays)
        version = CODES_VERSION if has_codes else TYPED_VERSION if typed else VERSION
        FORMAT.write(folder, version, content, self.arrays)


def part_name(number: int) -> str:
    """Returns the folder of a part: "part-00003" for number 3."""
    return f"part-{number:05}"


def is_partition(folder: str | Path) -> bool:
    """Returns True if the folder's META.json says that it holds a partition."""
    return FORMAT.is_in(folder)


def read_partition_meta(folder: Path) -> PartitionMeta:
    """Returns the META.json of a partition, checked. Raises `DatasetError` if it is missing,
    damaged or of another format."""
    content, digest = FORMAT.read(folder)
    with FORMAT.parsing(folder):
        typed = "node_types" in content
        schema = Schema.from_json(content) if typed else HOMOGENEOUS
        counts = content["num_edges"] if typed else [content["num_edges"]]
        meta = PartitionMeta(
            schema=schema,
            book=PartitionBook(content["offsets"], schema.num_types),
            edge_counts=tuple(map(int, counts)),
            arrays=promises(folder / META_FILE, content["arrays"], _REMEDY),
            origin=dict(content["origin"]),
            digest=digest,
        )
    _check_shapes(folder / META_FILE, meta)
    return meta


def _check_shapes(path: Path, meta: PartitionMeta) -> None:
    """Raises `DatasetError` unless every part has its arrays, in the sizes of the book."""
    schema, book = meta.schema, meta.book
    if len(meta.edge_counts) != schema.num_relations:
        fact = f"has {len(meta.edge_counts)} numbers for {schema.num_relations} relations"
        raise broken(path, "num_edges", fact, _REMEDY)
    for number in range(book.parts):
        _check_rows(path, meta, f"{part_name(number)}/node", len(book.nodes_of(number)))
    for group, target, count in zip(schema.edge_groups, schema.target_types, meta.edge_counts, strict=True):
        found = 0
        for number in range(book.parts):
            indptr, indices, edge_ids = (
                f"{part_name(number)}/{edge_array(name, group)}" for name in ("indptr", "indices", "edge_ids")
            )
            _check_rows(path, meta, indptr, len(book.nodes_of(number, target)) + 1)
            edges = _check_rows(path, meta, indices, None)
            found += _check_rows(path, meta, edge_ids, edges)
        if found != count:
            of = "" if schema == HOMOGENEOUS else f" of {group}"
            fact = f"the parts have {found} edges{of}, num_edges is {count}"
            raise broken(path, "arrays", fact, _REMEDY)


def _check_rows(path: Path, meta: PartitionMeta, array: str, rows: int | None) -> int:
    """Returns the length of an array. Raises `DatasetError` if it is not ``rows``, if given."""
    promise = meta.arrays.get(array)
    if promise is None or len(promise.shape) != 1 or (rows is not None and promise.shape[0] != rows):
        seen = None if promise is None else list(promise.shape)
        fact = f"{array} has shape {seen}, expected [{'edges' if rows is None else rows}]"
        raise broken(path, "arrays", fact, _REMEDY)
    return promise.shape[0]
