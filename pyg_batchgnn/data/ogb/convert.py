"""Turns OGB's raw files into a folder of .npy arrays that can be mapped; done once."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from pyg_batchgnn.data.folder_write import new_folder
from pyg_batchgnn.data.groups import NODES
from pyg_batchgnn.data.layout import split_array
from pyg_batchgnn.data.meta import Meta, promises_in, write_meta
from pyg_batchgnn.data.ogb.convert_binary import convert_binary, unread_members
from pyg_batchgnn.data.ogb.convert_csv import convert_csv
from pyg_batchgnn.data.ogb.convert_links import convert_link_splits, link_files
from pyg_batchgnn.data.ogb.convert_typed import TypedRaw, convert_typed, further_files
from pyg_batchgnn.data.ogb.csv_gz import read_csv_gz
from pyg_batchgnn.data.ogb.tables import OgbTable, RawLayout
from pyg_batchgnn.data.schema import HOMOGENEOUS


def raw_files(table: OgbTable, folder: Path) -> list[Path]:
    """Returns the raw files that a data set consists of."""
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

    Warns:
        UserWarning: there are raw files or arrays that are not converted.

    Raises:
        DatasetNotFoundError: a raw file is missing.
        DatasetError: a raw file is damaged or does not agree with another; `target` cannot be
            written.
    """
    _warn_of_unread(table, folder)
    with new_folder(target) as temporary:
        typed = table.layout is RawLayout.TYPED_CSV
        meta = (convert_typed if typed else _convert_plain)(table, folder, temporary)
        source = f"{table.name} of the Open Graph Benchmark, converted from the raw files in {folder}."
        origin, promises = {"raw_bytes": raw_sizes(table, folder)}, promises_in(temporary)
        write_meta(temporary, replace(meta, source=source, arrays=promises, origin=origin))


def _warn_of_unread(table: OgbTable, folder: Path) -> None:
    """Warns of raw files, and of arrays in raw files, that are not converted."""
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
    """Writes the arrays of a homogeneous data set; returns its META.json without promises."""
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
