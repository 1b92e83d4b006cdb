"""Turns the raw .npz files of OGB's largest data set into arrays that can be mapped."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pyg_batchgnn.data.convert import to_labels
from pyg_batchgnn.data.errors import broken
from pyg_batchgnn.data.files import EdgeAppender, NpyAppender
from pyg_batchgnn.data.groups import FEATURES, LABELS, NODES
from pyg_batchgnn.data.ogb.npz_stream import NpzMember, open_member
from pyg_batchgnn.data.ogb.raw_ids import array_file, narrow_ids
from pyg_batchgnn.ops import fits_int32

#: The arrays that are converted.
_READ = ("num_nodes_list", "num_edges_list", "edge_index", "node_feat")
_AGAIN = "download the data set again"


def convert_binary(folder: Path, target: Path) -> int:
    """Writes edges, features and labels. Returns the number of nodes.

    Raises:
        DatasetNotFoundError: a raw file is missing.
        DatasetError: a raw file is damaged or does not agree with another.
    """
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
    """Writes edge_index [2, E] in pieces.

    All sources come first, so both rows pass through one flat writer.
    """
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
    """Regroups flat pieces into arrays [rows, columns]."""
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
