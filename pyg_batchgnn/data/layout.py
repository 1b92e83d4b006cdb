"""The names of arrays in a folder: `edge_index`, `nodes/x`, `edges/edge_attr`, `splits/train`.

The file of an array is its name with `.npy` behind it. Characters of attributes' names that a
file's name may not have are percent-encoded.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from pyg_batchgnn.data.groups import EDGES, NODES, Group

#: The folder of each group's attributes.
FOLDERS = {NODES: "nodes", EDGES: "edges"}
SPLITS_FOLDER = "splits"

_GROUPS = {folder: group for group, folder in FOLDERS.items()}


def attribute_array(group: Group, name: str) -> str:
    """Returns the array of an attribute, such as `nodes/x`."""
    return f"{FOLDERS[group]}/{_quoted(name)}"


def split_array(name: str) -> str:
    """Returns the array of a split, such as `splits/train`."""
    return f"{SPLITS_FOLDER}/{_quoted(name)}"


def attribute_of(array: str) -> tuple[Group, str] | None:
    """Returns the group and the name of an attribute, or None: the array is not one."""
    folder, slash, name = array.rpartition("/")
    return (_GROUPS[folder], unquote(name)) if slash and folder in _GROUPS else None


def split_of(array: str) -> str | None:
    """Returns the name of a split, or None: the array is not one."""
    folder, _, name = array.rpartition("/")
    return unquote(name) if folder == SPLITS_FOLDER else None


def _quoted(name: str) -> str:
    return quote(name, safe=" ")
