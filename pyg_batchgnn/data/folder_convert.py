"""Turns a folder with lists of edges into one with edges by destination, within a memory budget."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyg_batchgnn import machine, ops
from pyg_batchgnn.data.csc import INDPTR
from pyg_batchgnn.data.edge_reader import EdgeReader, column_reader, list_reader, parquet_reader
from pyg_batchgnn.data.errors import DatasetError, DatasetNotFoundError, missing
from pyg_batchgnn.data.external_sort import ExternalSort, Progress, SortedEdges, SortSizes
from pyg_batchgnn.data.files.durable import new_file, sync_tree, writing
from pyg_batchgnn.data.files.journal import Journal, Made, making
from pyg_batchgnn.data.files.npy import META_FILE, ArrayPromise, NpyAppender, header_of, promise_of
from pyg_batchgnn.data.folder import FolderReader
from pyg_batchgnn.data.meta import Meta, attribute_array, csc_array, edge_array, group_folder, write_meta
from pyg_batchgnn.data.parquet import count_rows, parquet_files, parquet_pieces
from pyg_batchgnn.types import EDGE_FEATURES, EDGES, NODES, Group, Schema

_ROWS = 1 << 18  # rows of attributes in Parquet that are converted at a time


@dataclass(frozen=True)
class ConvertedFolder:
    """What `convert_folder` did."""

    folder: Path  # the new folder
    edges: Mapping[str, SortedEdges]  # what was sorted, by relation; "edges" if homogeneous
    linked: int  # bytes of other files that became hard links
    copied: int  # bytes of other files that were copied
    seconds: Mapping[str, float]  # wall time of this call by phase


def convert_folder(
    source: str | Path,
    path: str | Path,
    *,
    memory_budget: int | str | None = None,
    edge_ids: bool = False,
    links: bool = True,
    progress: Progress | None = None,
) -> ConvertedFolder:
    """Writes a new data folder whose edges lie by destination, so that training maps them.

    >>> convert_folder("graphs/large", "graphs/large-csc", memory_budget="4GiB").folder
    PosixPath('graphs/large-csc')

    Edges are those that `read_folder` reads from `edge_index.npy`, `src.npy` and `dst.npy`, or
    Parquet. They are sorted on disk, which takes 8 bytes per edge meanwhile (12 with ids of edges),
    or twice that if ids take 8 bytes. All else stays as it was. After a crash or a full disk, the
    same call goes on from there.

    Args:
        source: the data folder.
        path: the new folder; it must not exist, and appears only when it is complete.
        memory_budget: bytes of memory, or a text such as "4GiB", beside the 400 MB of the program
            itself; None: a quarter of the free memory. The result does not depend on it.
        edge_ids: True keeps the ids of edges even if edges have no attributes. Else their positions
            become the ids, which saves 4 bytes per edge.
        links: True makes hard links to files that stay as they are, or copies if links cannot be
            made.
        progress: told (phase, work done, all work).

    Raises:
        DatasetError: there is no such folder, or no edges in it; ``path`` exists, a file is
            damaged, an id is no node, the budget is too small, or the disk is full.
    """
    source, path = Path(source).expanduser(), Path(path).expanduser()
    if not source.is_dir():
        raise DatasetNotFoundError(
            f"{source}: no such folder; give a data folder, such as write_folder makes"
        )
    if source.resolve() in path.resolve().parents:
        raise DatasetError(f"{path}: lies in {source}, which is converted; choose another folder")
    budget = ops.check_budget(memory_budget) or machine.memory().available // 4
    conversion = _Conversion(FolderReader(source), path, budget, edge_ids, links, progress)
    conversion.check()
    files = [file for file in sorted(source.rglob("*")) if file.is_file()]
    stats = {file.relative_to(source).as_posix(): file.stat() for file in files}
    made_of = {
        "source": str(source.resolve()),
        "files": {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()},
        "edge_ids": edge_ids,
        "links": links,
    }
    with making(path, made_of) as journal:
        return conversion.run(journal)


class _Conversion:
    def __init__(
        self,
        folder: FolderReader,
        path: Path,
        budget: int,
        edge_ids: bool,
        links: bool,
        progress: Progress | None,
    ) -> None:
        self._folder, self._path, self._budget = folder, path, budget
        self._keeps_ids, self._links = edge_ids, links
        self._seconds = dict[str, float]()
        self._last = time.perf_counter()
        self._tell = progress or (lambda _phase, _done, _total: None)
        self._schema: Schema = folder.schema()
        self._readers = {group: _reader(folder, group) for group in self._schema.edge_groups}
        self._counts = self._count_nodes()

    def check(self) -> None:
        """Raises `DatasetError` if the budget is too small or the disk lacks space."""
        needed = 0
        for group, reader in self._readers.items():
            if reader is not None:
                sizes = (*self._ends(group), reader.num_edges, self._has_ids(group), self._budget)
                needed += SortSizes.of(*sizes).record.itemsize * reader.num_edges
        there = self._path.with_name(f".{self._path.name}.converting")
        used = (
            sum(file.stat().st_size for file in there.rglob("*") if file.is_file()) if there.exists() else 0
        )
        place = next(one for one in self._path.absolute().parents if one.exists())
        free = shutil.disk_usage(place).free
        if free < needed - used:
            raise DatasetError(
                f"{self._path}: sorting the edges takes {needed:,} bytes of disk, and {free:,} are free; "
                f"free some, or choose a folder on another disk"
            )

    def _ends(self, group: Group) -> tuple[int, int]:
        at = self._schema.edge_groups.index(group)
        groups, schema = self._schema.node_groups, self._schema
        return self._counts[groups[schema.source_types[at]]], self._counts[groups[schema.target_types[at]]]

    def run(self, journal: Journal) -> ConvertedFolder:
        folder, edges = self._folder, dict[str, SortedEdges]()
        for group, reader in self._readers.items():
            if reader is not None:
                edges[_name(group)] = self._sort(journal, group, reader)
            if reader is not None and reader.columns:
                write = functools.partial(self._write_columns, journal, group, reader)
                journal.step(f"columns {_name(group)}", write)
        gone = {file for one in self._readers.values() if one for file in one.files}
        report, known = functools.partial(self._progress, "other files"), folder.meta.arrays

        def place() -> Made:
            found, sizes = place_others(folder.path, journal.folder, gone, known, self._links, report)
            return {"promises": {array: one.to_json() for array, one in found.items()}, **sizes}, []

        placed = journal.step("files", place)
        promises = {array: ArrayPromise.from_json(said) for array, said in placed["promises"].items()}
        meta = folder.meta
        counts = {str(group.name): count for group, count in self._counts.items()}
        name, text = meta.name or folder.path.resolve().name, meta.source
        text = text or f"Arrays read from the folder {folder.path}."
        write_meta(
            journal.folder,
            Meta(
                name, text, self._schema, counts, meta.num_classes, promises | journal.promises, meta.origin
            ),
        )
        sync_tree(journal.folder)
        journal.finish()
        self._lap("finishing")
        return ConvertedFolder(journal.path, edges, placed["linked"], placed["copied"], self._seconds)

    def _sort(self, journal: Journal, group: Group, reader: EdgeReader) -> SortedEdges:
        def file(array: str) -> Path:
            return new_file(journal.folder, csc_array(group, array))

        sources, targets = self._ends(group)
        return ExternalSort(
            *(journal, _name(group), reader, sources, targets, file),
            edge_ids=self._has_ids(group),
            budget=self._budget,
            progress=self._progress,
        ).run()

    def _progress(self, phase: str, done: int, total: int) -> None:
        self._lap(phase)
        self._tell(phase, done, total)

    def _lap(self, phase: str) -> None:
        now = time.perf_counter()
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._last
        self._last = now

    def _has_ids(self, group: Group) -> bool:
        """Returns True if the ids of edges are kept: edges with attributes need them."""
        folder, reader = self._folder, self._readers[group]
        tables = folder.path / attribute_array(group, "x")
        has_tables = any(tables.parent.glob("*.npy")) or (
            group == EDGES and folder.file(EDGE_FEATURES).is_file()
        )
        return self._keeps_ids or has_tables or (reader is not None and bool(reader.columns))

    def _count_nodes(self) -> dict[Group, int]:
        counts = {}
        for number, group in enumerate(self._schema.node_groups):
            said = self._folder.meta.num_nodes.get(str(group.name))
            rows = self._rows_of(group) if said is None else said
            counts[group] = self._largest(number) + 1 if rows is None else rows
        return counts

    def _rows_of(self, group: Group) -> int | None:
        folder = self._folder
        lengths = (
            folder.file(csc_array(edges, INDPTR))
            for edges, target in zip(self._schema.edge_groups, self._schema.target_types, strict=True)
            if self._schema.node_groups[target] == group
        )
        for file in lengths:
            if file.is_file():
                return _length(file) - 1
        if files := parquet_files(folder.path, group):
            return count_rows(files)
        tables = sorted((folder.path / attribute_array(group, "x")).parent.glob("*.npy"))
        usual = ("x", "y", "train_mask", "val_mask", "test_mask") if group == NODES else ()
        for file in (*map(folder.file, usual), *tables):
            if file.is_file():
                return _length(file)
        return None

    def _largest(self, node_type: int) -> int:
        largest = -1
        ends = zip(self._readers.values(), self._schema.source_types, self._schema.target_types, strict=True)
        for reader, *types in ends:
            if reader is not None and node_type in types:
                for piece in reader.pieces(_ROWS):
                    own = (int(ids.max()) for ids, at in zip(piece, types, strict=True) if at == node_type)
                    largest = max([largest, *own])
                    self._progress("reading ids", 0, 1)
        return largest

    def _write_columns(self, journal: Journal, group: Group, reader: EdgeReader) -> Made:
        files, out, done = [], dict[str, NpyAppender](), 0
        try:
            for piece in parquet_pieces(reader.files, reader.columns, _ROWS):
                for name, values in piece.items():
                    is_kept = name != EDGE_FEATURES or values.dtype in (np.float16, np.float32)
                    kept = values if is_kept else values.astype(np.float32)
                    if name not in out:
                        files.append(new_file(journal.folder, attribute_array(group, name)))
                        out[name] = NpyAppender(files[-1], kept.dtype, kept.shape[1:])
                    out[name].append(kept)
                done += len(values)
                self._progress("attributes of edges", done, reader.num_edges)
        finally:
            for one in out.values():
                one.__exit__(None, None, None)
        return {}, files


def place_others(
    source: Path,
    folder: Path,
    gone: Collection[Path],
    known: Mapping[str, ArrayPromise],
    links: bool,
    report: Callable[[int, int], None],
) -> tuple[dict[str, ArrayPromise], dict[str, int]]:
    """Links or copies all files of a folder, except META.json and the files in ``gone``. Returns
    the arrays' promises, and bytes "linked" and "copied". ``known``: promises of the old META.json.
    ``report``: told the bytes that are done, and all bytes."""
    promises, sizes = dict[str, ArrayPromise](), {"linked": 0, "copied": 0}
    files = [file for file in sorted(source.rglob("*")) if file.is_file() and file not in gone]
    files = [file for file in files if file != source / META_FILE]
    total = sum(file.stat().st_size for file in files)

    def tell(more: int) -> None:
        report(sum(sizes.values()) + more, total)

    for file in files:
        target = folder / file.relative_to(source)
        is_linked = link_or_copy(file, target, links, tell)
        sizes["linked" if is_linked else "copied"] += file.stat().st_size
        if file.suffix == ".npy":
            array = file.relative_to(source).with_suffix("").as_posix()
            promises[array] = known.get(array) or promise_of(target)
        tell(0)
    return promises, sizes


def _reader(folder: FolderReader, group: Group) -> EdgeReader | None:
    array = edge_array("edge_index", group)
    folder.refuse_twice(array, group)
    if folder.file(csc_array(group, INDPTR)).is_file():
        return None
    if folder.file(array).is_file():
        return list_reader(folder.file(array))
    columns = folder.file("src"), folder.file("dst")
    if group == EDGES and all(file.is_file() for file in columns):
        return column_reader(*columns)
    if files := parquet_files(folder.path, group):
        return parquet_reader(files)
    folder.edge_index(group)
    raise AssertionError("reading edges that are not there is an error")


def _name(group: Group) -> str:
    return "edges" if group == EDGES else group_folder(group)


def _length(file: Path) -> int:
    shape = header_of(file, file.stem).shape
    return shape[0] if shape else 0


def link_or_copy(file: Path, target: Path, links: bool, report: Callable[[int], Any]) -> bool:
    """Makes a hard link to a file if ``links`` and if possible, else a copy. Returns True for a
    link. ``report``: told the bytes copied so far."""
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
    if links:
        with contextlib.suppress(OSError):  # the file system may not allow it
            os.link(file, target)
            return True
    _copy(file, target, report)
    return False


def _copy(file: Path, target: Path, report: Callable[[int], Any]) -> None:
    with writing(target), file.open("rb") as stream, target.open("wb") as out:
        size, done = os.fstat(stream.fileno()).st_size, 0
        while done < size:
            count = os.sendfile(out.fileno(), stream.fileno(), done, min(64 << 20, size - done))
            if not count:
                raise missing(file, file.stem, "it shrank while it was copied: copy or write it again")
            done += count
            report(done)
        os.fsync(out.fileno())
        for handle in (stream, out):
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
