"""Converts OGB's raw files, once, to a folder of .npy arrays that can be mapped."""

from __future__ import annotations

import contextlib
import csv
import gzip
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyg_batchgnn.data.dataset import INDEX, NEGATIVE_TARGETS, NEGATIVES, to_labels
from pyg_batchgnn.data.errors import broken, missing
from pyg_batchgnn.data.files.durable import new_file
from pyg_batchgnn.data.files.npy import (
    EdgeAppender,
    NpyAppender,
    NpzMember,
    csv_gz_pieces,
    open_member,
    promise_of,
    read_csv_gz,
    read_split_file,
)
from pyg_batchgnn.data.folder_write import new_folder
from pyg_batchgnn.data.meta import LinkArray, Meta, attribute_array, edge_array, split_array, write_meta
from pyg_batchgnn.data.ogb.facts import OgbTable, RawLayout, StoredEdges, StoredLinks
from pyg_batchgnn.ops import fits_int32
from pyg_batchgnn.types import EDGES, FEATURES, HOMOGENEOUS, LABELS, NODES, Group, Relation, Schema

_AGAIN = "download the data set again"
_SPLITS = {"train": "train", "val": "valid", "test": "test"}


def raw_files(table: OgbTable, folder: Path) -> list[Path]:
    if table.layout is RawLayout.BINARY:
        splits = folder / "split" / table.split
        return [
            *(folder / "raw" / name for name in ("data.npz", "node-label.npz")),
            *(splits / f"{part}.csv.gz" for part in _SPLITS.values()),
        ]
    return [*RawTables.read(table, folder).files(), *(link_files(table, folder) if table.links else [])]


def raw_sizes(table: OgbTable, folder: Path) -> dict[str, int]:
    """Returns the bytes of each raw file; if they change, a conversion is outdated."""
    if not (folder / "raw").is_dir():
        return {}
    files = raw_files(table, folder)
    return {str(file.relative_to(folder)): file.stat().st_size for file in files if file.is_file()}


def convert(table: OgbTable, folder: Path, target: Path) -> None:
    """Writes `target`, a folder for `read_folder`, from the raw files in `folder`. A UserWarning
    names what is not converted. Arrays go through memory 16 MiB at a time. Node ids become int32 if
    they fit. To an edge list with each undirected edge once, all reverses are added."""
    _warn_of_unread(table, folder)
    with new_folder(target) as temporary:
        if table.layout is RawLayout.BINARY:
            schema, num_nodes = HOMOGENEOUS, {"node": convert_binary(folder, temporary)}
            classes = {"node": table.num_classes}
            _write_splits(folder / "split" / table.split, temporary, NODES)
        else:
            raw = RawTables.read(table, folder)
            schema, num_nodes, classes = raw.schema, raw.num_nodes, dict.fromkeys(raw.num_nodes, 0)
            classes |= dict.fromkeys(raw.with_y, table.num_classes)
            convert_tables(raw, temporary)
        if table.links is not None:
            convert_link_splits(table, folder, temporary)
        source = f"{table.name} of the Open Graph Benchmark, converted from the raw files in {folder}."
        origin = {"raw_bytes": raw_sizes(table, folder)}
        promises = {
            path.relative_to(temporary).with_suffix("").as_posix(): promise_of(path)
            for path in sorted(temporary.rglob("*.npy"))
        }
        write_meta(temporary, Meta(table.name, source, schema, num_nodes, classes, promises, origin))


def _warn_of_unread(table: OgbTable, folder: Path) -> None:
    raw, known = folder / "raw", {*raw_files(table, folder)}
    if table.layout is RawLayout.TYPED_CSV:
        known |= RawTables.read(table, folder).further_files()
    found = [path for path in sorted(raw.rglob("*.gz")) if path not in known]
    others = [str(path.relative_to(folder)) for path in found]
    if table.layout is RawLayout.BINARY:
        with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(raw / "data.npz") as file:
            names = (name.removesuffix(".npy") for name in file.namelist())
            others += [f"{name} in raw/data.npz" for name in names if name not in _READ]
    if others:
        text = f"{folder}: {table.name} also has {', '.join(others)}, which the conversion leaves out"
        remedy = "read what you need from there, and add it to the tables of the data set"
        warnings.warn(f"{text}; {remedy}", UserWarning, stacklevel=2)


def _write_splits(folder: Path, target: Path, group: Group) -> None:
    for part, raw_name in _SPLITS.items():
        ids = read_csv_gz(folder / f"{raw_name}.csv.gz", part, np.int64, 1)[:, 0]
        np.save(new_file(target, split_array(group, part)), ids)


@dataclass(frozen=True)
class RawTables:
    """The CSV files of a data set, of one node type and relation or of several."""

    table: OgbTable
    folder: Path  # holds raw/ and split/
    schema: Schema  # node types and relations, in alphabetical order, as in OGB
    num_nodes: dict[str, int]
    # The types that have features, labels and splits.
    with_x: list[str]
    with_y: list[str]
    with_split: list[str]

    @classmethod
    def read(cls, table: OgbTable, folder: Path) -> RawTables:
        raw, split = folder / "raw", folder / "split" / table.split
        if table.layout is RawLayout.CSV:
            file = raw / "num-node-list.csv.gz"
            count = _one_count(file, "num_nodes", read_csv_gz(file, "num_nodes", np.int64, 1))
            labelled = [] if table.links is not None else ["node"]
            return cls(table, folder, HOMOGENEOUS, {"node": count}, ["node"], labelled, labelled)
        counts_file, triplets_file = raw / "num-node-dict.csv.gz", raw / "triplet-type-list.csv.gz"
        counts = _row(counts_file)
        if not all(count.isdigit() for count in counts.values()):
            raise broken(counts_file, "num_nodes", f"holds {counts}, expected counts", _AGAIN)
        try:
            relations = tuple((source, name, end) for source, name, end in sorted(_table(triplets_file)))
            schema = Schema(tuple(sorted(counts)), relations)
        except ValueError as error:  # other than three names in a row, or an unknown type
            raise broken(triplets_file, "relations", str(error), _AGAIN) from error
        marks = [
            [name for name, mark in _row(file).items() if mark == "True" and name in counts]
            for file in (
                *(raw / f"nodetype-has-{what}.csv.gz" for what in ("feat", "label")),
                split / "nodetype-has-split.csv.gz",
            )
        ]
        return cls(table, folder, schema, {name: int(counts[name]) for name in schema.node_types}, *marks)

    @property
    def _is_typed(self) -> bool:
        return self.table.layout is RawLayout.TYPED_CSV

    def of_nodes(self, name: str, what: str, folder: str = "") -> Path:
        """Returns a file of a node type; with several types it lies in the type's folder."""
        raw = self.folder / "raw"
        return (raw / (folder or what) / name if self._is_typed else raw) / f"{what}.csv.gz"

    def of_edges(self, relation: Relation, what: str) -> Path:
        raw = self.folder / "raw"
        return (raw / "relations" / "___".join(relation) if self._is_typed else raw) / f"{what}.csv.gz"

    def split(self, name: str) -> Path:
        folder = self.folder / "split" / self.table.split
        return folder / name if self._is_typed else folder

    def further_files(self) -> set[Path]:
        """Returns the files of further attributes; with several types they may be missing."""
        more = self.table.of_nodes, self.table.of_edges
        return {
            *(self.of_nodes(name, one, "node-feat") for name in self.num_nodes for one in more[0]),
            *(self.of_edges(names, one) for names in self.schema.relations for one in more[1]),
        }

    def files(self) -> list[Path]:
        raw, split = self.folder / "raw", self.folder / "split" / self.table.split
        lists = [raw / "num-node-list.csv.gz", *self.further_files()]
        if self._is_typed:
            names = ("num-node-dict", "triplet-type-list", "nodetype-has-feat", "nodetype-has-label")
            lists = [*(raw / f"{name}.csv.gz" for name in names), split / "nodetype-has-split.csv.gz"]
        relations = self.schema.relations
        return [
            *lists,
            *(self.of_edges(names, one) for names in relations for one in ("edge", "num-edge-list")),
            *(self.of_nodes(name, "node-feat") for name in self.with_x),
            *(self.of_nodes(name, "node-label") for name in self.with_y),
            *(self.split(name) / f"{part}.csv.gz" for name in self.with_split for part in _SPLITS.values()),
        ]


def convert_tables(raw: RawTables, target: Path) -> None:
    for group, name in zip(raw.schema.node_groups, raw.schema.node_types, strict=True):
        count = raw.num_nodes[name]
        if name in raw.with_x:
            _write_features(
                raw.of_nodes(name, "node-feat"), new_file(target, attribute_array(group, FEATURES)), count
            )
        for more in raw.table.of_nodes:
            _write_more(raw.of_nodes(name, more, "node-feat"), target, group, count)
        if name in raw.with_y:
            file = raw.of_nodes(name, "node-label")
            labels = read_csv_gz(file, "y", np.float64, 1)  # floating point: a label may be "nan"
            _check_rows(file, "y", len(labels), count)
            np.save(new_file(target, attribute_array(group, LABELS)), to_labels(labels, file, "y").numpy())
        if name in raw.with_split:
            _write_splits(raw.split(name), target, group)
    for group, relation in zip(raw.schema.edge_groups, raw.schema.relations, strict=True):
        _convert_relation(raw, group, relation, target)


def _convert_relation(raw: RawTables, group: Group, relation: Relation, target: Path) -> None:
    file, says_file = raw.of_edges(relation, "edge"), raw.of_edges(relation, "num-edge-list")
    limits = raw.num_nodes[relation[0]], raw.num_nodes[relation[2]]
    ways = 2 if raw.table.edges is StoredEdges.EACH_ONCE else 1
    id_type = np.int32 if fits_int32(max(limits)) else np.int64
    with EdgeAppender(new_file(target, edge_array("edge_index", group)), id_type) as out:
        for way in range(ways):
            for piece in csv_gz_pieces(file, "edge_index", np.int64, 2):
                ends = [
                    narrow_ids(file, ids, limit, id_type) for ids, limit in zip(piece.T, limits, strict=True)
                ]
                out.append(*(ends[::-1] if way else ends))
    count, says = out.edges // ways, read_csv_gz(says_file, "num_edges", np.int64, 1)
    if count != _one_count(says_file, "num_edges", says):
        fact = f"has {count} rows, num-edge-list says {says[0, 0]}"
        raise broken(file, "edge_index", fact, _AGAIN)
    for more in raw.table.of_edges:
        _write_more(raw.of_edges(relation, more), target, group, count, ways)


def _write_features(file: Path, target: Path, rows: int) -> None:
    pieces = csv_gz_pieces(file, "x", np.float32)
    first = next(pieces, np.empty((0, 0), np.float32))
    with NpyAppender(target, np.float32, (first.shape[1],)) as out:
        out.append(first)
        for piece in pieces:
            out.append(piece)
    _check_rows(file, "x", out.rows, rows)


def _write_more(file: Path, target: Path, group: Group, rows: int, times: int = 1) -> None:
    """Converts a further attribute of one column, if its file is there: to int64 if all numbers are
    whole. ``times``: 2 repeats it for reverse edges."""
    if not file.is_file():
        return
    name = file.name.partition(".")[0]
    values = read_csv_gz(file, name, np.float64, 1)[:, 0]
    _check_rows(file, name, len(values), rows)
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64)
    values = whole if np.array_equal(whole, values) else values
    np.save(new_file(target, attribute_array(group, name)), np.tile(values, times))


def _one_count(file: Path, count: str, counts: np.ndarray) -> int:
    """Returns the count of nodes or edges. OGB lists one for each graph; here is one graph."""
    if counts.size != 1 or counts.dtype.kind not in "iu" or int(counts.flat[0]) < 0:
        raise broken(file, count, f"holds {counts.ravel().tolist()[:5]}, expected one count", _AGAIN)
    return int(counts.flat[0])


def _check_rows(file: Path, array: str, rows: int, expected: int) -> None:
    if rows != expected:
        raise broken(file, array, f"has {rows} rows, expected {expected}", _AGAIN)


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


#: The arrays that are converted.
_READ = ("num_nodes_list", "num_edges_list", "edge_index", "node_feat")


def convert_binary(folder: Path, target: Path) -> int:
    """Writes edges, features and labels. Returns the number of nodes."""
    archive = folder / "raw" / "data.npz"
    counts = []
    for name in ("num_nodes_list", "num_edges_list"):
        with open_member(archive, name) as member:
            counts.append(_one_count(archive, name, member.read()))
    num_nodes, num_edges = counts
    with open_member(archive, "edge_index") as member:
        _check_member(member, (2, num_edges), "iu", "integers")
        _write_edges(member, target / "edge_index.npy", num_nodes)
    with open_member(archive, "node_feat") as member:
        shape = member.header.shape
        wanted = (num_nodes, shape[1] if len(shape) == 2 else -1)
        _check_member(member, wanted, "f", "floating point numbers")
        dtype = np.float16 if member.header.dtype == np.float16 else np.float32
        with NpyAppender(new_file(target, attribute_array(NODES, FEATURES)), dtype, (shape[1],)) as out:
            for rows in _whole_rows(member.pieces(), shape[1]):
                out.append(rows)
    with open_member(folder / "raw" / "node-label.npz", "node_label") as member:
        _check_member(member, (num_nodes, 1))
        with NpyAppender(new_file(target, attribute_array(NODES, LABELS)), np.int64) as out:
            for piece in member.pieces():
                out.append(to_labels(piece, member.path, "node_label").numpy())
    return num_nodes


def _write_edges(member: NpzMember, target: Path, num_nodes: int) -> None:
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


def _check_member(
    member: NpzMember, shape: tuple[int, ...], kinds: str | None = None, expected: str = ""
) -> None:
    header = member.header
    fact = f"shape is {list(header.shape)}, expected {list(shape)}" if header.shape != shape else None
    if fact is None and kinds is not None and header.dtype.kind not in kinds:
        fact = f"dtype is {header.dtype}, expected {expected}"
    if fact is not None:
        raise broken(member.path, member.array, fact, _AGAIN)


def link_files(table: OgbTable, folder: Path) -> list[Path]:
    return [folder / "split" / table.split / f"{part}.pt" for part in _SPLITS.values()]


def convert_link_splits(table: OgbTable, folder: Path, target: Path) -> None:
    for split, file in zip(_SPLITS, link_files(table, folder), strict=True):
        found = read_split_file(file)
        arrays = _pairs(file, found) if table.links is StoredLinks.PAIRS else _targets(file, found)
        for name, values in arrays.items():
            np.save(new_file(target, str(LinkArray(EDGES, split, name))), np.ascontiguousarray(values))


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
    """Returns node ids in their stored dtype, checked first: narrowing would hide a bad one."""
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < num_nodes:
        worst = int(ids.max()) if int(ids.max()) >= num_nodes else int(ids.min())
        raise broken(file, "edge_index", f"node id {worst} is outside [0, {num_nodes})", _AGAIN)
    return ids.astype(id_type)
