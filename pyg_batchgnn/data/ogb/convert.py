"""Turns OGB's raw files into a folder of .npy arrays that can be mapped; done once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from pyg_batchgnn.data.convert import to_labels
from pyg_batchgnn.data.errors import broken
from pyg_batchgnn.data.files import EdgeAppender, NpyAppender
from pyg_batchgnn.data.folder_write import new_folder
from pyg_batchgnn.data.groups import FEATURES, LABELS, NODES
from pyg_batchgnn.data.layout import attribute_array, split_array
from pyg_batchgnn.data.meta import Meta, promises_in, write_meta
from pyg_batchgnn.data.ogb.convert_typed import TypedRaw, convert_typed
from pyg_batchgnn.data.ogb.csv_gz import csv_gz_pieces, read_csv_gz
from pyg_batchgnn.data.ogb.npz_stream import NpzMember, open_member
from pyg_batchgnn.data.ogb.tables import OgbTable, RawLayout, StoredEdges
from pyg_batchgnn.data.schema import HOMOGENEOUS
from pyg_batchgnn.data.undirected import make_undirected
from pyg_batchgnn.ops import fits_int32

_AGAIN = "download the data set again"


def raw_files(table: OgbTable, folder: Path) -> list[Path]:
    """Returns the raw files that a data set consists of."""
    if table.layout is RawLayout.TYPED_CSV:
        return TypedRaw.read(table, folder).files()
    if table.layout is RawLayout.BINARY:
        names = ["data.npz", "node-label.npz"]
    else:
        stems = ("edge", "num-node-list", "num-edge-list", "node-feat", "node-label")
        names = [f"{stem}.csv.gz" for stem in stems]
    splits = [folder / "split" / table.split / f"{part}.csv.gz" for part in ("train", "valid", "test")]
    return [folder / "raw" / name for name in names] + splits


def raw_sizes(table: OgbTable, folder: Path) -> dict[str, int]:
    """Returns the bytes of each raw file that is present.

    They tell whether a conversion is still of these files.
    """
    if not (folder / "raw").is_dir():
        return {}
    files = raw_files(table, folder)
    return {str(file.relative_to(folder)): file.stat().st_size for file in files if file.is_file()}


def convert(table: OgbTable, folder: Path, target: Path) -> None:
    """Writes `target`, a folder that `read_folder` reads, from the raw files in `folder`.

    Features, edges and labels go through memory in pieces of about 16 MiB, except the edges of CSV
    data sets, which are read whole. Node ids become int32 where they fit. An edge list that holds
    each undirected edge once is stored in both directions (every edge, then every reverse).

    Raises:
        DatasetNotFoundError: a raw file is missing.
        DatasetError: a raw file is damaged or does not agree with another; `target` cannot be
            written.
    """
    with new_folder(target) as temporary:
        typed = table.layout is RawLayout.TYPED_CSV
        meta = (convert_typed if typed else _convert_plain)(table, folder, temporary)
        source = f"{table.name} of the Open Graph Benchmark, converted from the raw files in {folder}."
        origin, promises = {"raw_bytes": raw_sizes(table, folder)}, promises_in(temporary)
        write_meta(temporary, replace(meta, source=source, arrays=promises, origin=origin))


def _convert_plain(table: OgbTable, folder: Path, target: Path) -> Meta:
    """Writes the arrays of a homogeneous data set; returns its META.json without promises."""
    if table.layout is RawLayout.CSV:
        num_nodes = _convert_csv(table, folder, target)
    else:
        num_nodes = _convert_binary(folder, target)
    for part, raw_name in (("train", "train"), ("val", "valid"), ("test", "test")):
        file = folder / "split" / table.split / f"{raw_name}.csv.gz"
        ids = read_csv_gz(file, part, np.int64, 1)[:, 0]
        np.save(target / f"{split_array(NODES, part)}.npy", ids)
    return Meta(table.name, None, HOMOGENEOUS, {"node": num_nodes}, {"node": table.num_classes})


def _convert_csv(table: OgbTable, folder: Path, target: Path) -> int:
    raw = folder / "raw"
    num_nodes = _total(raw / "num-node-list.csv.gz", "num_nodes")
    num_edges = _total(raw / "num-edge-list.csv.gz", "num_edges")
    edge_file = raw / "edge.csv.gz"
    id_type = np.int32 if fits_int32(num_nodes) else np.int64
    pieces = csv_gz_pieces(edge_file, "edge_index", np.int64, 2)
    edges = np.concatenate(
        [np.empty((0, 2), id_type), *(_narrow(edge_file, piece, num_nodes, id_type) for piece in pieces)]
    )
    if len(edges) != num_edges:
        raise broken(
            edge_file, "edge_index", f"has {len(edges)} rows, num-edge-list says {num_edges}", _AGAIN
        )
    edge_index = torch.from_numpy(np.ascontiguousarray(edges.T))
    if table.edges is StoredEdges.EACH_ONCE:
        edge_index = make_undirected(edge_index, num_nodes)
    np.save(target / "edge_index.npy", edge_index.numpy())
    _convert_csv_features(raw / "node-feat.csv.gz", _file(target, FEATURES), num_nodes)
    label_file = raw / "node-label.csv.gz"
    labels = read_csv_gz(label_file, "y", np.float64, 1)  # floating point: a label may be "nan"
    _check_rows(label_file, "y", len(labels), num_nodes)
    np.save(_file(target, LABELS), to_labels(labels, label_file, "y").numpy())
    return num_nodes


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


def _convert_binary(folder: Path, target: Path) -> int:
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
        with NpyAppender(_file(target, FEATURES), dtype, (shape[1],)) as out:
            for rows in _whole_rows(member.pieces(), shape[1]):
                out.append(rows)
    with open_member(folder / "raw" / "node-label.npz", "node_label") as member:
        _check_shape(member, (num_nodes, 1))
        with NpyAppender(_file(target, LABELS), np.int64) as out:
            for piece in member.pieces():
                out.append(to_labels(piece, member.path, "node_label").numpy())
    return num_nodes


def _write_edges(member: NpzMember, target: Path, num_nodes: int) -> None:
    """Writes edge_index [2, E] in pieces.

    All sources come first, so both rows pass through one flat writer.
    """
    id_type = np.int32 if fits_int32(num_nodes) else np.int64
    num_edges = member.header.shape[1]
    written = 0
    with EdgeAppender(target, id_type) as out:
        for piece in member.pieces():
            ids = _narrow(member.path, piece, num_nodes, id_type)
            sources = ids[: max(num_edges - written, 0)]
            out.append_sources(sources)
            out.append_destinations(ids[len(sources) :])
            written += len(ids)


def _narrow(file: Path, ids: np.ndarray, num_nodes: int, id_type: type) -> np.ndarray:
    """Returns node ids in the type they are stored in.

    They are checked first, because narrowing would hide a bad one.
    """
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < num_nodes:
        worst = int(ids.max()) if int(ids.max()) >= num_nodes else int(ids.min())
        raise broken(file, "edge_index", f"node id {worst} is outside [0, {num_nodes})", _AGAIN)
    return ids.astype(id_type)


def _whole_rows(pieces: Iterator[np.ndarray], columns: int) -> Iterator[np.ndarray]:
    """Regroups flat pieces into arrays [rows, columns]."""
    rest = np.empty(0, np.float32)
    for piece in pieces:
        flat = np.concatenate([rest, piece]) if rest.size else piece
        cut = len(flat) // columns * columns
        rest = flat[cut:]
        yield flat[:cut].reshape(-1, columns)


def _file(target: Path, name: str) -> Path:
    return target / f"{attribute_array(NODES, name)}.npy"


def _total(file: Path, count: str) -> int:
    """Returns the number of nodes or edges: one entry per graph, and OGB's node data sets are
    one graph."""
    counts = read_csv_gz(file, count, np.int64, 1)
    if counts.shape != (1, 1) or int(counts[0, 0]) < 0:
        raise broken(file, count, f"holds {counts.ravel().tolist()[:5]}, expected one count", _AGAIN)
    return int(counts[0, 0])


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


def _check_rows(file: Path, array: str, rows: int, num_nodes: int) -> None:
    if rows != num_nodes:
        raise broken(file, array, f"has {rows} rows, num-node-list says {num_nodes}", _AGAIN)
