"""Reads and verifies a data set in a folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn.data.check import check_dataset, check_outline
from pyg_batchgnn.data.csc import EDGE_IDS, INDICES, INDPTR, MappedEdges
from pyg_batchgnn.data.dataset import (
    INDEX,
    NEGATIVE_TARGETS,
    NEGATIVES,
    SPLITS,
    Dataset,
    EdgeSet,
    LinkSplit,
    NodeSet,
    count_classes,
    to_codes,
    to_features,
    to_index,
    to_targets,
)
from pyg_batchgnn.data.errors import DatasetError, DatasetNotFoundError, broken, missing
from pyg_batchgnn.data.files.npy import META_FILE, as_tensor, map_tensor, open_npy, verify_tensor
from pyg_batchgnn.data.keys import KEYS_FOLDER
from pyg_batchgnn.data.meta import (
    CSC_FOLDER,
    DECODING_FOLDER,
    FOLDERS,
    LINKS_FOLDER,
    SPLITS_FOLDER,
    LinkArray,
    attribute_array,
    attribute_of,
    csc_array,
    decoded_by,
    edge_array,
    group_of_folder,
    link_of,
    read_meta,
    split_array,
    split_of,
)
from pyg_batchgnn.data.parquet import has_edges, parquet_files, read_parquet, read_parquet_edges
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.types import (
    EDGE_FEATURES,
    EDGES,
    FEATURES,
    HOMOGENEOUS,
    LABELS,
    NODES,
    Group,
    Relation,
    RowKind,
    Schema,
)


def read_folder(path: str | Path) -> Dataset:
    """Reads a data set from a folder.

    >>> read_folder("graphs/large").num_nodes
    500

    Edges are `edge_index.npy` [2, E], which is mapped, or `src.npy` and `dst.npy` [E], or
    `edges*.parquet` with columns src and dst, which are read into memory; their other columns of
    numbers are attributes of edges. Or they are by destination, and mapped: `csc/indptr.npy` [N +
    1], `csc/indices.npy` [E] and, if ids are not positions, `csc/edge_ids.npy` [E]. All else is
    optional, and mapped but for Parquet:

    - `nodes/NAME.npy` [N, ...] and `edges/NAME.npy` [E, ...]: the attributes NAME, of any dtype;
    - `decoding/nodes/NAME.npy` [2, F] float32, and `decoding/edges/NAME.npy`: scales and offsets of
    the columns of an attribute that is int8 codes (`QuantizedTensor`);
    - `nodes*.parquet`: an attribute of nodes for each column of numbers;
    - `splits/NAME.npy`: the node ids of the split NAME;
    - `links/NAME/index.npy` [2, n] and attributes beside it: the links of the split NAME;
    - in the folder itself `x.npy`, `y.npy` and `edge_attr.npy`: features become float32 unless they
    are float16, class numbers int64 (NaN: no label, -1); and `train_idx.npy` (node ids) or
    `train_mask.npy` (bool [N]), and so for val and test;
    - META.json: name, source, num_nodes and num_classes; in folders that this package wrote also
    dtype, shape and checksum of every array, which are compared.

    In a graph of several node types or relations, each relation's edges are in a file named
    SOURCE__RELATION__TARGET: `edge_index/author__writes__paper.npy`, or `.parquet`, or several
    `.*.parquet`, or `csc/author__writes__paper/indptr.npy` and the others. Attributes and splits
    lie in folders by type and relation: `nodes/paper/NAME.npy`,
    `edges/author__writes__paper/NAME.npy`, `splits/paper/NAME.npy`; or `nodes/paper.parquet`, or
    several `nodes/paper.*.parquet`. META.json may give `node_types` and `relations`, whose order is
    else alphabetical, and num_nodes and num_classes by type.

    Warns:
        UserWarning: a file of data, or a column of a Parquet file, is not read.

    Raises:
        DatasetNotFoundError: there is no such folder, or no edges in it.
        DatasetError: a file is damaged, foreign or inconsistent.
    """
    dataset, files = _read(path)
    return check_dataset(dataset, files)


def open_folder(path: str | Path) -> Dataset:
    """Reads a folder like `read_folder`, but checks only shapes and dtypes, not ids, labels and
    features: for `partition`, whose ranks check what they read, and for folders checked before."""
    return check_outline(*_read(path))


def _read(path: str | Path) -> tuple[Dataset, dict[str, str | Path]]:
    path = Path(path).expanduser()
    if not path.is_dir():
        raise DatasetNotFoundError(
            f"{path}: no such folder; give a folder with edge_index.npy or edges*.parquet"
        )
    folder = FolderReader(path)
    schema = folder.schema()
    edges, tables = [folder.edges(group) for group in schema.edge_groups], folder.attributes(schema)
    counts = {}
    for number, group in enumerate(schema.node_groups):
        ends = list(zip(edges, schema.source_types, schema.target_types, strict=True))
        lists = [(one, types) for one, *types in ends if isinstance(one, Tensor)]
        by_target = [(one, types) for one, *types in ends if isinstance(one, InEdges)]
        ids = [ids[row] for ids, types in lists for row in range(2) if types[row] == number]
        ids += [one.indices for one, types in by_target if types[0] == number]
        lengths = {one.num_targets for one, types in by_target if types[1] == number}
        counts[group] = folder.num_nodes(group, ids, tables[group], lengths)
    splits, links = folder.splits(schema, counts), read_links(folder, schema)
    folder.warn_of_unread()
    said = {group: folder.meta.num_classes.get(str(group)) for group in tables}
    classes = {group: count_classes(tables[group]) if one is None else one for group, one in said.items()}
    dataset = Dataset(
        folder.meta.name or path.resolve().name,
        tuple(
            NodeSet(str(group.name), counts[group], tables[group], splits[group], classes[group])
            for group in schema.node_groups
        ),
        tuple(
            EdgeSet(relation, topology, tables[group], links[group], classes[group])
            for relation, group, topology in zip(schema.relations, schema.edge_groups, edges, strict=True)
        ),
        folder.meta.source or f"Arrays read from the folder {path}.",
        schema.has_names,
    )
    return dataset, folder.files


def verify_folder(path: str | Path) -> int:
    """Compares every file with its checksum in META.json, however large. Returns the number of
    files. Raises `DatasetError` for a damaged or missing file, or if there are no checksums.

    >>> verify_folder("graphs/large")
    6
    """
    path = Path(path).expanduser()
    if not path.is_dir():
        raise DatasetNotFoundError(f"{path}: no such folder; give a folder that this program wrote")
    folder = FolderReader(path)
    if not (path / META_FILE).exists():
        raise DatasetNotFoundError(
            f"{path}: has no {META_FILE}, so there are no checksums to compare with; only folders that this "
            f"program wrote have one: write a folder made by hand anew with write_folder"
        )
    if not folder.meta.arrays:
        remedy = "write the data with write_folder, which adds them"
        raise broken(path / META_FILE, "arrays", "no checksums to compare with", remedy)
    for array, promise in folder.meta.arrays.items():
        open_npy(folder.file(array), array_name(array))
        verify_tensor(folder.file(array), array_name(array), promise)
    return len(folder.meta.arrays)


#: Attributes that may lie in the folder itself. Their columns in Parquet are converted too.
_CONVENTIONS: dict[str, tuple[Group, Callable[[np.ndarray, str | Path, str], Tensor]]] = {
    FEATURES: (NODES, to_features),
    LABELS: (NODES, to_targets),
    EDGE_FEATURES: (EDGES, to_features),
}
_MASKS, _INDICES = ([f"{name}_{form}" for name in SPLITS] for form in ("mask", "idx"))
#: Arrays that may lie in the folder itself.
_USUAL = ("edge_index", "src", "dst", *_CONVENTIONS, *_MASKS, *_INDICES)
#: Folders of all other arrays.
_FOLDERS = ("edge_index", CSC_FOLDER, *FOLDERS.values(), DECODING_FOLDER, SPLITS_FOLDER, LINKS_FOLDER)
#: The endings of files that hold data.
_DATA = {
    *(".npy", ".npz", ".parquet", ".csv", ".tsv", ".gz", ".arrow", ".feather"),
    *(".pt", ".pth", ".pkl", ".h5"),
}


class FolderReader:
    """A data folder that is being read. ``files``: the file of each array, for `check_dataset`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.meta = read_meta(path)
        self.files: dict[str, str | Path] = {}
        self._read: set[Path] = set()
        self._columns: dict[Group, dict[str, np.ndarray]] = {}
        self._rows: dict[Group, int] = {}
        for array in self.meta.arrays:
            if not self.file(array).is_file():
                raise self.absent(array, f"{META_FILE} promises it: make the folder again")

    def error(self, array: str, fact: str, remedy: str = "remove one of the two") -> DatasetError:
        return broken(self.file(array), array_name(array), fact, remedy)

    def absent(self, array: str, remedy: str) -> DatasetError:
        return missing(self.file(array), array_name(array), remedy)

    def file(self, array: str) -> Path:
        return self.path / f"{array}.npy"

    def open(self, array: str, stands_for: str | None = None) -> Tensor | None:
        """Maps an array, compared with META.json; None if there is no such file. ``stands_for``:
        the array's usual name, if the file has another."""
        file = self.file(array)
        if not file.is_file():
            return None
        self.files[stands_for or array] = file
        self._read.add(file)
        if not self.meta.arrays:
            return as_tensor(open_npy(file, array_name(array)), file, array_name(array))
        if array not in self.meta.arrays:
            fact = f"{META_FILE} does not know this array"
            raise self.error(array, fact, "remove the file or make the folder again")
        return map_tensor(file, array_name(array), self.meta.arrays[array])

    def schema(self) -> Schema:
        """Returns META.json's schema; without one, the node types and relations that files are
        named by, in alphabetical order. A folder without such names has a homogeneous graph."""
        if self.meta.schema is not None:
            return self.meta.schema
        lists = sorted((self.path / "edge_index").glob("*"))
        relations = {
            _relation(path, path.stem if path.suffix == ".npy" else path.name.partition(".")[0])
            for path in lists
        }
        csc = sorted((self.path / CSC_FOLDER).glob(f"*/{INDPTR}.npy"))
        relations |= {_relation(path, path.parent.name) for path in csc}
        if not relations:
            return HOMOGENEOUS
        nodes, splits = self.path / FOLDERS[RowKind.NODE], self.path / SPLITS_FOLDER
        folders = [path.parent.name for one in (nodes, splits) for path in one.glob("*/*.npy")]
        folders += [path.name.partition(".")[0] for path in nodes.glob("*.parquet")]
        names = {end for source, _, target in relations for end in (source, target)}
        names |= {unquote(folder) for folder in folders}
        return Schema(tuple(sorted(names)), tuple(sorted(relations)))

    def edges(self, group: Group) -> Tensor | InEdges:
        if self.file(csc_array(group, INDPTR)).is_file():
            self.refuse_twice(edge_array("edge_index", group), group)
            return self._csc(group)
        return self.edge_index(group)

    def _csc(self, group: Group) -> InEdges:
        found, files, mapped = dict[str, Tensor](), [], True
        for name in (INDPTR, INDICES, EDGE_IDS):
            array = csc_array(group, name)
            values = self.open(array)
            if values is None and name == INDICES:
                raise self.absent(array, "put the source of each edge there")
            if values is not None:
                found[name] = values if name == INDPTR else to_index(values.numpy(), self.file(array), name)
                mapped = mapped and found[name].dtype is values.dtype  # else it is a copy in memory
                files.append(self.file(array))
        return MappedEdges(**found, files=tuple(files)) if mapped else InEdges(**found)

    def edge_index(self, group: Group = EDGES) -> Tensor:
        array = edge_array("edge_index", group)
        values = self.open(array)
        self.refuse_twice(array, group)
        if values is not None:
            found = values.numpy()
        elif (ends := self._ends(group)) is not None:
            found = ends
        elif files := parquet_files(self.path, group):
            self.files[array] = files[0]
            if group == EDGES:
                self._read -= {self.file("src"), self.file("dst")}
                self.files[array] = files[0] if len(files) == 1 else self.path / "edges*.parquet"
            found, columns = read_parquet_edges(files)
            self._keep(group, columns, files)
        elif group != EDGES:
            raise self.absent(array, "put it there, or a .parquet file with src and dst")
        elif there := [end for end in ("src", "dst") if self.file(end).is_file()]:
            raise self.absent("dst" if there == ["src"] else "src", "edges need both src.npy and dst.npy")
        else:
            raise DatasetNotFoundError(
                f"{self.path}: edge_index: the folder has no edges; "
                "put edge_index.npy, src.npy and dst.npy, edges*.parquet, or csc/ there"
            )
        return to_index(found, self.files[array], array_name(array))

    def _ends(self, group: Group) -> np.ndarray | None:
        if group != EDGES:
            return None
        source, target = self.open("src"), self.open("dst")
        if source is None or target is None:
            return None
        if source.shape != target.shape or source.dim() != 1:
            fact = f"shape is {list(target.shape)}, src.npy has {list(source.shape)}"
            raise self.error("dst", fact, "both must be [E]")
        for array, values in (("src", source), ("dst", target)):
            to_index(values[:0].numpy(), self.files[array], array)
        self.files["edge_index"] = self.files["src"]
        return np.stack([source.numpy(), target.numpy()])

    def refuse_twice(self, array: str, group: Group) -> None:
        forms = [
            [self.file(array)],
            [self.file("src"), self.file("dst")] if group == EDGES else [],
            [file for file in parquet_files(self.path, group) if has_edges(file)],
            [self.file(csc_array(group, INDPTR))],
        ]
        there = [form[0] for form in forms if form and all(file.is_file() for file in form)]
        if len(there) > 1:
            fact = f"{there[0].relative_to(self.path)} is there too"
            raise broken(there[1], array, fact, "remove one of the two")

    def _keep(self, group: Group, columns: dict[str, np.ndarray], files: Sequence[Path]) -> None:
        self._read.update(files)
        self._columns[group] = columns
        for name in columns:
            self.files[attribute_array(group, name)] = files[0]

    def attributes(self, schema: Schema) -> dict[Group, dict[str, Tensor]]:
        tables: dict[Group, dict[str, Tensor]] = {
            group: {} for group in (*schema.node_groups, *schema.edge_groups)
        }
        for group in schema.node_groups:
            if files := parquet_files(self.path, group):
                self._rows[group], columns = read_parquet(files)
                self._keep(group, columns, files)
        for group, columns in self._columns.items():
            for name, values in columns.items():
                usual, convert = _CONVENTIONS.get(name, (group, as_tensor))
                convert = convert if usual.kind is group.kind else as_tensor
                tables[group][name] = convert(values, self.files[attribute_array(group, name)], name)
        for folder in FOLDERS.values():
            for array in self.arrays_in(folder):
                group, name = self.known(array, attribute_of(array), tables)
                if name in tables[group]:
                    raise self.error(array, f"is a column of {Path(self.files[array]).name} too")
                tables[group][name] = self.opened(array)
        for name, (group, convert) in _CONVENTIONS.items():
            if group not in tables:
                continue
            array = attribute_array(group, name)
            other = self.files.get(array)
            stored = self.open(name, array)
            if stored is None:
                continue
            if other is not None:
                fact = f"{Path(other).relative_to(self.path)} is there too"
                if name in self._columns.get(group, {}):
                    fact = f"is a column of {Path(other).name} too"
                raise self.error(name, fact)
            tables[group][name] = convert(stored.numpy(), self.file(name), name)
        for array in self.arrays_in(DECODING_FOLDER):
            group, name = self.known(array, decoded_by(array), tables)
            if name not in tables[group]:
                fact = f"there are no codes {attribute_array(group, name)}.npy"
                raise self.error(array, fact, "restore them or remove this file")
            codes, decoding = tables[group][name], self.opened(array)
            tables[group][name] = to_codes(codes, decoding, self.file(array), array_name(array))
        return tables

    def arrays_in(self, folder: str) -> list[str]:
        paths = (self.path / folder).rglob("*.npy")
        return [path.relative_to(self.path).with_suffix("").as_posix() for path in sorted(paths)]

    def opened(self, array: str) -> Tensor:
        if (values := self.open(array)) is None:
            raise self.error(array, "is no file", "remove it")
        return values

    def known(
        self, array: str, named: tuple[Group, str] | None, groups: Mapping[Group, object]
    ) -> tuple[Group, str]:
        if named is None or named[0] not in groups:
            fact = "belongs to no node type or relation of the graph"
            remedy = f"the graph has {', '.join(map(str, groups))}: rename the folder or remove it"
            raise self.error(array, fact, remedy)
        return named

    def splits(self, schema: Schema, num_nodes: Mapping[Group, int]) -> dict[Group, dict[str, Tensor]]:
        found: dict[Group, dict[str, Tensor]] = {group: {} for group in schema.node_groups}
        for array in self.arrays_in(SPLITS_FOLDER):
            values, (group, name) = self.opened(array), self.known(array, split_of(array), found)
            found[group][name] = to_index(values.numpy(), self.file(array), name).to(torch.int64)
        for name in SPLITS if NODES in found else ():
            arrays = [array for array in (f"{name}_idx", f"{name}_mask") if self.file(array).is_file()]
            if len(arrays) + (name in found[NODES]) > 1:
                other = arrays[0] if len(arrays) > 1 else split_array(NODES, name)
                raise self.error(arrays[-1], f"{other}.npy is there too")
            if arrays:
                found[NODES][name] = self._split(name, arrays[0], num_nodes[NODES])
        return found

    def _split(self, name: str, array: str, num_nodes: int) -> Tensor:
        tensor = self.open(array, split_array(NODES, name))
        assert tensor is not None
        values = tensor.numpy()
        if array in _INDICES:
            return to_index(values, self.file(array), array).to(torch.int64)
        if values.dtype not in (np.dtype(np.bool_), np.dtype(np.uint8)) or values.shape != (num_nodes,):
            fact = f"is {values.dtype} {list(values.shape)}, expected bool [{num_nodes}]"
            raise self.error(array, fact, "store one boolean per node")
        return torch.from_numpy(np.flatnonzero(values).astype(np.int64))

    def num_nodes(
        self, group: Group, ids: Sequence[Tensor], tables: dict[str, Tensor], lengths: Collection[int]
    ) -> int:
        """Returns the number of nodes of a type. META.json says it; else edges by destination
        (``lengths``), Parquet files, an attribute or a mask do; else the largest of ``ids`` + 1."""
        if group.name in self.meta.num_nodes:
            return self.meta.num_nodes[str(group.name)]
        if lengths:
            return max(lengths)
        if group in self._rows:
            return self._rows[group]
        conventions = [tables[name] for name in (FEATURES, LABELS) if name in tables]
        masks = map(self.open, _MASKS) if group == NODES else ()
        for values in (*conventions, *tables.values(), *masks):
            if values is not None and values.dim():
                return len(values)
        return max((int(ends.max()) + 1 for ends in ids if ends.numel()), default=0)

    def warn_of_unread(self) -> None:
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
            if holds_data and path.name not in (*_FOLDERS, KEYS_FOLDER):
                text = f"{path}: the folder is not read. Is {near[0]}/ meant? Rename it, or remove it"
                warnings.warn(text, UserWarning, stacklevel=5)


def _relation(path: Path, name: str) -> Relation:
    group = group_of_folder(RowKind.EDGE, name) if path.suffix in (".npy", ".parquet") else None
    if group is None or isinstance(group.name, str):
        fact, remedy = f"{name} is not named by a relation", "name it SOURCE__RELATION__TARGET"
        raise broken(path, "edge_index", fact, f"{remedy}, with .npy or .parquet behind it if it is a file")
    return group.name


def array_name(array: str) -> str:
    return array.rpartition("/")[2]


def read_links(folder: FolderReader, schema: Schema) -> dict[Group, dict[str, LinkSplit]]:
    found: dict[Group, dict[str, dict[str, Tensor]]] = {group: {} for group in schema.edge_groups}
    for array in folder.arrays_in(LINKS_FOLDER):
        place, values = link_of(array), folder.opened(array)
        folder.known(array, None if place is None else (place.group, place.split), found)
        assert place is not None, "`known` has refused it"
        if place.name in (INDEX, NEGATIVES, NEGATIVE_TARGETS):
            values = to_index(values.numpy(), folder.file(array), place.name)
        found[place.group].setdefault(place.split, {})[place.name] = values
    for group, splits in found.items():
        for split, arrays in splits.items():
            if INDEX not in arrays:
                remedy = "put the links [2, n] of the split there"
                raise folder.absent(str(LinkArray(group, split, INDEX)), remedy)
    return {
        group: {split: LinkSplit.of_arrays(arrays) for split, arrays in splits.items()}
        for group, splits in found.items()
    }
