"""Turns the raw files of an OGB data set of several node types into a folder that can be mapped."""

from __future__ import annotations

import csv
import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyg_batchgnn.data.convert import to_labels
from pyg_batchgnn.data.errors import broken, missing
from pyg_batchgnn.data.files import EdgeAppender, NpyAppender
from pyg_batchgnn.data.groups import FEATURES, LABELS, Group
from pyg_batchgnn.data.layout import attribute_array, edge_array, split_array
from pyg_batchgnn.data.meta import Meta
from pyg_batchgnn.data.ogb.csv_gz import csv_gz_pieces, read_csv_gz
from pyg_batchgnn.data.ogb.tables import OgbTable
from pyg_batchgnn.data.schema import Relation, Schema
from pyg_batchgnn.ops import fits_int32

_AGAIN = "download the data set again"
_SPLITS = {"train": "train", "val": "valid", "test": "test"}
#: Files beside the features of nodes, and beside the edges of a relation, that become attributes of
#: the same name.
_MORE_OF_NODES, _MORE_OF_EDGES = ("node_year",), ("edge_reltype",)


@dataclass(frozen=True)
class TypedRaw:
    """The contents of the lists among the raw files.

    Attributes:
        folder: the data set's folder, with raw/ and split/ in it.
        split: the folder of the splits.
        schema: the node types and the relations, in alphabetical order as OGB has them.
        num_nodes: the number of nodes of each type.
        with_x, with_y, with_split: the types that have features, labels and splits.
    """

    folder: Path
    split: Path
    schema: Schema
    num_nodes: dict[str, int]
    with_x: list[str]
    with_y: list[str]
    with_split: list[str]

    @classmethod
    def read(cls, table: OgbTable, folder: Path) -> TypedRaw:
        """Reads the lists.

        Raises:
            DatasetNotFoundError: a list is missing.
            DatasetError: a list is damaged or does not agree with another.
        """
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
        """Returns the folder of a relation."""
        return self.folder / "raw" / "relations" / "___".join(relation)

    def files(self) -> list[Path]:
        """Returns the raw files that the data set consists of."""
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
    """Writes the arrays of a data set of several types; returns its META.json without promises.

    Raises:
        DatasetNotFoundError: a raw file is missing.
        DatasetError: a raw file is damaged or does not agree with another.
    """
    raw = TypedRaw.read(table, folder)
    classes = dict.fromkeys(raw.schema.node_types, 0)
    for group, name in zip(raw.schema.node_groups, raw.schema.node_types, strict=True):
        features, count = folder / "raw" / "node-feat" / name, raw.num_nodes[name]
        if name in raw.with_x:
            rows = _columns(features / "node-feat.csv.gz", _array(target, group, FEATURES), np.float32)
            _check_rows(features / "node-feat.csv.gz", "x", rows, count)
        for more in _MORE_OF_NODES:
            if (features / f"{more}.csv.gz").is_file():
                _more(features / f"{more}.csv.gz", _array(target, group, more), count)
        if name in raw.with_y:
            file = folder / "raw" / "node-label" / name / "node-label.csv.gz"
            labels = read_csv_gz(file, "y", np.float64, 1)  # floating point: a label may be "nan"
            _check_rows(file, "y", len(labels), count)
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
    """Returns the raw files of further attributes that are converted where they are there."""
    names = [f"{name}.csv.gz" for name in (*_MORE_OF_NODES, *_MORE_OF_EDGES)]
    return {path for name in names for path in (folder / "raw").glob(f"*/*/{name}")}


def _more(file: Path, target: Path, count: int) -> None:
    """Converts an attribute of whole numbers."""
    _check_rows(file, file.name.partition(".")[0], _columns(file, target, np.int64), count)


def _columns(file: Path, target: Path, dtype: type) -> int:
    """Converts a table in pieces; one of one column of whole numbers becomes a vector. Returns the
    number of its rows."""
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
    """Returns the types that a list says True of."""
    return [name for name, mark in _row(file).items() if mark == "True" and name in schema.node_types]


def _row(file: Path) -> dict[str, str]:
    """Reads a table with a header and one row."""
    rows = _table(file)
    if len(rows) != 2 or len(rows[0]) != len(rows[1]):
        raise broken(file, "row", f"has {len(rows)} rows, expected a header and one row like it", _AGAIN)
    return dict(zip(*rows, strict=True))


def _table(file: Path) -> list[list[str]]:
    """Reads a small table of text."""
    if not file.is_file():
        raise missing(file, file.name.partition(".")[0], _AGAIN)
    try:
        with gzip.open(file, "rt", encoding="utf-8", newline="") as stream:
            return [row for row in csv.reader(stream) if row]
    except (EOFError, OSError, UnicodeDecodeError, zlib.error) as error:
        raise broken(file, file.name, f"truncated or damaged gzip ({error})", _AGAIN) from error


def _check_rows(file: Path, array: str, rows: int, expected: int) -> None:
    if rows != expected:
        raise broken(file, array, f"has {rows} rows, expected {expected}", _AGAIN)
