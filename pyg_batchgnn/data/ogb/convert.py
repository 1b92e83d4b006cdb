"""Turns OGB's raw files into a folder of .npy arrays that can be mapped; done once."""

from __future__ import annotations

import csv
import gzip
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from pyg_batchgnn.data.convert import to_labels
from pyg_batchgnn.data.dataset import INDEX, NEGATIVE_TARGETS, NEGATIVES
from pyg_batchgnn.data.errors import broken, missing
from pyg_batchgnn.data.files import EdgeAppender, NpyAppender
from pyg_batchgnn.data.folder_write import new_folder
from pyg_batchgnn.data.meta import (
    LinkArray,
    Meta,
    attribute_array,
    edge_array,
    promises_in,
    split_array,
    write_meta,
)
from pyg_batchgnn.data.ogb.facts import OgbTable, RawLayout, StoredEdges, StoredLinks
from pyg_batchgnn.data.ogb.raw import NpzMember, csv_gz_pieces, open_member, read_csv_gz, read_split_file
from pyg_batchgnn.data.undirected import make_undirected
from pyg_batchgnn.ops import fits_int32
from pyg_batchgnn.types import EDGES, FEATURES, HOMOGENEOUS, LABELS, NODES, Group, Relation, Schema


def raw_files(table: OgbTable, folder: Path) -> list[Path]:
    if table.layout is RawLayout.TYPED_CSV:
        return TypedRaw.read(table, folder).files()
    if table.layout is RawLayout.BINARY:
        names = ["data.npz", "node-label.npz"]
    else:
        stems = ["edge", "num-node-list", "num-edge-list", "node-feat", *table.of_nodes, *table.of_edges]
        names = [f"{stem}.csv.gz" for stem in (*stems, *(["node-label"] if table.links is None else []))]
    if table.links is not None:
        return [*(folder / "raw" / name for name in names), *link_files(table, folder)]
    splits = [folder / "split" / table.split / f"{part}.csv.gz" for part in ("train", "valid", "test")]
    return [folder / "raw" / name for name in names] + splits


def raw_sizes(table: OgbTable, folder: Path) -> dict[str, int]:
    """Returns the bytes of each raw file, which tell whether a conversion is still current."""
    if not (folder / "raw").is_dir():
        return {}
    files = raw_files(table, folder)
    return {str(file.relative_to(folder)): file.stat().st_size for file in files if file.is_file()}


def convert(table: OgbTable, folder: Path, target: Path) -> None:
    """Writes `target`, a folder that `read_folder` reads, from the raw files in `folder`. A
    UserWarning names what is not converted.

    Features, edges and labels go through memory in pieces of about 16 MiB, except the edges of CSV
    data sets, which are read whole. Node ids become int32 where they fit. An edge list that holds
    each undirected edge once is stored in both directions (every edge, then every reverse).
    """
    _warn_of_unread(table, folder)
    with new_folder(target) as temporary:
        typed = table.layout is RawLayout.TYPED_CSV
        meta = (convert_typed if typed else _convert_plain)(table, folder, temporary)
        source = f"{table.name} of the Open Graph Benchmark, converted from the raw files in {folder}."
        origin, promises = {"raw_bytes": raw_sizes(table, folder)}, promises_in(temporary)
        write_meta(temporary, replace(meta, source=source, arrays=promises, origin=origin))


def _warn_of_unread(table: OgbTable, folder: Path) -> None:
    raw, known = folder / "raw", {*raw_files(table, folder), *further_files(folder)}
    found = [path for path in sorted(raw.rglob("*.gz")) if path not in known]
    others = [str(path.relative_to(folder)) for path in found]
    if table.layout is RawLayout.BINARY:
        others += [f"{name} in raw/data.npz" for name in unread_members(raw / "data.npz")]
    if others:
        text = f"{folder}: {table.name} also has {', '.join(others)}, which the conversion leaves out"
        remedy = "read what you need from there, and add it to the tables of the data set"
        warnings.warn(f"{text}; {remedy}", UserWarning, stacklevel=2)


def _convert_plain(table: OgbTable, folder: Path, target: Path) -> Meta:
    if table.layout is RawLayout.CSV:
        num_nodes = convert_csv(table, folder, target)
    else:
        num_nodes = convert_binary(folder, target)
    if table.links is not None:
        convert_link_splits(table, folder, target)
        return Meta(table.name, None, HOMOGENEOUS, {"node": num_nodes}, {"node": 0})
    for part, raw_name in (("train", "train"), ("val", "valid"), ("test", "test")):
        file = folder / "split" / table.split / f"{raw_name}.csv.gz"
        ids = read_csv_gz(file, part, np.int64, 1)[:, 0]
        np.save(target / f"{split_array(NODES, part)}.npy", ids)
    return Meta(table.name, None, HOMOGENEOUS, {"node": num_nodes}, {"node": table.num_classes})


_AGAIN = "download the data set again"


def convert_csv(table: OgbTable, folder: Path, target: Path) -> int:
    """Writes edges, features, labels and further attributes. Returns the number of nodes."""
    raw = folder / "raw"
    num_nodes = _total(raw / "num-node-list.csv.gz", "num_nodes")
    num_edges = _total(raw / "num-edge-list.csv.gz", "num_edges")
    edge_file = raw / "edge.csv.gz"
    id_type = np.int32 if fits_int32(num_nodes) else np.int64
    pieces = csv_gz_pieces(edge_file, "edge_index", np.int64, 2)
    edges = np.concatenate(
        [np.empty((0, 2), id_type), *(narrow_ids(edge_file, piece, num_nodes, id_type) for piece in pieces)]
    )
    if len(edges) != num_edges:
        raise broken(
            edge_file, "edge_index", f"has {len(edges)} rows, num-edge-list says {num_edges}", _AGAIN
        )
    edge_index = torch.from_numpy(np.ascontiguousarray(edges.T))
    if table.edges is StoredEdges.EACH_ONCE:
        edge_index = make_undirected(edge_index, num_nodes)
    np.save(target / "edge_index.npy", edge_index.numpy())
    _convert_csv_features(raw / "node-feat.csv.gz", array_file(target, NODES, FEATURES), num_nodes)
    if table.links is None:
        label_file = raw / "node-label.csv.gz"
        labels = read_csv_gz(label_file, "y", np.float64, 1)  # floating point: a label may be "nan"
        _check_rows(label_file, "y", len(labels), num_nodes)
        np.save(array_file(target, NODES, LABELS), to_labels(labels, label_file, "y").numpy())
    _convert_more(table, raw, target, num_nodes, num_edges)
    return num_nodes


def _convert_more(table: OgbTable, raw: Path, target: Path, num_nodes: int, num_edges: int) -> None:
    """Converts further attributes of nodes and edges. Reverse edges repeat those of edges."""
    for name in table.of_nodes:
        values = _numbers(raw / f"{name}.csv.gz", name)
        _check_rows(raw / f"{name}.csv.gz", name, len(values), num_nodes)
        np.save(array_file(target, NODES, name), values)
    for name in table.of_edges:
        values = _numbers(raw / f"{name}.csv.gz", name)
        _check_rows(raw / f"{name}.csv.gz", name, len(values), num_edges, "num-edge-list")
        is_both_ways = table.edges is StoredEdges.EACH_ONCE
        np.save(array_file(target, EDGES, name), np.tile(values, 2) if is_both_ways else values)


def _numbers(file: Path, name: str) -> np.ndarray:
    """Reads a column, as int64 if all numbers are whole."""
    values = read_csv_gz(file, name, np.float64, 1)[:, 0]
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64)
    return whole if np.array_equal(whole, values) else values


def _convert_csv_features(file: Path, target: Path, num_nodes: int) -> None:
    pieces = csv_gz_pieces(file, "x", np.float32)
    first = next(pieces, None)
    columns = 0 if first is None else first.shape[1]
    with NpyAppender(target, np.float32, (columns,)) as out:
        if first is not None:
            out.append(first)
        for piece in pieces:
            out.append(piece)
    _check_rows(file, "x", out.rows, num_nodes)


def _total(file: Path, count: str) -> int:
    """Returns the number of nodes or edges. OGB lists it for each graph; here there is one."""
    counts = read_csv_gz(file, count, np.int64, 1)
    if counts.shape != (1, 1) or int(counts[0, 0]) < 0:
        raise broken(file, count, f"holds {counts.ravel().tolist()[:5]}, expected one count", _AGAIN)
    return int(counts[0, 0])


def _check_rows(file: Path, array: str, rows: int, expected: int, said_by: str = "num-node-list") -> None:
    if rows != expected:
        raise broken(file, array, f"has {rows} rows, {said_by} says {expected}", _AGAIN)


#: The arrays that are converted.
_READ = ("num_nodes_list", "num_edges_list", "edge_index", "node_feat")


def convert_binary(folder: Path, target: Path) -> int:
    """Writes edges, features and labels; returns the number of nodes."""
    archive = folder / "raw" / "data.npz"
    num_nodes = _member_total(archive, "num_nodes_list")
    num_edges = _member_total(archive, "num_edges_list")
    with open_member(archive, "edge_index") as member:
        _check_shape(member, (2, num_edges))
        _check_kind(member, "iu", "integers")
        _write_edges(member, target / "edge_index.npy", num_nodes)
    with open_member(archive, "node_feat") as member:
        shape = member.header.shape
        _check_shape(member, (num_nodes, shape[1] if len(shape) == 2 else -1))
        _check_kind(member, "f", "floating point numbers")
        dtype = np.float16 if member.header.dtype == np.float16 else np.float32
        with NpyAppender(array_file(target, NODES, FEATURES), dtype, (shape[1],)) as out:
            for rows in _whole_rows(member.pieces(), shape[1]):
                out.append(rows)
    with open_member(folder / "raw" / "node-label.npz", "node_label") as member:
        _check_shape(member, (num_nodes, 1))
        with NpyAppender(array_file(target, NODES, LABELS), np.int64) as out:
            for piece in member.pieces():
                out.append(to_labels(piece, member.path, "node_label").numpy())
    return num_nodes


def unread_members(archive: Path) -> list[str]:
    """Returns the names of arrays in an archive that are not converted; none if it is damaged."""
    try:
        with zipfile.ZipFile(archive) as file:
            names = [name.removesuffix(".npy") for name in file.namelist()]
    except (OSError, zipfile.BadZipFile):  # reading it says what is wrong
        return []
    return [name for name in names if name not in _READ]


def _write_edges(member: NpzMember, target: Path, num_nodes: int) -> None:
    """Writes edge_index [2, E] in pieces, all sources first."""
    id_type = np.int32 if fits_int32(num_nodes) else np.int64
    num_edges = member.header.shape[1]
    written = 0
    with EdgeAppender(target, id_type) as out:
        for piece in member.pieces():
            ids = narrow_ids(member.path, piece, num_nodes, id_type)
            sources = ids[: max(num_edges - written, 0)]
            out.append_sources(sources)
            out.append_destinations(ids[len(sources) :])
            written += len(ids)


def _whole_rows(pieces: Iterator[np.ndarray], columns: int) -> Iterator[np.ndarray]:
    rest = np.empty(0, np.float32)
    for piece in pieces:
        flat = np.concatenate([rest, piece]) if rest.size else piece
        cut = len(flat) // columns * columns
        rest = flat[cut:]
        yield flat[:cut].reshape(-1, columns)


def _member_total(archive: Path, count: str) -> int:
    with open_member(archive, count) as member:
        counts = member.read().ravel()
    if counts.shape != (1,) or counts.dtype.kind not in "iu" or int(counts[0]) < 0:
        raise broken(archive, count, f"holds {counts.tolist()[:5]}, expected one count", _AGAIN)
    return int(counts[0])


def _check_shape(member: NpzMember, shape: tuple[int, ...]) -> None:
    if member.header.shape != shape:
        fact = f"shape is {list(member.header.shape)}, expected {list(shape)}"
        raise broken(member.path, member.array, fact, _AGAIN)


def _check_kind(member: NpzMember, kinds: str, expected: str) -> None:
    if member.header.dtype.kind not in kinds:
        fact = f"dtype is {member.header.dtype}, expected {expected}"
        raise broken(member.path, member.array, fact, _AGAIN)


_SPLITS = {"train": "train", "val": "valid", "test": "test"}
#: Files beside the features of nodes, and beside the edges of a relation, that become attributes of
#: the same name.
_MORE_OF_NODES, _MORE_OF_EDGES = ("node_year",), ("edge_reltype",)


@dataclass(frozen=True)
class TypedRaw:
    """The contents of the lists among the raw files."""

    folder: Path  # the data set's folder, with raw/ and split/ in it
    split: Path  # the folder of the splits
    schema: Schema  # the node types and the relations, in alphabetical order as OGB has them
    num_nodes: dict[str, int]  # the number of nodes of each type
    #: with_x, with_y, with_split: the types that have features, labels and splits
    with_x: list[str]
    with_y: list[str]
    with_split: list[str]

    @classmethod
    def read(cls, table: OgbTable, folder: Path) -> TypedRaw:
        """Reads the lists. Raises `DatasetNotFoundError` if a list is missing. Raises
        `DatasetError` if a list is damaged or does not agree with another."""
        raw, split = folder / "raw", folder / "split" / table.split
        counts_file, triplets_file = raw / "num-node-dict.csv.gz", raw / "triplet-type-list.csv.gz"
        counts = _row(counts_file)
        if not all(count.isdigit() for count in counts.values()):
            raise broken(counts_file, "num_nodes", f"holds {counts}, expected counts", _AGAIN)
        relations = list[Relation]()
        for names in sorted(_table(triplets_file)):
            if len(names) != 3:
                raise broken(triplets_file, "relations", f"holds {names}, expected three names", _AGAIN)
            relations.append((names[0], names[1], names[2]))
        try:
            schema = Schema(tuple(sorted(counts)), tuple(relations))
        except ValueError as error:
            raise broken(triplets_file, "relations", str(error), _AGAIN) from error
        return cls(
            folder,
            split,
            schema,
            {name: int(counts[name]) for name in schema.node_types},
            _marked(raw / "nodetype-has-feat.csv.gz", schema),
            _marked(raw / "nodetype-has-label.csv.gz", schema),
            _marked(split / "nodetype-has-split.csv.gz", schema),
        )

    def relation(self, relation: Relation) -> Path:
        return self.folder / "raw" / "relations" / "___".join(relation)

    def files(self) -> list[Path]:
        raw = self.folder / "raw"
        lists = ("num-node-dict", "triplet-type-list", "nodetype-has-feat", "nodetype-has-label")
        edges = [self.relation(names) for names in self.schema.relations]
        return [
            *(raw / f"{name}.csv.gz" for name in lists),
            self.split / "nodetype-has-split.csv.gz",
            *(folder / f"{name}.csv.gz" for folder in edges for name in ("edge", "num-edge-list")),
            *(raw / "node-feat" / name / "node-feat.csv.gz" for name in self.with_x),
            *(raw / "node-label" / name / "node-label.csv.gz" for name in self.with_y),
            *(self.split / name / f"{part}.csv.gz" for name in self.with_split for part in _SPLITS.values()),
        ]


def convert_typed(table: OgbTable, folder: Path, target: Path) -> Meta:
    """Writes the arrays of a data set of several types; returns its META.json without promises."""
    raw = TypedRaw.read(table, folder)
    classes = dict.fromkeys(raw.schema.node_types, 0)
    for group, name in zip(raw.schema.node_groups, raw.schema.node_types, strict=True):
        features, count = folder / "raw" / "node-feat" / name, raw.num_nodes[name]
        if name in raw.with_x:
            rows = _columns(features / "node-feat.csv.gz", _array(target, group, FEATURES), np.float32)
            _check_typed_rows(features / "node-feat.csv.gz", "x", rows, count)
        for more in _MORE_OF_NODES:
            if (features / f"{more}.csv.gz").is_file():
                _more(features / f"{more}.csv.gz", _array(target, group, more), count)
        if name in raw.with_y:
            file = folder / "raw" / "node-label" / name / "node-label.csv.gz"
            labels = read_csv_gz(file, "y", np.float64, 1)  # floating point: a label may be "nan"
            _check_typed_rows(file, "y", len(labels), count)
            np.save(_array(target, group, LABELS), to_labels(labels, file, "y").numpy())
            classes[name] = table.num_classes
        if name in raw.with_split:
            for part, raw_name in _SPLITS.items():
                ids = read_csv_gz(raw.split / name / f"{raw_name}.csv.gz", part, np.int64, 1)[:, 0]
                np.save(_file(target, split_array(group, part)), ids)
    for group, relation in zip(raw.schema.edge_groups, raw.schema.relations, strict=True):
        _convert_relation(raw, group, relation, target)
    return Meta(table.name, None, raw.schema, raw.num_nodes, classes)


def _convert_relation(raw: TypedRaw, group: Group, relation: Relation, target: Path) -> None:
    folder, file = raw.relation(relation), raw.relation(relation) / "edge.csv.gz"
    limits = np.array([raw.num_nodes[relation[0]], raw.num_nodes[relation[2]]])
    id_type = np.int32 if fits_int32(int(limits.max())) else np.int64
    with EdgeAppender(_file(target, edge_array("edge_index", group)), id_type) as out:
        for piece in csv_gz_pieces(file, "edge_index", np.int64, 2):
            if ((piece < 0) | (piece >= limits)).any():
                row = piece[((piece < 0) | (piece >= limits)).any(1)][0].tolist()
                fact = f"edge {row} is outside [0, {limits[0]}) and [0, {limits[1]})"
                raise broken(file, "edge_index", fact, _AGAIN)
            out.append(piece[:, 0].astype(id_type), piece[:, 1].astype(id_type))
    says = int(read_csv_gz(folder / "num-edge-list.csv.gz", "num_edges", np.int64, 1).sum())
    if out.edges != says:
        raise broken(file, "edge_index", f"has {out.edges} rows, num-edge-list says {says}", _AGAIN)
    for more in _MORE_OF_EDGES:
        if (folder / f"{more}.csv.gz").is_file():
            _more(folder / f"{more}.csv.gz", _array(target, group, more), out.edges)


def further_files(folder: Path) -> set[Path]:
    """Returns the raw files of further attributes, which need not exist."""
    names = [f"{name}.csv.gz" for name in (*_MORE_OF_NODES, *_MORE_OF_EDGES)]
    return {path for name in names for path in (folder / "raw").glob(f"*/*/{name}")}


def _more(file: Path, target: Path, count: int) -> None:
    _check_typed_rows(file, file.name.partition(".")[0], _columns(file, target, np.int64), count)


def _columns(file: Path, target: Path, dtype: type) -> int:
    """Converts a table in pieces, one whole-number column to a vector. Returns its rows."""
    pieces = csv_gz_pieces(file, target.stem, dtype)
    first = next(pieces, np.empty((0, 1), dtype))
    flat = first.shape[1] == 1 and dtype is np.int64
    with NpyAppender(target, dtype, () if flat else (first.shape[1],)) as out:
        out.append(first[:, 0] if flat else first)
        for piece in pieces:
            out.append(piece[:, 0] if flat else piece)
    return out.rows


def _array(target: Path, group: Group, name: str) -> Path:
    return _file(target, attribute_array(group, name))


def _file(target: Path, array: str) -> Path:
    file = target / f"{array}.npy"
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _marked(file: Path, schema: Schema) -> list[str]:
    return [name for name, mark in _row(file).items() if mark == "True" and name in schema.node_types]


def _row(file: Path) -> dict[str, str]:
    rows = _table(file)
    if len(rows) != 2 or len(rows[0]) != len(rows[1]):
        raise broken(file, "row", f"has {len(rows)} rows, expected a header and one row like it", _AGAIN)
    return dict(zip(*rows, strict=True))


def _table(file: Path) -> list[list[str]]:
    if not file.is_file():
        raise missing(file, file.name.partition(".")[0], _AGAIN)
    try:
        with gzip.open(file, "rt", encoding="utf-8", newline="") as stream:
            return [row for row in csv.reader(stream) if row]
    except (EOFError, OSError, UnicodeDecodeError, zlib.error) as error:
        raise broken(file, file.name, f"truncated or damaged gzip ({error})", _AGAIN) from error


def _check_typed_rows(file: Path, array: str, rows: int, expected: int) -> None:
    if rows != expected:
        raise broken(file, array, f"has {rows} rows, expected {expected}", _AGAIN)


def link_files(table: OgbTable, folder: Path) -> list[Path]:
    return [folder / "split" / table.split / f"{part}.pt" for part in _SPLITS.values()]


def convert_link_splits(table: OgbTable, folder: Path, target: Path) -> None:
    """Writes the links of each split, with their negatives and attributes."""
    for split, file in zip(_SPLITS, link_files(table, folder), strict=True):
        found = read_split_file(file)
        arrays = _pairs(file, found) if table.links is StoredLinks.PAIRS else _targets(file, found)
        for name, values in arrays.items():
            path = target / f"{LinkArray(EDGES, split, name)}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, np.ascontiguousarray(values))


def _pairs(file: Path, found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    arrays = {INDEX: _integers(file, found, "edge", (None, 2)).T}
    if "edge_neg" in found:
        arrays[NEGATIVES] = _integers(file, found, "edge_neg", (None, 2)).T
    count = arrays[INDEX].shape[1]
    for name in found.keys() - {"edge", "edge_neg"}:
        if found[name].shape[:1] != (count,):
            raise _unfit(file, name, found[name], f"[{count}, ...]")
        arrays[name] = found[name]
    return arrays


def _targets(file: Path, found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    source = _integers(file, found, "source_node", (None,))
    target = _integers(file, found, "target_node", source.shape)
    arrays = {INDEX: np.stack([source, target])}
    if "target_node_neg" in found:
        arrays[NEGATIVE_TARGETS] = _integers(file, found, "target_node_neg", (len(source), None))
    return arrays


def _integers(
    file: Path, found: Mapping[str, np.ndarray], name: str, shape: tuple[int | None, ...]
) -> np.ndarray:
    if name not in found:
        raise broken(file, name, f"is not among {sorted(found)}", _AGAIN)
    values = found[name]
    fits = values.ndim == len(shape) and all(
        want in (None, size) for size, want in zip(values.shape, shape, strict=True)
    )
    if not fits or values.dtype.kind not in "iu":
        wanted = ", ".join("n" if want is None else str(want) for want in shape)
        raise _unfit(file, name, values, f"integers [{wanted}]")
    return values


def _unfit(file: Path, name: str, values: np.ndarray, wanted: str) -> Exception:
    return broken(file, name, f"is {values.dtype} {list(values.shape)}, expected {wanted}", _AGAIN)


def narrow_ids(file: Path, ids: np.ndarray, num_nodes: int, id_type: type) -> np.ndarray:
    """Returns node ids in their stored type, checked first: narrowing would hide a bad one."""
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < num_nodes:
        worst = int(ids.max()) if int(ids.max()) >= num_nodes else int(ids.min())
        raise broken(file, "edge_index", f"node id {worst} is outside [0, {num_nodes})", _AGAIN)
    return ids.astype(id_type)


def array_file(target: Path, group: Group, name: str) -> Path:
    return target / f"{attribute_array(group, name)}.npy"
