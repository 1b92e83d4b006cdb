"""META.json of a folder that holds a data set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from pyg_batchgnn.data.dataset import Dataset
from pyg_batchgnn.data.errors import broken
from pyg_batchgnn.data.files.durable import read_json
from pyg_batchgnn.data.files.meta_file import MetaFormat, promises
from pyg_batchgnn.data.files.npy import META_FILE, ArrayPromise
from pyg_batchgnn.types import EDGES, HOMOGENEOUS, NODES, Group, RowKind, Schema

#: Version 3 has a schema. Homogeneous graphs are written as version 2, without one. Version 4 has
#: tables of int8 codes, which older releases would take for features.
VERSION, TYPED_VERSION, CODES_VERSION = 2, 3, 4
FORMAT = MetaFormat(
    "pyg_batchgnn.dataset",
    (VERSION, TYPED_VERSION, CODES_VERSION),
    "write_folder",
    "make the folder again",
)
_NODE = HOMOGENEOUS.node_types[0]  # the type that counts of a homogeneous graph are for


@dataclass(frozen=True)
class Meta:
    """The contents of a data folder's META.json. A folder made by hand may leave out any of it."""

    name: str | None = None  # the data set's name
    source: str | None = None  # one sentence: where it came from
    schema: Schema | None = None  # node types and relations; None: the arrays tell
    #: the number of nodes by type; the arrays tell the others
    num_nodes: Mapping[str, int] = field(default_factory=dict)
    #: the number of classes by type; the labels tell the others
    num_classes: Mapping[str, int] = field(default_factory=dict)
    #: dtype, shape and checksum by array; empty for a folder made by hand
    arrays: Mapping[str, ArrayPromise] = field(default_factory=dict)
    #: what the folder was made from, for a later comparison
    origin: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, dataset: Dataset, arrays: Mapping[str, ArrayPromise], origin: Mapping[str, Any] | None = None
    ) -> Meta:
        """Makes the description of a data set. ``arrays``: the promises of its files."""
        return cls(
            dataset.name,
            dataset.source,
            dataset.schema,
            {nodes.name: nodes.num_nodes for nodes in dataset.node_sets},
            {str(one.group): one.num_classes for one in dataset.sets if one.num_classes or one.group.is_node},
            arrays,
            origin or {},
        )


def read_meta(folder: Path) -> Meta:
    path = folder / META_FILE
    if not path.is_file():
        return Meta()
    content = read_json(path)
    FORMAT.check(path, {"format": FORMAT.name, "version": VERSION, **content})
    if not isinstance(origin := content.get("origin") or {}, dict):
        raise broken(path, "origin", f"is {origin!r}, expected an object", "correct it")
    return Meta(
        name=_text(path, content, "name"),
        source=_text(path, content, "source"),
        schema=_schema(path, content),
        num_nodes=_counts(path, content, "num_nodes"),
        num_classes=_counts(path, content, "num_classes"),
        arrays=promises(path, content.get("arrays", None if "format" in content else {}), FORMAT.remedy),
        origin=origin,
    )


def fitted_encoders(name: str | Path) -> str | None:
    """Returns a digest of the encoders that made the features of a folder of tables; None if `name`
    is no folder, or was not made of tables."""
    path = Path(name).expanduser()
    return read_meta(path).origin.get("fitted") if path.is_dir() else None


def write_meta(folder: Path, meta: Meta) -> None:
    """Writes the META.json of a data folder, in the version that its contents need."""
    schema = meta.schema or HOMOGENEOUS
    typed = schema.has_names
    num_edges = {}
    for group in schema.edge_groups:
        by_target = meta.arrays.get(csc_array(group, "indices"))
        listed = edge_array("edge_index", group)
        num_edges[str(group)] = (by_target or meta.arrays[listed]).shape[-1]
    has_codes = any(array.startswith(f"{DECODING_FOLDER}/") for array in meta.arrays)
    content = {
        **(schema.to_json() if typed else {}),
        "name": meta.name,
        "source": meta.source,
        "num_nodes": dict(meta.num_nodes) if typed else meta.num_nodes.get(_NODE),
        "num_edges": num_edges if typed else next(iter(num_edges.values())),
        "num_classes": dict(meta.num_classes) if typed else meta.num_classes.get(_NODE),
        "origin": dict(meta.origin),
    }
    version = CODES_VERSION if has_codes else TYPED_VERSION if typed else VERSION
    FORMAT.write(folder, version, content, meta.arrays)


def _text(path: Path, content: dict[str, Any], key: str) -> str | None:
    value = content.get(key)
    if value is not None and not isinstance(value, str):
        raise broken(path, key, f"is {value!r}, expected text", "correct it")
    return value


def _counts(path: Path, content: dict[str, Any], key: str) -> dict[str, int]:
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


# The names of arrays in a folder: `edge_index`, `nodes/x`, `edges/edge_attr`, `splits/train`,
# `links/train/index`, `csc/indices`, `decoding/nodes/x`.
# Arrays of the groups of a homogeneous graph have such short names. Those of other groups name the
# node type or the relation too: `nodes/paper/x`, `splits/paper/train`,
# `edge_index/author__writes__paper`, `edges/author__writes__paper/edge_attr`,
# `links/author__writes__paper/train/index`.
#
# The file of an array is its name with `.npy` behind it. Characters of names that a file's name
# may not have are percent-encoded. So are underscores of types and relations that could be taken
# for the two that join the names of a relation.

FOLDERS = {RowKind.NODE: "nodes", RowKind.EDGE: "edges"}  # the folders of attributes
SPLITS_FOLDER, LINKS_FOLDER, CSC_FOLDER = "splits", "links", "csc"
DECODING_FOLDER = "decoding"  # the folder of the scales and offsets of int8 codes

_KINDS = {folder: kind for kind, folder in FOLDERS.items()}
_SHORT = {RowKind.NODE: NODES, RowKind.EDGE: EDGES}
_JOIN = "__"
#: Underscores at an end of a name or beside another one, and dots at the beginning.
_UNSAFE = re.compile(r"_(?=_|$)|(?<=_)_|^_|^\.")


def attribute_array(group: Group, name: str) -> str:
    """Returns the array of an attribute: `nodes/x`, or `nodes/paper/x`."""
    return _within(FOLDERS[group.kind], group, _quoted(name))


def decoding_array(group: Group, name: str) -> str:
    """Returns the array of an attribute's scales and offsets, `decoding/nodes/x`."""
    return f"{DECODING_FOLDER}/{attribute_array(group, name)}"


def split_array(group: Group, name: str) -> str:
    """Returns the array of a split: `splits/train`, or `splits/paper/train`."""
    return _within(SPLITS_FOLDER, group, _quoted(name))


@dataclass(frozen=True)
class LinkArray:
    """The name of an array of links in a folder; its text is `links/train/index`, for example."""

    group: Group  # the relation
    split: str
    name: str  # "index", "negatives", "negative_targets" or an attribute

    def __str__(self) -> str:
        return _within(LINKS_FOLDER, self.group, f"{_quoted(self.split)}/{_quoted(self.name)}")


def csc_array(group: Group, name: str) -> str:
    """Returns an array of edges by destination: `csc/indices`, or with the relation's name."""
    return _within(CSC_FOLDER, group, name)


def edge_array(array: str, group: Group) -> str:
    """Returns ``array`` of a relation: `edge_index`, or `edge_index/author__writes__paper`."""
    return array if group == EDGES else f"{array}/{group_folder(group)}"


def attribute_of(array: str) -> tuple[Group, str] | None:
    """Returns (group, attribute) of an array's name, or None for an array of another kind."""
    folder, *rest = array.split("/")
    return _inside(_KINDS[folder], rest) if folder in _KINDS else None


def decoded_by(array: str) -> tuple[Group, str] | None:
    """Returns (group, attribute) that an array has the scales and offsets of, or None."""
    folder, _, attribute = array.partition("/")
    return attribute_of(attribute) if folder == DECODING_FOLDER else None


def split_of(array: str) -> tuple[Group, str] | None:
    """Returns (group of nodes, split) of an array's name, or None for an array of another kind."""
    folder, *rest = array.split("/")
    return _inside(RowKind.NODE, rest) if folder == SPLITS_FOLDER else None


def link_of(array: str) -> LinkArray | None:
    """Returns the parts of the name of an array of links, or None for an array of another kind."""
    folder, *rest = array.split("/")
    if folder != LINKS_FOLDER or len(rest) not in (2, 3):
        return None
    group = EDGES if len(rest) == 2 else group_of_folder(RowKind.EDGE, rest[0])
    return None if group is None else LinkArray(group, unquote(rest[-2]), unquote(rest[-1]))


def group_folder(group: Group) -> str:
    """Returns the folder of a node type or relation: `paper`, `author__writes__paper`."""
    names = map(_quoted, [group.name] if isinstance(group.name, str) else group.name)
    return _JOIN.join(_UNSAFE.sub(lambda found: f"%{ord(found.group()):02X}", name) for name in names)


def group_of_folder(kind: RowKind, folder: str) -> Group | None:
    if kind is RowKind.NODE:
        return Group(kind, unquote(folder))
    names = folder.split(_JOIN)
    return Group(kind, (unquote(names[0]), unquote(names[1]), unquote(names[2]))) if len(names) == 3 else None


def _within(folder: str, group: Group, name: str) -> str:
    short = group == _SHORT[group.kind]
    return f"{folder}/{name}" if short else f"{folder}/{group_folder(group)}/{name}"


def _inside(kind: RowKind, rest: list[str]) -> tuple[Group, str] | None:
    if len(rest) == 1:
        return _SHORT[kind], unquote(rest[0])
    group = group_of_folder(kind, rest[0]) if len(rest) == 2 else None
    return None if group is None else (group, unquote(rest[1]))


def _quoted(name: str) -> str:
    return quote(name, safe=" ")
