"""Reads the arrays of a data set's folder, of either version or made by hand."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data.convert import to_features, to_index, to_targets
from pyg_batchgnn.data.dataset import SPLITS
from pyg_batchgnn.data.errors import DatasetNotFoundError, broken, missing
from pyg_batchgnn.data.files import META_FILE, as_tensor, map_tensor, open_npy
from pyg_batchgnn.data.groups import EDGE_FEATURES, EDGES, FEATURES, LABELS, NODES, Group, RowKind
from pyg_batchgnn.data.layout import (
    FOLDERS,
    LINKS_FOLDER,
    SPLITS_FOLDER,
    attribute_array,
    attribute_of,
    edge_array,
    group_folder,
    group_of_folder,
    split_array,
    split_of,
)
from pyg_batchgnn.data.meta import read_meta
from pyg_batchgnn.data.parquet import has_edges, parquet_files, read_parquet_edges
from pyg_batchgnn.data.schema import HOMOGENEOUS, Relation, Schema

#: Attributes that may lie in the folder itself, as in version 1 and in folders made by hand.
_CONVENTIONS: dict[str, tuple[Group, Callable[[np.ndarray, str | Path, str], Tensor]]] = {
    FEATURES: (NODES, to_features),
    LABELS: (NODES, to_targets),
    EDGE_FEATURES: (EDGES, to_features),
}
_MASKS = tuple(f"{name}_mask" for name in SPLITS)
_INDICES = tuple(f"{name}_idx" for name in SPLITS)
#: The arrays that may lie in the folder itself, and the folders of the others.
_USUAL = ("edge_index", "src", "dst", *_CONVENTIONS, *_MASKS, *_INDICES)
_FOLDERS = ("edge_index", *FOLDERS.values(), SPLITS_FOLDER, LINKS_FOLDER)
#: The endings of files that hold data.
_DATA = {
    ".npy",
    ".npz",
    ".parquet",
    ".csv",
    ".tsv",
    ".gz",
    ".arrow",
    ".feather",
    ".pt",
    ".pth",
    ".pkl",
    ".h5",
}


class FolderReader:
    """One folder that is being read.

    Attributes:
        files: the file that each array came from, by the name that `check_dataset` uses.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.meta = read_meta(path)
        self.files: dict[str, str | Path] = {}
        self._read: set[Path] = set()
        for array in self.meta.arrays:
            if not self.file(array).is_file():
                raise missing(
                    self.file(array), array_name(array), f"{META_FILE} promises it: make the folder again"
                )

    def file(self, array: str) -> Path:
        """Returns the file of an array."""
        return self.path / f"{array}.npy"

    def open(self, array: str, stands_for: str | None = None) -> Tensor | None:
        """Maps an array that agrees with META.json; None where the folder has no such file."""
        file = self.file(array)
        if not file.is_file():
            return None
        self.files[stands_for or array] = file
        self._read.add(file)
        if not self.meta.arrays:
            return as_tensor(open_npy(file, array_name(array)), file, array_name(array))
        if array not in self.meta.arrays:
            fact = f"{META_FILE} does not know this array"
            raise broken(file, array_name(array), fact, "remove the file or make the folder again")
        return map_tensor(file, array_name(array), self.meta.arrays[array])

    def schema(self) -> Schema:
        """Returns the schema: META.json's, else that of the files. Names are then in alphabetical
        order. A folder without edges of named relations is that of a homogeneous graph."""
        if self.meta.schema is not None:
            return self.meta.schema
        relations = self._relations_in_files()
        if not relations:
            return HOMOGENEOUS
        names = {end for source, _, target in relations for end in (source, target)}
        for folder, kind in ((FOLDERS[RowKind.NODE], RowKind.NODE), (SPLITS_FOLDER, RowKind.NODE)):
            for path in (self.path / folder).glob("*/*.npy"):
                group = group_of_folder(kind, path.parent.name)
                names.add(str(group.name) if group is not None else path.parent.name)
        return Schema(tuple(sorted(names)), tuple(sorted(relations)))

    def _relations_in_files(self) -> set[Relation]:
        """Returns the relations that have files of edges."""
        found = set()
        for path in sorted((self.path / "edge_index").glob("*")):
            stem = path.name.removesuffix(".parquet") if path.suffix == ".parquet" else path.stem
            name = stem.partition(".")[0] if path.suffix == ".parquet" else stem
            group = group_of_folder(RowKind.EDGE, name) if path.suffix in (".npy", ".parquet") else None
            if group is None or isinstance(group.name, str):
                fact = "is not named by a relation"
                raise broken(path, "edge_index", fact, "name it SOURCE__RELATION__TARGET.npy or .parquet")
            found.add(group.name)
        return found

    def edge_index(self, group: Group = EDGES) -> Tensor:
        """Returns the edges of a relation, [2, E]."""
        array = edge_array("edge_index", group)
        values = self.open(array)
        self._refuse_twice(array, group)
        if values is not None:
            found = values.numpy()
        else:
            found = self._edges_from_columns() if group == EDGES else self._edges_from_parquet(group)
        return to_index(found, self.files[array], array_name(array))

    def _refuse_twice(self, array: str, group: Group) -> None:
        """Raises DatasetError if the edges of a relation are there in two forms."""
        forms = [
            [self.file(array)],
            parquet_files(self.path, None if group == EDGES else group_folder(group)),
        ]
        if group == EDGES:
            forms.insert(1, [self.file("src"), self.file("dst")])
        forms[-1] = [file for file in forms[-1] if has_edges(file)]
        there = [form[0] for form in forms if form and all(file.is_file() for file in form)]
        if len(there) > 1:
            raise broken(there[1], array, f"{there[0].name} is there too", "remove one of the two")

    def _edges_from_parquet(self, group: Group) -> np.ndarray:
        array = edge_array("edge_index", group)
        files = parquet_files(self.path, group_folder(group))
        if not files:
            raise missing(self.file(array), array, "put it there, or a .parquet file with src and dst")
        self.files[array] = files[0]
        self._read.update(files)
        return read_parquet_edges(files)

    def _edges_from_columns(self) -> np.ndarray:
        """Reads edges from src.npy and dst.npy, or from Parquet, into memory: they lie apart on
        disk."""
        source, destination = self.open("src"), self.open("dst")
        if source is not None and destination is not None:
            if source.shape != destination.shape or source.dim() != 1:
                fact = f"shape is {list(destination.shape)}, src.npy has {list(source.shape)}"
                raise broken(self.files["dst"], "dst", fact, "both must be [E]")
            for array, values in (("src", source), ("dst", destination)):
                to_index(values[:0].numpy(), self.files[array], array)
            self.files["edge_index"] = self.files["src"]
            return np.stack([source.numpy(), destination.numpy()])
        if files := parquet_files(self.path):
            self.files["edge_index"] = files[0] if len(files) == 1 else self.path / "edges*.parquet"
            self._read = (self._read | set(files)) - {self.file("src"), self.file("dst")}
            return read_parquet_edges(files)
        if source is not None or destination is not None:
            absent = "src" if source is None else "dst"
            raise missing(self.file(absent), absent, "edges need both src.npy and dst.npy")
        raise DatasetNotFoundError(
            f"{self.path}: edge_index: the folder has no edges; "
            "put edge_index.npy, src.npy and dst.npy, or edges*.parquet there"
        )

    def attributes(self, schema: Schema) -> dict[Group, dict[str, Tensor]]:
        """Returns the attributes by group and name."""
        tables: dict[Group, dict[str, Tensor]] = {
            group: {} for group in (*schema.node_groups, *schema.edge_groups)
        }
        for folder in FOLDERS.values():
            for array in self.arrays_in(folder):
                group, name = self.known(array, attribute_of(array), tables)
                tables[group][name] = self.opened(array)
        for name, (group, convert) in _CONVENTIONS.items():
            if group not in tables:
                continue
            twice = name in tables[group]
            values = self.open(name, attribute_array(group, name))
            if values is None:
                continue
            if twice:
                fact = f"{attribute_array(group, name)}.npy is there too"
                raise broken(self.file(name), name, fact, "remove one of the two")
            tables[group][name] = convert(values.numpy(), self.file(name), name)
        return tables

    def arrays_in(self, folder: str) -> list[str]:
        """Returns the arrays in a folder and in the folders within it."""
        paths = (self.path / folder).rglob("*.npy")
        return [path.relative_to(self.path).with_suffix("").as_posix() for path in sorted(paths)]

    def opened(self, array: str) -> Tensor:
        """Maps an array that is there."""
        values = self.open(array)
        assert values is not None
        return values

    def known(
        self, array: str, named: tuple[Group, str] | None, groups: Mapping[Group, object]
    ) -> tuple[Group, str]:
        """Returns the group and the name of an array, whose group the graph must have."""
        if named is None or named[0] not in groups:
            fact = "belongs to no node type or relation of the graph"
            remedy = f"the graph has {', '.join(map(str, groups))}: rename the folder or remove it"
            raise broken(self.file(array), array_name(array), fact, remedy)
        return named

    def splits(self, schema: Schema, num_nodes: Mapping[Group, int]) -> dict[Group, dict[str, Tensor]]:
        """Returns the node ids of each split, by group of nodes."""
        found: dict[Group, dict[str, Tensor]] = {group: {} for group in schema.node_groups}
        for array in self.arrays_in(SPLITS_FOLDER):
            values, (group, name) = self.opened(array), self.known(array, split_of(array), found)
            found[group][name] = to_index(values.numpy(), self.file(array), name).to(torch.int64)
        if NODES in found:
            self._conventional_splits(found[NODES], num_nodes[NODES])
        return found

    def _conventional_splits(self, found: dict[str, Tensor], num_nodes: int) -> None:
        """Adds the splits that lie in the folder itself."""
        for name in SPLITS:
            arrays = [array for array in (f"{name}_idx", f"{name}_mask") if self.file(array).is_file()]
            if len(arrays) + (name in found) > 1:
                fact = f"{arrays[0] if len(arrays) > 1 else split_array(NODES, name)}.npy is there too"
                raise broken(self.file(arrays[-1]), arrays[-1], fact, "remove one of the two")
            if arrays:
                found[name] = self._split(name, arrays[0], num_nodes)

    def _split(self, name: str, array: str, num_nodes: int) -> Tensor:
        tensor = self.open(array, split_array(NODES, name))
        assert tensor is not None
        values = tensor.numpy()
        if array in _INDICES:
            return to_index(values, self.file(array), array).to(torch.int64)
        if values.dtype not in (np.dtype(np.bool_), np.dtype(np.uint8)) or values.shape != (num_nodes,):
            fact = f"is {values.dtype} {list(values.shape)}, expected bool [{num_nodes}]"
            raise broken(self.file(array), array, fact, "store one boolean per node")
        return torch.from_numpy(np.flatnonzero(values).astype(np.int64))

    def num_nodes(self, group: Group, ids: Sequence[Tensor], tables: dict[str, Tensor]) -> int:
        """Returns the number of nodes of a type.

        It is META.json's, else that of the rows of an attribute or a mask, else the largest id + 1.

        Args:
            group: the group of the nodes.
            ids: the ids of such nodes in edges.
            tables: the attributes of the nodes.
        """
        if group.name in self.meta.num_nodes:
            return self.meta.num_nodes[str(group.name)]
        conventions = [tables[name] for name in (FEATURES, LABELS) if name in tables]
        masks = map(self.open, _MASKS) if group == NODES else ()
        for values in (*conventions, *tables.values(), *masks):
            if values is not None and values.dim():
                return len(values)
        return max((int(ends.max()) + 1 for ends in ids if ends.numel()), default=0)

    def warn_of_unread(self) -> None:
        """Warns of files of data that nothing has read, by name."""
        folders = [path for name in _FOLDERS for path in (self.path / name).rglob("*")]
        for path in sorted([*self.path.glob("*"), *folders]):
            if path.suffix.lower() not in _DATA or path in self._read or not path.is_file():
                continue
            if path.parent == self.path:
                near = get_close_matches(path.stem, _USUAL, 1, 0.8)
                meant = f" Is {near[0]}.npy meant?" if near and near[0] != path.stem else ""
                form = "" if path.suffix == ".npy" else " as .npy files"
                remedy = (
                    f"For it to be read, put it{form} into nodes/ (one row per node), edges/ (one row per "
                    f"edge) or splits/ (node ids), in a folder by type or relation where the graph names them"
                )
            else:
                meant, remedy = "", "Arrays are .npy files named as in docs/reference/formats.md; remove it"
            warnings.warn(f"{path}: is not read.{meant} {remedy}", UserWarning, stacklevel=5)
        for path in sorted(self.path.glob("*")):
            near = get_close_matches(path.name, _FOLDERS, 1, 0.7) if path.is_dir() else []
            holds_data = near and any(file.suffix.lower() in _DATA for file in path.rglob("*"))
            if holds_data and path.name not in _FOLDERS:
                text = f"{path}: the folder is not read. Is {near[0]}/ meant? Rename it, or remove it"
                warnings.warn(text, UserWarning, stacklevel=5)


def array_name(array: str) -> str:
    """Returns an array's name as errors give it."""
    return array.rpartition("/")[2]
