"""Sorts a list of edges by destination within a budget of memory, whatever its length.

Edges are counted by destination. The destinations are cut into ranges whose edges fit the budget.
Each range has a bucket, a file, to which its edges are spread in their order; each bucket is then
sorted by counting. So the in-edges of a node stay in ascending id. The steps are those of a
journal: a sort that was killed goes on after the last step or bucket that was complete.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data.csc import EDGE_IDS, INDICES, INDPTR
from pyg_batchgnn.data.edge_reader import EdgeReader
from pyg_batchgnn.data.errors import DatasetError, broken
from pyg_batchgnn.data.files.durable import sync_file, write_bytes, writing
from pyg_batchgnn.data.files.journal import Journal, Made
from pyg_batchgnn.data.files.npy import NpyAppender, npy_header

#: Told the phase, the work that is done, and all work of the phase.
Progress = Callable[[str, int, int], None]

#: The most edges that are read at a time, and the bytes of memory that each takes.
_PIECE, _PIECE_BYTES = 1 << 22, 96
_PIECES_OF_BUDGET = 8  # Edges that are read at a time take at most 1 / 8 of the budget.
#: Bytes per node of sorting a bucket: two counters, and where the node's edges begin.
_NODE_BYTES = 24
_MOST_BUCKETS = 128  # Buckets have an open file each, and a process may often open only 1,024.


@dataclass(frozen=True)
class SortSizes:
    """The sizes of a sort, as its budget allows."""

    ids: torch.dtype  # the dtype of node ids, in buckets and in the result
    record: np.dtype  # an edge in a bucket: source, target, and its id if ids are kept
    piece: int  # edges that are read at a time
    bucket: int  # the most edges, and the most nodes, of a bucket; a node of more has its own

    @classmethod
    def of(cls, sources: int, targets: int, edges: int, edge_ids: bool, budget: int) -> SortSizes:
        """Plans a sort. ``sources``, ``targets``, ``edges``: their numbers. ``budget``: bytes.
        Raises `DatasetError` if the budget is too small."""
        ids = ops.id_dtype(max(sources, targets))
        columns = [("source", _numpy(ids)), ("target", _numpy(ids))]
        record = np.dtype([*columns, *([("edge", _numpy(ops.id_dtype(edges)))] if edge_ids else [])])
        piece = max(1, min(_PIECE, budget // (_PIECES_OF_BUDGET * _PIECE_BYTES)))
        # Both ends, the sorted sources, where each edge was, and its id before and after.
        of_edge = 2 * record.itemsize - ids.itemsize + 8
        bucket = budget // (of_edge + _NODE_BYTES)
        least = max(
            _PIECES_OF_BUDGET * 8 * (targets + 1) // (_PIECES_OF_BUDGET - 1) + _PIECE_BYTES,
            -(-edges * (of_edge + _NODE_BYTES) * 2 // _MOST_BUCKETS),
        )
        if budget < least:
            raise DatasetError(
                f"a memory budget of {budget:,} bytes is too small to sort {edges:,} edges into {targets:,} "
                f"nodes; give at least {least:,} bytes"
            )
        return cls(ids, record, piece, bucket)


@dataclass(frozen=True)
class SortedEdges:
    edges: int  # the number of edges
    buckets: int  # the number of buckets; 0 if the edges were sorted already


class ExternalSort:
    """The sort of the edges of one relation. ``name``: the relation, for the names of steps.
    ``sources``, ``targets``: the numbers of nodes at both ends. ``file``: returns the file of an
    array by name. ``edge_ids``: True keeps the ids of edges. ``budget``: bytes of memory."""

    def __init__(
        self,
        journal: Journal,
        name: str,
        reader: EdgeReader,
        sources: int,
        targets: int,
        file: Callable[[str], Path],
        *,
        edge_ids: bool,
        budget: int,
        progress: Progress,
    ) -> None:
        self._journal, self._name, self._reader, self._file = journal, name, reader, file
        self._sizes, self._progress = (sources, targets), progress
        self._plan = SortSizes.of(sources, targets, reader.num_edges, edge_ids, budget)
        #: The arrays that are sorted, and the columns of records that they are made of.
        self._results = {INDICES: "source", **({EDGE_IDS: "edge"} if edge_ids else {})}

    def run(self) -> SortedEdges:
        """Sorts the edges, or goes on after the last complete step."""
        edges = self._reader.num_edges
        if self._step("count", self._count)["ascending"]:
            self._step("copy", self._copy)
            return SortedEdges(edges, 0)
        bounds = self._step("spread", self._spread)["bounds"]
        for bucket, (low, high) in enumerate(pairwise(bounds)):
            self._step(f"sort {bucket}", functools.partial(self._sort, self._bucket_file(bucket), low, high))
            self._bucket_file(bucket).unlink(missing_ok=True)
        self._step("finish", lambda: ({}, [self._file(array) for array in self._results]))
        return SortedEdges(edges, len(bounds) - 1)

    def _step(self, what: str, make: Callable[[], Made]) -> dict[str, Any]:
        return self._journal.step(f"{what} {self._name}", make)

    def _count(self) -> Made:
        """Writes where the in-edges of each node begin. Notes whether edges are sorted already."""
        indptr = torch.zeros(self._sizes[1] + 1, dtype=torch.int64)
        ascending, last, done = True, -1, 0
        for source, target in self._pieces("counting"):
            self._check(source, 0, done)
            self._check(target, 1, done)
            ops.count_values(target, 0, indptr[1:])
            ascending = ascending and last <= int(target[0]) and ops.is_ascending(target)
            last, done = int(target[-1]), done + len(target)
        torch.cumsum(indptr, 0, out=indptr)
        with NpyAppender(self._file(INDPTR), np.int64) as out:
            out.append(indptr.numpy())
        return {"ascending": ascending}, [self._file(INDPTR)]

    def _check(self, ids: Tensor, end: int, first: int) -> None:
        low, high = ops.extent(ids)
        if low < 0 or high >= self._sizes[end]:
            value = low if low < 0 else high
            place = [end, first + int((ids == value).nonzero()[0])]
            fact = f"node id {value} at position {place} is outside [0, {self._sizes[end]})"
            remedy = "correct the value or the count it is measured against"
            files = self._reader.files
            raise broken(files[end if files[0].stem == "src" else 0], "edge_index", fact, remedy)

    def _copy(self) -> Made:
        with NpyAppender(self._file(INDICES), _numpy(self._plan.ids)) as out:
            for source, _ in self._pieces("copying"):
                out.append(source.numpy())
        return {}, [self._file(INDICES)]

    def _spread(self) -> Made:
        """Cuts the destinations into ranges of at most a bucket of edges and of nodes, and writes
        each edge to its bucket."""
        indptr = np.load(self._file(INDPTR), mmap_mode="r")
        bounds, nodes, most = [0], self._sizes[1], self._plan.bucket
        while bounds[-1] < nodes:
            low = bounds[-1]
            high = int(np.searchsorted(indptr, indptr[low] + most, side="right")) - 1
            bounds.append(min(max(high, low + 1), low + most, nodes))
        files, edge = [self._bucket_file(bucket) for bucket in range(len(bounds) - 1)], 0
        with ExitStack() as stack:
            streams = []
            for file in files:
                stack.enter_context(writing(file))  # closing may fail, too
                streams.append(stack.enter_context(file.open("wb")))
            for source, target in self._pieces("spreading"):
                columns = {"source": source, "target": target}
                order, counts = ops.group_by_range(target, torch.tensor(bounds))
                records = np.empty(len(source), self._plan.record)
                if "edge" in self._results.values():
                    columns["edge"] = torch.arange(edge, edge + len(source))
                for name, column in columns.items():
                    records[name] = (column if order is None else column.index_select(0, order)).numpy()
                edge += len(source)
                parts = np.split(records, counts.cumsum(0)[:-1].numpy())
                for stream, file, part in zip(streams, files, parts, strict=True):
                    write_bytes(stream, file, part)
        for file in files:
            sync_file(file)
        return {"bounds": bounds}, []

    def _bucket_file(self, bucket: int) -> Path:
        return self._journal.work / f"{self._name}.{bucket:03d}"

    def _sort(self, file: Path, low: int, high: int) -> Made:
        """Writes a bucket's edges, sorted, to their place in the result. ``low``, ``high``: its
        range of destinations."""
        indptr = np.load(self._file(INDPTR), mmap_mode="r")
        first, last = int(indptr[low]), int(indptr[high])
        if high - low == 1:  # in order, and maybe more than fit into memory
            for at in range(first, last, self._plan.piece):
                records = self._read(file, at - first, min(self._plan.piece, last - at))
                for array, column in self._results.items():
                    self._put(array, at, records[column])
        elif first < last:
            records = self._read(file, 0, last - first)
            index = torch.empty(2, last - first, dtype=self._plan.ids)
            index.numpy()[0], index.numpy()[1] = records["source"], records["target"]
            index[1] -= low
            edge = np.ascontiguousarray(records["edge"]) if EDGE_IDS in self._results else None
            del records
            found = ops.build_csc(index, high - low, self._sizes[0])
            self._put(INDICES, first, found.indices.to(self._plan.ids).numpy())
            if edge is not None:
                order = found.edge_ids
                self._put(EDGE_IDS, first, edge if order is None else edge[order.numpy()])
        self._progress("sorting", last, self._reader.num_edges)
        return {}, []

    def _read(self, file: Path, first: int, count: int) -> np.ndarray:
        record = self._plan.record
        found = np.fromfile(file, record, count, offset=first * record.itemsize)
        if len(found) != count:
            raise broken(
                file, "bucket", f"has {len(found)} edges of {count}", "remove the folder; start again"
            )
        return found

    def _put(self, array: str, first: int, values: np.ndarray) -> None:
        """Writes values from position ``first`` on to an array's file, which is made if missing."""
        file, header = self._file(array), npy_header(values.dtype, (self._reader.num_edges,))
        with writing(file), file.open("r+b" if file.exists() else "w+b") as stream:
            stream.write(header)
            stream.seek(len(header) + first * values.itemsize)
            write_bytes(stream, file, values)
            stream.flush()
        sync_file(file)

    def _pieces(self, phase: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields sources and destinations of successive edges, as ids of the result if they fit."""
        done = 0
        for source, target in self._reader.pieces(self._plan.piece):
            if len(source):
                yield self._as_ids(source), self._as_ids(target)
            done += len(source)
            self._progress(phase, done, self._reader.num_edges)

    def _as_ids(self, values: np.ndarray) -> Tensor:
        """Returns ids in the result's dtype; those that do not fit stay wide for `_check`."""
        wide = values if values.dtype in (np.int32, np.int64) else values.astype(np.int64)
        ids = torch.from_numpy(np.require(wide, wide.dtype.newbyteorder("="), ["C", "W"]))
        low, high = ops.extent(ids) if self._plan.ids is torch.int32 and ids.dtype is torch.int64 else (0, 0)
        return ids if low < 0 or high >= max(self._sizes) else ids.to(self._plan.ids)


def _numpy(dtype: torch.dtype) -> np.dtype:
    return np.dtype(str(dtype).removeprefix("torch."))
