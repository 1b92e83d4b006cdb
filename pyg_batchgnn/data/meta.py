"""META.json of a folder that holds a data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyg_batchgnn.data.dataset import Dataset
from pyg_batchgnn.data.errors import broken
from pyg_batchgnn.data.files import META_FILE, ArrayPromise, promise_of, read_json, write_json
from pyg_batchgnn.data.layout import edge_array
from pyg_batchgnn.data.schema import HOMOGENEOUS, Schema

FORMAT = "pyg_batchgnn.dataset"
#: Version 3 has a schema. Homogeneous graphs are written as version 2, which has none. Version 1
#: has features, labels and splits under fixed names, which a folder made by hand may have too.
VERSION, TYPED_VERSION = 2, 3
READABLE = (1, 2, 3)
#: The type that counts of a homogeneous graph are of.
_NODE = HOMOGENEOUS.node_types[0]


@dataclass(frozen=True)
class Meta:
    """The contents of META.json. A folder made by hand may leave out any of it.

    Attributes:
        name: the name of the data set.
        source: where it came from.
        schema: the node types and the relations, or None: they are taken from the arrays.
        num_nodes: the number of nodes by type; those of other types are taken from the arrays.
        num_classes: the number of classes by type; those of other types are taken from the labels.
        arrays: dtype, shape and checksum of each array (see `layout`); empty where the folder was
            made by hand.
        origin: what the folder was made from, as its maker wants to compare it later.
    """

    name: str | None = None
    source: str | None = None
    schema: Schema | None = None
    num_nodes: Mapping[str, int] = field(default_factory=dict)
    num_classes: Mapping[str, int] = field(default_factory=dict)
    arrays: Mapping[str, ArrayPromise] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, dataset: Dataset, arrays: Mapping[str, ArrayPromise], origin: Mapping[str, Any] | None = None
    ) -> Meta:
        """Returns what is to be written of a data set.

        Args:
            dataset: the data set; only names and counts are read.
            arrays: the promise of each array.
            origin: what the folder is made from.
        """
        return cls(
            dataset.name,
            dataset.source,
            dataset.schema,
            {nodes.name: nodes.num_nodes for nodes in dataset.node_sets},
            {nodes.name: nodes.num_classes for nodes in dataset.node_sets},
            arrays,
            origin or {},
        )


def read_meta(folder: Path) -> Meta:
    """Reads a folder's META.json; returns an empty `Meta` where there is none.

    Raises:
        DatasetError: the file is damaged, of another format or a newer version, or an entry is of
            the wrong type.
    """
    path = folder / META_FILE
    if not path.is_file():
        return Meta()
    content = read_json(path)
    if content.get("format", FORMAT) != FORMAT:
        fact = f"is {content['format']!r}, expected {FORMAT!r}"
        raise broken(path, "format", fact, "this folder holds something else: give a data set's folder")
    if content.get("version", VERSION) not in READABLE:
        fact = f"is {content['version']!r}, this release reads {', '.join(map(str, READABLE))}"
        raise broken(path, "version", fact, "update pyg_batchgnn or make the folder again")
    if "format" in content and not isinstance(content.get("arrays"), dict):
        raise broken(path, "arrays", "missing or not an object", "make the folder again")
    return Meta(
        name=_text(path, content, "name"),
        source=_text(path, content, "source"),
        schema=_schema(path, content),
        num_nodes=_counts(path, content, "num_nodes"),
        num_classes=_counts(path, content, "num_classes"),
        arrays=_arrays(path, content),
        origin=content.get("origin") or {},
    )


def write_meta(folder: Path, meta: Meta) -> None:
    """Writes META.json of a folder whose schema is known."""
    schema = meta.schema or HOMOGENEOUS
    typed = schema.has_names
    edges = {str(group): edge_array("edge_index", group) for group in schema.edge_groups}
    num_edges = {relation: meta.arrays[array].shape[1] for relation, array in edges.items()}
    content = {
        "format": FORMAT,
        "version": TYPED_VERSION if typed else VERSION,
        **(schema.to_json() if typed else {}),
        "name": meta.name,
        "source": meta.source,
        "num_nodes": dict(meta.num_nodes) if typed else meta.num_nodes[_NODE],
        "num_edges": num_edges if typed else next(iter(num_edges.values())),
        "num_classes": dict(meta.num_classes) if typed else meta.num_classes[_NODE],
        "arrays": {array: promise.to_json() for array, promise in sorted(meta.arrays.items())},
        "origin": dict(meta.origin),
    }
    write_json(folder / META_FILE, content)


def promises_in(folder: Path) -> dict[str, ArrayPromise]:
    """Returns what to promise of the .npy files in a folder and its subfolders, by array."""
    return {
        path.relative_to(folder).with_suffix("").as_posix(): promise_of(path)
        for path in sorted(folder.rglob("*.npy"))
    }


def _text(path: Path, content: dict[str, Any], key: str) -> str | None:
    value = content.get(key)
    if value is not None and not isinstance(value, str):
        raise broken(path, key, f"is {value!r}, expected text", "correct it")
    return value


def _counts(path: Path, content: dict[str, Any], key: str) -> dict[str, int]:
    """Reads counts by node type, or one count, which is that of a homogeneous graph."""
    said = content.get(key)
    found = said if isinstance(said, dict) else {_NODE: said}
    for value in found.values():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise broken(path, key, f"is {value!r}, expected a whole number, 0 or more", "correct it")
    return {name: value for name, value in found.items() if value is not None}


def _schema(path: Path, content: dict[str, Any]) -> Schema | None:
    if "node_types" not in content and "relations" not in content:
        return HOMOGENEOUS if "format" in content else None
    try:
        return Schema.from_json(content)
    except (KeyError, TypeError, ValueError) as error:
        remedy = "give node_types, and relations as [source type, name, target type]"
        raise broken(path, "node_types, relations", f"cannot be read ({error!r})", remedy) from error


def _arrays(path: Path, content: dict[str, Any]) -> dict[str, ArrayPromise]:
    found = {}
    for array, said in (content.get("arrays") or {}).items():
        try:
            found[array] = ArrayPromise.from_json(said)
        except (KeyError, TypeError, ValueError) as error:
            fact = f"its entry lacks or garbles one of dtype, shape, sha256 ({error!r})"
            raise broken(path, array, fact, "make the folder again") from error
    return found
