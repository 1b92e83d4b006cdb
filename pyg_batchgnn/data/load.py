"""The one way in for every kind of data set."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyg_batchgnn import ops
from pyg_batchgnn.data.bundle import bundled_names, find_bundle, read_bundle
from pyg_batchgnn.data.dataset import Dataset
from pyg_batchgnn.data.errors import DatasetError, DatasetNotFoundError
from pyg_batchgnn.data.folder import read_folder
from pyg_batchgnn.data.generator import (
    AnySpec,
    GeneratorSpec,
    PapersSpec,
    TypedGeneratorSpec,
    generate,
    generate_folder,
)
from pyg_batchgnn.data.hold_out import hold_out_links
from pyg_batchgnn.data.meta import group_of_folder, read_meta
from pyg_batchgnn.data.ogb import OGB_TABLES, read_ogb
from pyg_batchgnn.data.ogb.read import Download, find_ogb
from pyg_batchgnn.data.places import data_folders, say_where
from pyg_batchgnn.data.undirected import ParallelEdges, undirected_dataset
from pyg_batchgnn.types import RowKind

# A larger generated graph has to be written to a folder and mapped.
IN_MEMORY_BYTES = 4 << 30


_GENERATORS: dict[str, type[AnySpec]] = {
    spec.KIND: spec for spec in (GeneratorSpec, TypedGeneratorSpec, PapersSpec)
}


def load_dataset(name_or_path: str | Path, root: str | Path | None = None, **options: Any) -> Dataset:
    """Loads a data set by name or path.

    >>> load_dataset("generated:nodes=1000,classes=4").num_classes
    4

    Args:
        name_or_path: one of
            - "cora", "amazon_photo", ...: a bundled real graph; options `feature_dim`,
              `projection_seed` (see `read_bundle`);
            - "ogbn-arxiv", "ogbn-products", "ogbn-papers100M", "ogbn-mag", "ogbl-collab",
              "ogbl-citation2"; options `download`, `converted` (see `read_ogb`);
            - "generated", "generated-typed" or "papers-like", with the fields of `GeneratorSpec`,
              `TypedGeneratorSpec` or `PapersSpec` as options; with `root` it is written to a folder
              there and mapped, and found again the next time;
            - a folder of arrays (see `read_folder`).
            Options may follow a name after a colon, as in "generated:nodes=100000,seed=1".
        root: folder in which to look for, or put, a data set with a name.
        options: as above, and for all data sets `undirected`: a `ParallelEdges` (or "keep",
            "merge") stores every edge in both directions; `hold_out`: a share of the edges becomes
            links for validation, and as many for test (see `hold_out_links`); `links` and `reverse`
            name the relation and its reverse, as in "user__buys__item".

    Raises:
        TypeError: `name_or_path` is neither a text nor a path.
        DatasetError: the request or the data are wrong; a ValueError with a message of one line.
        DatasetNotFoundError: something is not there; also a FileNotFoundError.
    """
    name, options = split_name(name_or_path, options)
    undirected, held = options.pop("undirected", None), take_hold_out(options)
    # A permission lacking, a full disk and the like: also one line, and the error names the file.
    try:
        dataset = _load(name, root, options)
    except OSError as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(f"{name_or_path}: {error}; check the file and its permissions") from error
    if undirected is not None:
        dataset = undirected_dataset(dataset, to_member(ParallelEdges, "undirected", undirected))
    return dataset if held is None else hold_out_links(dataset, **held)


def available_datasets(root: str | Path | None = None) -> list[str]:
    """Returns the names that `load_dataset` can load without a download. ``root``: as there."""
    ogb = [name for name in OGB_TABLES if find_ogb(name, root) is not None]
    return [*bundled_names(root), *ogb, *_GENERATORS]


def default_dataset(root: str | Path | None = None, **options: Any) -> Dataset:
    """Returns a real graph if one is found (amazon_photo first), else a generated one;
    `Dataset.source` says which. ``root``, ``options``: for `load_dataset`, if it is real."""
    for name in ("amazon_photo", "coauthor_cs", "facebook_pages", "cora"):
        if find_bundle(name, root) is not None:
            return load_dataset(name, root, **options)
    dataset = generate(GeneratorSpec(nodes=20_000))
    reason = f"Generated because no real graph was found ({say_where(data_folders(root))}). {dataset.source}"
    return dataclasses.replace(dataset, source=reason)


def _load(name: str, root: str | Path | None, options: dict[str, Any]) -> Dataset:
    is_folder = os.sep in name or name in ("", ".", "..", "~") or Path(name).is_dir()
    if name in _GENERATORS:
        known = [field.name for field in dataclasses.fields(_GENERATORS[name])]
    elif name in OGB_TABLES:
        known = ["download", "converted"]
    else:
        known = [] if is_folder else ["feature_dim", "projection_seed"]
    for option in options:
        if option not in known:
            allowed = ", ".join([*known, "undirected", *HOLD_OUT])
            raise DatasetError(f"{name}: no option {option!r} for this data set; it takes {allowed}")
    if name in _GENERATORS:
        return _load_generated(name, root, options)
    if name in OGB_TABLES:
        download = to_member(Download, "download", options.get("download", Download.IF_MISSING))
        return read_ogb(name, root, download=download, converted=options.get("converted"))
    if is_folder:
        return read_folder(Path(root or "") / Path(name).expanduser())
    if find_bundle(name, root) is None:
        choices = ", ".join([*bundled_names(root), *OGB_TABLES, *_GENERATORS])
        raise DatasetNotFoundError(
            f"{name}: no data set or folder of that name ({say_where(data_folders(root))}); "
            f"choose among {choices}, or give the path of a folder"
        )
    given = {option: value for option, value in options.items() if value is not None}
    return read_bundle(name, root, **{key: to_number(int, key, value) for key, value in given.items()})


def _load_generated(name: str, root: str | Path | None, options: dict[str, Any]) -> Dataset:
    kind = _GENERATORS[name]
    types = {field.name: int if field.type == "int" else float for field in dataclasses.fields(kind)}
    spec = kind(**{key: to_number(types[key], key, value) for key, value in options.items()})
    if root is not None:
        folder = Path(root).expanduser() / spec.name.replace(":", "-").replace(",", "-")
        if not folder.exists():
            generate_folder(spec, folder)
        elif dict(read_meta(folder).origin) != spec.origin:
            raise DatasetError(
                f"{folder}: holds something else than {spec.name}; remove it or choose another root"
            )
        return read_folder(folder)
    if spec.estimated_bytes > IN_MEMORY_BYTES:
        raise DatasetError(
            f"{spec.name}: about {spec.estimated_bytes / 2**30:.0f} GiB, too large to make in memory; "
            f"write it to a folder in pieces with `batchgnn generate` or generate_folder, and give "
            "that folder"
        )
    return generate(spec)


HOLD_OUT = ("hold_out", "links", "reverse")
Options = Mapping[str, Any]


def take_hold_out(options: dict[str, Any]) -> dict[str, Any] | None:
    share, links, reverse = (options.pop(name, None) for name in HOLD_OUT)
    if share is None:
        if links is not None or reverse is not None:
            raise DatasetError("options links and reverse go with hold_out; give a share, such as 0.1")
        return None
    found = {"share": to_number(float, "hold_out", share), "relation": links, "reverse": reverse}
    for name in ("relation", "reverse"):
        value = found[name]
        group = group_of_folder(RowKind.EDGE, value) if isinstance(value, str) else None
        found[name] = value if group is None else group.name
        if found[name] is not None and not (isinstance(found[name], tuple) and len(found[name]) == 3):
            raise DatasetError(f"option {name} is {value!r}; give SOURCE__RELATION__TARGET")
    return found


def split_name(name_or_path: str | Path, options: Options) -> tuple[str, dict[str, Any]]:
    """Splits "name:key=value,key=value", and adds ``options``. An existing path is not split."""
    remedy = "give a name such as 'cora', or the path of a folder"
    ops.check_type("name_or_path", name_or_path, (str, os.PathLike), remedy)
    text = os.fspath(name_or_path)
    merged = dict(options)
    head, colon, tail = text.partition(":")
    if not colon or Path(text).expanduser().exists():
        return text, merged
    for part in filter(None, tail.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise DatasetError(f"{text}: option {part!r} has no value; write name:key=value,key=value")
        if key in merged:
            raise DatasetError(f"{text}: option {key!r} is given twice; give it once")
        merged[key.strip()] = value.strip()
    return head, merged


def to_number(kind: type[int] | type[float], name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return kind(value)
    except ValueError as error:
        word = "whole number" if kind is int else "number"
        raise DatasetError(f"option {name} is {value!r}; give a {word}") from error


def to_member(kind: Any, name: str, value: Any) -> Any:
    try:
        return kind(value)
    except ValueError as error:
        names = ", ".join(member.value for member in kind)
        raise DatasetError(f"option {name} is {value!r}; choose among {names}") from error
