"""The names of arrays in a folder: `edge_index`, `nodes/x`, `edges/edge_attr`, `splits/train`,
`links/train/index`.

Arrays of the groups of a homogeneous graph have such short names. Those of other groups name the
node type or the relation too: `nodes/paper/x`, `splits/paper/train`,
`edge_index/author__writes__paper`, `edges/author__writes__paper/edge_attr`,
`links/author__writes__paper/train/index`.

The file of an array is its name with `.npy` behind it. Characters of names that a file's name may
not have are percent-encoded. So are underscores of types and relations that could be taken for the
two that join the names of a relation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from pyg_batchgnn.data.groups import EDGES, NODES, Group, RowKind

#: The folder of the attributes of each kind of rows.
FOLDERS = {RowKind.NODE: "nodes", RowKind.EDGE: "edges"}
SPLITS_FOLDER, LINKS_FOLDER = "splits", "links"

_KINDS = {folder: kind for kind, folder in FOLDERS.items()}
_SHORT = {RowKind.NODE: NODES, RowKind.EDGE: EDGES}
_JOIN = "__"
#: Underscores at an end of a name or beside another underscore, and dots at the beginning.
_UNSAFE = re.compile(r"_(?=_|$)|(?<=_)_|^_|^\.")


def attribute_array(group: Group, name: str) -> str:
    """Returns the array of an attribute, such as `nodes/x` or `nodes/paper/x`."""
    return _within(FOLDERS[group.kind], group, _quoted(name))


def split_array(group: Group, name: str) -> str:
    """Returns the array of a split, such as `splits/train` or `splits/paper/train`."""
    return _within(SPLITS_FOLDER, group, _quoted(name))


@dataclass(frozen=True)
class LinkArray:
    """The place of an array of links.

    Attributes:
        group: the relation.
        split: the name of the split.
        name: "index", "negatives", "negative_targets", or the name of an attribute.
    """

    group: Group
    split: str
    name: str

    def __str__(self) -> str:
        """Returns the array, such as `links/train/index` or
        `links/user__buys__item/train/index`."""
        return _within(LINKS_FOLDER, self.group, f"{_quoted(self.split)}/{_quoted(self.name)}")


def edge_array(array: str, group: Group) -> str:
    """Returns the array that a relation has of its own, such as `edge_index` or
    `edge_index/author__writes__paper`."""
    return array if group == EDGES else f"{array}/{group_folder(group)}"


def attribute_of(array: str) -> tuple[Group, str] | None:
    """Returns the group and the name of an attribute, or None: the array is not one."""
    folder, *rest = array.split("/")
    return _inside(_KINDS[folder], rest) if folder in _KINDS else None


def split_of(array: str) -> tuple[Group, str] | None:
    """Returns the group of nodes and the name of a split, or None: the array is not one."""
    folder, *rest = array.split("/")
    return _inside(RowKind.NODE, rest) if folder == SPLITS_FOLDER else None


def link_of(array: str) -> LinkArray | None:
    """Returns the place of an array of links, or None: the array is not one."""
    folder, *rest = array.split("/")
    if folder != LINKS_FOLDER or len(rest) not in (2, 3):
        return None
    group = EDGES if len(rest) == 2 else group_of_folder(RowKind.EDGE, rest[0])
    return None if group is None else LinkArray(group, unquote(rest[-2]), unquote(rest[-1]))


def group_folder(group: Group) -> str:
    """Returns the folder of a node type or a relation, such as `author__writes__paper`."""
    return _JOIN.join(map(_encoded, [group.name] if isinstance(group.name, str) else group.name))


def group_of_folder(kind: RowKind, folder: str) -> Group | None:
    """Returns the group of a folder that `group_folder` names; None where it is no relation's."""
    if kind is RowKind.NODE:
        return Group(kind, unquote(folder))
    names = folder.split(_JOIN)
    return Group(kind, (unquote(names[0]), unquote(names[1]), unquote(names[2]))) if len(names) == 3 else None


def _within(folder: str, group: Group, name: str) -> str:
    short = group == _SHORT[group.kind]
    return f"{folder}/{name}" if short else f"{folder}/{group_folder(group)}/{name}"


def _inside(kind: RowKind, rest: list[str]) -> tuple[Group, str] | None:
    """Returns the group and the name of `name` or `group/name` inside a folder."""
    if len(rest) == 1:
        return _SHORT[kind], unquote(rest[0])
    group = group_of_folder(kind, rest[0]) if len(rest) == 2 else None
    return None if group is None else (group, unquote(rest[1]))


def _encoded(name: str) -> str:
    """Returns a name of a type or a relation as part of a folder's name."""
    return _UNSAFE.sub(lambda found: f"%{ord(found.group()):02X}", _quoted(name))


def _quoted(name: str) -> str:
    return quote(name, safe=" ")
