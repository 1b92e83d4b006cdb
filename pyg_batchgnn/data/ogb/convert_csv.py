"""Turns raw CSV files of OGB's homogeneous data sets into arrays that can be mapped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from pyg_batchgnn.data.convert import to_labels
from pyg_batchgnn.data.errors import broken
from pyg_batchgnn.data.files import NpyAppender
from pyg_batchgnn.data.groups import EDGES, FEATURES, LABELS, NODES
from pyg_batchgnn.data.ogb.csv_gz import csv_gz_pieces, read_csv_gz
from pyg_batchgnn.data.ogb.raw_ids import array_file, narrow_ids
from pyg_batchgnn.data.ogb.tables import OgbTable, StoredEdges
from pyg_batchgnn.data.undirected import make_undirected
from pyg_batchgnn.ops import fits_int32

_AGAIN = "download the data set again"


def convert_csv(table: OgbTable, folder: Path, target: Path) -> int:
    """Writes edges, features, labels and further attributes. Returns the number of nodes.

    Raises:
        DatasetNotFoundError: a raw file is missing.
        DatasetError: a raw file is damaged or does not agree with another.
    """
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
    """Reads a column. It becomes int64 if all numbers are whole."""
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
    """Returns the number of nodes or edges: one entry per graph, and OGB's node data sets are
    one graph."""
    counts = read_csv_gz(file, count, np.int64, 1)
    if counts.shape != (1, 1) or int(counts[0, 0]) < 0:
        raise broken(file, count, f"holds {counts.ravel().tolist()[:5]}, expected one count", _AGAIN)
    return int(counts[0, 0])


def _check_rows(file: Path, array: str, rows: int, expected: int, said_by: str = "num-node-list") -> None:
    if rows != expected:
        raise broken(file, array, f"has {rows} rows, {said_by} says {expected}", _AGAIN)
