"""Data sets by name, by folder or file: the one way in for every kind, and bundles of arrays."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data.check import check_dataset
from pyg_batchgnn.data.dataset import (
    SPLITS,
    Dataset,
    EdgeSet,
    NodeSet,
    class_numbers,
    to_features,
    to_index,
    to_labels,
)
from pyg_batchgnn.data.errors import DatasetError, DatasetNotFoundError, broken
from pyg_batchgnn.data.files.durable import check_sha256, read_json
from pyg_batchgnn.data.files.npy import open_member
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
from pyg_batchgnn.data.meta import arrays_of, group_of_folder, read_meta
from pyg_batchgnn.data.ogb import OGB_TABLES, read_ogb
from pyg_batchgnn.data.ogb.read import Download, find_ogb
from pyg_batchgnn.data.places import data_folders, say_where
from pyg_batchgnn.data.undirected import ParallelEdges, undirected_dataset
from pyg_batchgnn.types import FEATURES, LABELS, Relation, RowKind

_RESTORE = "copy the .npz and its .json again from where they came from"
_FEATURE_KEYS = ("x_indptr", "x_indices", "x_shape")


def bundled_names(root: str | Path | None = None) -> list[str]:
    found = (path for folder in data_folders(root) for path in folder.glob("*.json"))
    return sorted({path.stem for path in found if path.with_suffix(".npz").is_file()})


def find_bundle(name: str, root: str | Path | None = None) -> Path | None:
    for folder in data_folders(root):
        path = folder / f"{name}.npz"
        if path.is_file() or path.with_suffix(".json").is_file():
            return path
    return None


def read_bundle(
    name: str, root: str | Path | None = None, *, feature_dim: int | None = None, projection_seed: int = 0
) -> Dataset:
    """Reads a bundled graph: NAME.npz with its NAME.json.

    ``name``: such as "cora". ``root``: the folder of the files; None searches `data_folders`.
    ``feature_dim``: projects sparse features at random to this many columns, by
    ``projection_seed``; None makes them dense. Raises `DatasetNotFoundError` if a file is missing,
    `DatasetError` if it is damaged.
    """
    path = find_bundle(name, root)
    if path is None:
        where = say_where(data_folders(root))
        raise DatasetNotFoundError(f"{name}: no {name}.npz ({where}); put {name}.npz and {name}.json there")
    about = _read_about(path)
    arrays = _read_arrays(path, about)
    typed = about.get("heterogeneous", False)
    dataset = Dataset.homogeneous(
        name,
        _count(path, about, "num_nodes"),
        to_index(arrays["edge_index"], path, "edge_index"),
        nodes={
            FEATURES: _features(path, arrays, feature_dim, projection_seed),
            LABELS: to_labels(arrays["y"], path, "y"),
        },
        splits={
            split: to_index(arrays[f"{split}_idx"], path, f"{split}_idx").to(torch.int64) for split in SPLITS
        },
        num_classes=_count(path, about, "num_classes"),
        source=_sentence(path, about, feature_dim),
    )
    check_dataset(dataset, dict.fromkeys(arrays_of(dataset), path))
    if not typed:
        return dataset
    return by_type(dataset, _numbered(path, about, arrays, "node"), _numbered(path, about, arrays, "edge"))


def _read_about(path: Path) -> dict[str, Any]:
    json_path = path.with_suffix(".json")
    for file in (path, json_path):
        if not file.is_file():
            raise DatasetNotFoundError(f"{file}: the file does not exist; {_RESTORE}")
    about = read_json(json_path)
    for key in ("bytes", "sha256", "num_nodes", "num_classes", "arrays"):
        if key not in about:
            raise broken(json_path, key, "entry is missing", _RESTORE)
    size = path.stat().st_size
    if size != about["bytes"]:
        state = "truncated" if size < about["bytes"] else "too long"
        raise broken(path, "all arrays", f"file is {state}: {size} bytes, not {about['bytes']}", _RESTORE)
    check_sha256(path, "all arrays", about["sha256"], json_path.name, f"the file was altered: {_RESTORE}")
    return about


def _read_arrays(path: Path, about: dict[str, Any]) -> dict[str, np.ndarray]:
    """Returns the arrays by name. Dtype and shape are compared with the JSON before reading."""
    arrays, said = dict[str, np.ndarray](), about["arrays"]
    types = ("node_type", "edge_type") if about.get("heterogeneous", False) else ()
    needed = ("edge_index", "y", "train_idx", "val_idx", "test_idx")
    known = (*needed, "x", "x_data", *_FEATURE_KEYS, *types)
    if not isinstance(said, dict):
        raise broken(path.with_suffix(".json"), "arrays", f"is {said!r}, expected an object", _RESTORE)
    if others := [key for key in said if key not in known]:
        fact = f"{path}: the arrays {', '.join(map(repr, others))} are not read"
        warnings.warn(f"{fact}; write_folder keeps them in a folder of .npy files", stacklevel=2)
    for key in (*needed, *(key for key in known[len(needed) :] if key in said)):
        with open_member(path, key) as member:
            seen = [member.header.dtype.name, list(member.header.shape)]
            if seen != said.get(key):
                fact = f"is {seen[0]} {seen[1]}, the JSON says {said.get(key)}"
                raise broken(path, key, fact, _RESTORE)
            arrays[key] = member.read()
    return arrays


def _features(path: Path, arrays: dict[str, np.ndarray], feature_dim: int | None, seed: int) -> Tensor:
    if feature_dim is not None and feature_dim < 1:
        raise broken(path, "x", f"feature_dim is {feature_dim}", "ask for 1 or more columns")
    if "x" in arrays:
        if feature_dim is not None:
            raise broken(
                path, "x", "features are dense, feature_dim projects sparse ones", "drop feature_dim"
            )
        return to_features(arrays["x"], path, "x")
    for key in _FEATURE_KEYS:
        if key not in arrays:
            raise broken(
                path, key, "array is missing (features are x, or x_indptr, x_indices, x_shape)", _RESTORE
            )
    for key in _FEATURE_KEYS:
        if arrays[key].ndim != 1 or arrays[key].dtype.kind not in "iu":
            fact = f"is {arrays[key].dtype} {list(arrays[key].shape)}, expected integers in one dimension"
            raise broken(path, key, fact, _RESTORE)
    shape = [int(size) for size in arrays["x_shape"]]
    if len(shape) != 2 or min(shape) < 0 or shape[0] != len(arrays["x_indptr"]) - 1:
        fact = f"is {shape}, x_indptr has {len(arrays['x_indptr'])} entries"
        raise broken(path, "x_shape", fact, _RESTORE)
    rows = SparseRows(arrays["x_indptr"], arrays["x_indices"], arrays.get("x_data"), shape[1])
    if flaw := rows.flaw():
        raise broken(path, *flaw, _RESTORE)
    if feature_dim is not None:
        return project(rows, feature_dim, seed)
    dense = np.zeros((len(rows.indptr) - 1, rows.num_columns), np.float32)
    row = np.repeat(np.arange(len(dense)), np.diff(rows.indptr))
    dense[row, rows.indices] = 1.0 if rows.data is None else rows.data
    return torch.from_numpy(dense)


def _numbered(path: Path, about: dict[str, Any], arrays: dict[str, np.ndarray], kind: str) -> TypeNumbers:
    names, array = about.get(f"{kind}_type_names"), f"{kind}_type"
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        fact = f"is {names!r}, expected a list of names"
        raise broken(path.with_suffix(".json"), f"{kind}_type_names", fact, _RESTORE)
    rows = arrays["y"].shape[0] if kind == "node" else arrays["edge_index"].shape[1]
    if array not in arrays or arrays[array].shape != (rows,) or arrays[array].dtype.kind not in "iu":
        raise broken(path, array, f"is missing, or is not {rows} integers", _RESTORE)
    numbers = torch.from_numpy(arrays[array].astype(np.int64))
    if rows and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(names):
        fact = f"holds types {int(numbers.min())} to {int(numbers.max())}, there are {len(names)}"
        raise broken(path, array, fact, _RESTORE)
    return tuple(names), numbers


def _count(path: Path, about: dict[str, Any], key: str) -> int:
    value = about[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise broken(path.with_suffix(".json"), key, f"is {value!r}, expected a whole number", _RESTORE)
    return value


def _sentence(path: Path, about: dict[str, Any], feature_dim: int | None) -> str:
    source = about.get("source")
    origin = source.get("repository", "") if isinstance(source, dict) else ""
    text = f"Real graph {path.stem}, read from {path}"
    if origin:
        text += f", made from {about.get('upstream') or origin}"
    if feature_dim is not None:
        text += f"; features projected at random to {feature_dim} columns"
    return text + "."


@dataclass(frozen=True)
class SparseRows:
    """A [num_rows, num_columns] matrix in compressed sparse rows (CSR)."""

    indptr: np.ndarray  # [num_rows + 1] integers, where each row starts
    indices: np.ndarray  # [nnz] integer columns
    data: np.ndarray | None  # [nnz] values, or None: all ones
    num_columns: int

    def flaw(self) -> tuple[str, str] | None:
        """Returns (array, what is wrong) for the first inconsistency, or None."""
        if len(self.indptr) == 0 or int(self.indptr[0]) != 0:
            return "x_indptr", "does not start with 0"
        if (np.diff(self.indptr.astype(np.int64)) < 0).any():
            return "x_indptr", "decreases"
        if int(self.indptr[-1]) != len(self.indices):
            return "x_indptr", f"ends with {self.indptr[-1]} but x_indices has {len(self.indices)} entries"
        if len(self.indices):
            low, high = int(self.indices.min()), int(self.indices.max())
            if low < 0 or high >= self.num_columns:
                worst = low if low < 0 else high
                return "x_indices", f"column {worst} is outside [0, {self.num_columns})"
        if self.data is not None and len(self.data) != len(self.indices):
            return "x_data", f"has {len(self.data)} entries but x_indices has {len(self.indices)}"
        return None


def project(rows: SparseRows, dim: int, seed: int) -> Tensor:
    """Projects the rows at random to `dim` columns: [num_rows, dim] float32. The matrix is normal
    with variance 1 / dim, so distances are kept on average (Johnson and Lindenstrauss)."""
    generator = np.random.default_rng(seed)
    matrix = generator.standard_normal((rows.num_columns, dim), dtype=np.float32) / np.float32(np.sqrt(dim))
    weights = None if rows.data is None else torch.from_numpy(rows.data.astype(np.float32))
    return torch.nn.functional.embedding_bag(
        torch.from_numpy(rows.indices.astype(np.int64)),
        torch.from_numpy(matrix),
        torch.from_numpy(rows.indptr[:-1].astype(np.int64)),
        mode="sum",
        per_sample_weights=weights,
    )


#: The names of types, and [n] int64: the position in them of the type of each node or edge.
TypeNumbers = tuple[tuple[str, ...], Tensor]


def by_type(dataset: Dataset, nodes: TypeNumbers, edges: TypeNumbers) -> Dataset:
    """Returns a homogeneous data set with several node types and relations. Nodes and edges keep
    their order. Each edge type gets a relation for each pair of node types that it joins.
    ``nodes``, ``edges``: the type of each."""
    names, number = nodes
    local = torch.empty_like(number)
    members = [(number == at).nonzero()[:, 0] for at in range(len(names))]
    for own in members:
        local[own] = torch.arange(len(own))
    node_sets = tuple(
        NodeSet(
            name,
            len(own),
            {key: table[own] for key, table in dataset.nodes.tables.items()},
            {key: local[index[number[index] == at]] for key, index in dataset.splits.items()},
            dataset.num_classes if class_numbers(dataset.nodes.tables) is not None else 0,
        )
        for at, (name, own) in enumerate(zip(names, members, strict=True))
    )
    edge_sets = tuple(
        EdgeSet(
            relation,
            local[dataset.edge_index[:, own].long()].to(dataset.edge_index.dtype),
            {key: table[own] for key, table in dataset.edges.tables.items()},
        )
        for relation, own in _relations(dataset.edge_index.long(), nodes, edges)
    )
    return Dataset(dataset.name, node_sets, edge_sets, dataset.source)


def _relations(
    edge_index: Tensor, nodes: TypeNumbers, edges: TypeNumbers
) -> Iterator[tuple[Relation, Tensor]]:
    names, number = nodes
    types = len(names)
    source, target = number[edge_index]
    cell = (edges[1] * types + source) * types + target
    for found in cell.unique().tolist():
        kind, ends = divmod(found, types * types)
        relation = names[ends // types], edges[0][kind], names[ends % types]
        yield relation, (cell == found).nonzero()[:, 0]


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
