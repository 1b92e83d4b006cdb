"""META.json of a folder that holds a partitioned graph."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyg_batchgnn.data import attribute_array, attribute_of, edge_array, split_array, split_of
from pyg_batchgnn.data.files import META_FILE, ArrayPromise, broken, missing, read_json, write_json
from pyg_batchgnn.partition.book import PartitionBook
from pyg_batchgnn.types import EDGES, HOMOGENEOUS, NODES, Group, Schema

FORMAT = "pyg_batchgnn.partition"
#: Version 3 has a schema. Homogeneous graphs are written as version 2, which has none. Version 1
#: has attributes and splits under other names.
VERSION, TYPED_VERSION = 2, 3
READABLE = (1, 2, 3)
_OLD_PREFIXES = {NODES: "table.", EDGES: "edge_table."}
_OLD_SPLIT = "split."
_REMEDY = "restore the file or partition again"


@dataclass(frozen=True)
class PartitionMeta:
    """The contents of META.json.

    Attributes:
        schema: the node types and the relations.
        book: the partition book of the saved parts.
        edge_counts: the number of edges of each relation in the whole graph.
        arrays: what is promised of each array, by part and name, as in ``part-00003/indices`` and
            ``part-00003/nodes/x``.
        origin: what the parts were made from: data set, policy, seed.
        digest: the digest of META.json itself, by which ranks see that they read the same.
        version: the version of the format, which decides the names of files.
    """

    schema: Schema
    book: PartitionBook
    edge_counts: tuple[int, ...]
    arrays: Mapping[str, ArrayPromise]
    origin: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""
    version: int = VERSION

    def file(self, folder: Path, array: str) -> Path:
        """Returns the file of an array."""
        return folder / f"{_old_name(array) if self.version == 1 else array}.npy"

    def write(self, folder: Path) -> None:
        """Writes META.json."""
        typed = self.schema.has_names
        content = {
            "format": FORMAT,
            "version": TYPED_VERSION if typed else VERSION,
            **(self.schema.to_json() if typed else {}),
            "offsets": self.book.offsets.tolist(),
            "num_edges": list(self.edge_counts) if typed else self.edge_counts[0],
            "arrays": {name: promise.to_json() for name, promise in sorted(self.arrays.items())},
            "origin": dict(self.origin),
        }
        write_json(folder / META_FILE, content)


def part_name(number: int) -> str:
    """Returns the name of the sub-folder of a part."""
    return f"part-{number:05}"


def is_partition(folder: str | Path) -> bool:
    """Returns whether a folder says that it holds a partitioned graph."""
    path = Path(folder).expanduser() / META_FILE
    return path.is_file() and read_json(path).get("format") == FORMAT


def read_partition_meta(folder: Path) -> PartitionMeta:
    """Reads and checks META.json.

    Raises:
        DatasetNotFoundError: no such file.
        DatasetError: damaged, of another format or another version.
    """
    path = folder / META_FILE
    if not path.is_file():
        raise missing(path, "META", "give a folder that save_partition or `batchgnn partition` wrote")
    content = read_json(path)
    if content.get("format") != FORMAT:
        fact = f"is {content.get('format')!r}, expected {FORMAT!r}"
        raise broken(path, "format", fact, "this folder holds something else: give a partition's folder")
    version = content.get("version")
    if version not in READABLE:
        fact = f"is {version!r}, this release reads {', '.join(map(str, READABLE))}"
        raise broken(path, "version", fact, "update pyg_batchgnn or partition again")
    try:
        schema = Schema.from_json(content) if version == TYPED_VERSION else HOMOGENEOUS
        counts = content["num_edges"] if version == TYPED_VERSION else [content["num_edges"]]
        meta = PartitionMeta(
            schema=schema,
            book=PartitionBook(content["offsets"], schema.num_types),
            edge_counts=tuple(map(int, counts)),
            arrays={
                (_new_name(name) if version == 1 else name): ArrayPromise.from_json(said)
                for name, said in content["arrays"].items()
            },
            origin=dict(content["origin"]),
            version=version,
            digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        raise broken(path, "contents", f"damaged ({error!r})", _REMEDY) from error
    _check_shapes(path, meta)
    return meta


def _new_name(array: str) -> str:
    """Returns the name of an array of version 1 in version 2."""
    part, _, name = array.partition("/")
    for group, prefix in _OLD_PREFIXES.items():
        if name.startswith(prefix):
            return f"{part}/{attribute_array(group, name.removeprefix(prefix))}"
    if name.startswith(_OLD_SPLIT):
        return f"{part}/{split_array(NODES, name.removeprefix(_OLD_SPLIT))}"
    return array


def _old_name(array: str) -> str:
    """Returns the name that an array has in version 1; the inverse of `_new_name`."""
    part, _, name = array.partition("/")
    if attribute := attribute_of(name):
        return f"{part}/{_OLD_PREFIXES[attribute[0]]}{attribute[1]}"
    split = split_of(name)
    return array if split is None else f"{part}/{_OLD_SPLIT}{split[1]}"


def _check_shapes(path: Path, meta: PartitionMeta) -> None:
    """Checks that every part has the arrays it needs, of the sizes that the offsets give them."""
    schema, book = meta.schema, meta.book
    if len(meta.edge_counts) != schema.num_relations:
        fact = f"has {len(meta.edge_counts)} numbers for {schema.num_relations} relations"
        raise broken(path, "num_edges", fact, _REMEDY)
    for number in range(book.parts):
        _check_rows(path, meta, f"{part_name(number)}/node", len(book.nodes_of(number)))
    for group, target, count in zip(schema.edge_groups, schema.target_types, meta.edge_counts, strict=True):
        edges = [
            _part_edges(path, meta, number, group, len(book.nodes_of(number, target)))
            for number in range(book.parts)
        ]
        if sum(edges) != count:
            of = "" if schema == HOMOGENEOUS else f" of {group}"
            fact = f"the parts have {sum(edges)} edges{of}, num_edges is {count}"
            raise broken(path, "arrays", fact, _REMEDY)


def _part_edges(path: Path, meta: PartitionMeta, number: int, group: Group, nodes: int) -> int:
    """Returns the number of edges of a relation in a part, after checking the shapes."""
    indptr, indices, edge_ids = (
        f"{part_name(number)}/{edge_array(name, group)}" for name in ("indptr", "indices", "edge_ids")
    )
    _check_rows(path, meta, indptr, nodes + 1)
    edges = _check_rows(path, meta, indices, None)
    return _check_rows(path, meta, edge_ids, edges)


def _check_rows(path: Path, meta: PartitionMeta, array: str, rows: int | None) -> int:
    """Returns the length of an array, which must be ``rows`` unless that is None."""
    promise = meta.arrays.get(array)
    if promise is None or len(promise.shape) != 1 or (rows is not None and promise.shape[0] != rows):
        seen = None if promise is None else list(promise.shape)
        fact = f"{array} has shape {seen}, expected [{'edges' if rows is None else rows}]"
        raise broken(path, "arrays", fact, _REMEDY)
    return promise.shape[0]
