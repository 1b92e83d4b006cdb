"""META.json of a folder that holds a data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyg_batchgnn.data.errors import broken
from pyg_batchgnn.data.files import META_FILE, ArrayPromise, promise_of, read_json, write_json

FORMAT = "pyg_batchgnn.dataset"
VERSION = 2
#: Version 1 has features, labels and splits under fixed names, which a folder made by hand may have
#: too.
READABLE = (1, 2)


@dataclass(frozen=True)
class Meta:
    """The contents of META.json. A folder made by hand may leave out any of it.

    Attributes:
        name: the name of the data set.
        source: where it came from.
        num_nodes: the number of nodes, or None: it is taken from the arrays.
        num_classes: the number of classes, or None: it is taken from the labels.
        arrays: dtype, shape and checksum of each array (see `layout`); empty where the folder was
            made by hand.
        origin: what the folder was made from, as its maker wants to compare it later.
    """

    name: str | None = None
    source: str | None = None
    num_nodes: int | None = None
    num_classes: int | None = None
    arrays: Mapping[str, ArrayPromise] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)


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
        fact = f"is {content['version']!r}, this release reads {' and '.join(map(str, READABLE))}"
        raise broken(path, "version", fact, "update pyg_batchgnn or make the folder again")
    if "format" in content and not isinstance(content.get("arrays"), dict):
        raise broken(path, "arrays", "missing or not an object", "make the folder again")
    return Meta(
        name=_text(path, content, "name"),
        source=_text(path, content, "source"),
        num_nodes=_count(path, content, "num_nodes"),
        num_classes=_count(path, content, "num_classes"),
        arrays=_arrays(path, content),
        origin=content.get("origin") or {},
    )


def write_meta(folder: Path, meta: Meta) -> None:
    """Writes META.json."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "name": meta.name,
        "source": meta.source,
        "num_nodes": meta.num_nodes,
        "num_edges": meta.arrays["edge_index"].shape[1],
        "num_classes": meta.num_classes,
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


def _count(path: Path, content: dict[str, Any], key: str) -> int | None:
    value = content.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise broken(path, key, f"is {value!r}, expected a whole number, 0 or more", "correct it")
    return value


def _arrays(path: Path, content: dict[str, Any]) -> dict[str, ArrayPromise]:
    found = {}
    for array, said in (content.get("arrays") or {}).items():
        try:
            found[array] = ArrayPromise.from_json(said)
        except (KeyError, TypeError, ValueError) as error:
            fact = f"its entry lacks or garbles one of dtype, shape, sha256 ({error!r})"
            raise broken(path, array, fact, "make the folder again") from error
    return found
