"""Sorts a list of edges by destination within a budget of memory, whatever its length.

Edges are counted by destination. The destinations are cut into ranges whose edges fit the budget.
Edges are spread to one bucket of files for each range, in their order, and each bucket is sorted by
counting. So the in-edges of a node stay in ascending id. The steps are those of a journal: a sort
that was killed goes on at the last chunk or bucket that was complete.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.data.csc import EDGE_IDS, INDICES, INDPTR
from pyg_batchgnn.data.edge_reader import ColumnReader, EdgeReader
from pyg_batchgnn.data.errors import DatasetError, broken
from pyg_batchgnn.data.files import Journal, Made, NpyAppender, npy_header, sync_file, write_bytes, writing

#: Called with the phase, and how much of how much of it is done.
Progress = Callable[[str, int, int], None]

#: A piece is at most this many edges, and its arrays take this much memory for each.
_PIECE, _PIECE_BYTES = 1 << 22, 64
#: The share of the budget that a piece takes at most is one in this number.
_PIECES_OF_BUDGET = 8
#: What sorting a bucket takes for each of its nodes: two counters, and where their edges begin.
_NODE_BYTES = 24
#: The edges that are spread between two entries in the journal.
CHUNK = 1 << 27
#: The buckets have up to three open files each, and a process may often open only 1,024.
_MOST_BUCKETS = 128


@dataclass(frozen=True)
class SortSizes:
    """The sizes of a sort."""

    ids: torch.dtype  # the type of ids of nodes, on the way and in the end
    edge_ids: torch.dtype | None  # the type of the ids of edges; None where they do not travel
    piece: int  # the edges that are read at a time
    bucket: int  # the edges, and the nodes, that a bucket has at most; a node of more has its own

    @classmethod
    def of(cls, sources: int, targets: int, edges: int, edge_ids: bool, budget: int) -> SortSizes:
        """Plans a sort. ``sources``, ``targets``, ``edges``: the numbers of nodes at either end,
        and of edges. Raises `DatasetError` if the budget is too small."""
        ids, of_edges = ops.id_dtype(max(sources, targets)), ops.id_dtype(edges) if edge_ids else None
        piece = max(1, min(_PIECE, budget // (_PIECES_OF_BUDGET * _PIECE_BYTES)))
        # Both ends, the sorted sources, where each edge was, and its id before and after.
        of_edge = 3 * ids.itemsize + 8 + (2 * of_edges.itemsize if of_edges is not None else 0)
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
        return cls(ids, of_edges, piece, bucket)


@dataclass(frozen=True)
class SortedEdges:
    """The outcome of a sort."""

    edges: int  # the number of edges
    buckets: int  # the number of buckets; 0 where the edges were sorted already


class ExternalSort:
    """The sort of the edges of one relation. ``name``: of the relation, for the names of steps.
    ``sources``, ``targets``: the numbers of nodes at either end. ``file``: the file of an array by
    its name. ``edge_ids``: keeps the ids of edges, unless they are the positions anyway.
    ``budget``: bytes of memory, beside that of the program itself."""

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

    def run(self) -> SortedEdges:
        """Sorts the edges, or goes on with it."""
        edges = self._reader.num_edges
        if self._step("count", self._count)["ascending"]:
            self._step("copy", self._copy)
            return SortedEdges(edges, 0)
        self._bounds: list[int] = self._step("cut", self._cut)["bounds"]
        counts = [0] * self._buckets
        for first in range(0, edges, CHUNK):
            spread = functools.partial(self._spread, first, counts)
            counts = self._step(f"spread {first}", spread)["counts"]
        for bucket in range(self._buckets):
            self._step(f"sort {bucket}", functools.partial(self._sort, bucket))
            for column in self._columns():
                self._bucket_file(bucket, column).unlink(missing_ok=True)
        self._step("finish", lambda: ({}, [self._file(array) for array in self._results()]))
        return SortedEdges(edges, self._buckets)

    def _step(self, what: str, make: Callable[[], Made]) -> dict[str, Any]:
        return self._journal.step(f"{what} {self._name}", make)

    @property
    def _buckets(self) -> int:
        return len(self._bounds) - 1

    # Counting

    def _count(self) -> Made:
        """Writes where the in-edges of each node begin. The facts say if edges are sorted."""
        indptr = torch.zeros(self._sizes[1] + 1, dtype=torch.int64)
        ascending, last, done = True, -1, 0
        for source, target in self._pieces(0, self._reader.num_edges, "counting"):
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
            file = self._reader.files[end if isinstance(self._reader, ColumnReader) else 0]
            raise broken(file, "edge_index", fact, "correct the value or the count it is measured against")

    def _copy(self) -> Made:
        with NpyAppender(self._file(INDICES), _numpy(self._plan.ids)) as out:
            for source, _ in self._pieces(0, self._reader.num_edges, "copying"):
                out.append(source.numpy())
        return {}, [self._file(INDICES)]

    # Spreading

    def _cut(self) -> Made:
        """Cuts the destinations into ranges of at most a bucket of edges and of nodes."""
        indptr = np.load(self._file(INDPTR), mmap_mode="r")
        bounds, nodes, most = [0], self._sizes[1], self._plan.bucket
        while bounds[-1] < nodes:
            low = bounds[-1]
            high = int(np.searchsorted(indptr, indptr[low] + most, side="right")) - 1
            bounds.append(min(max(high, low + 1), low + most, nodes))
        return {"bounds": bounds}, []

    def _spread(self, first: int, counts: list[int]) -> Made:
        """Appends a chunk of the edges to the buckets. ``counts``: the edges that each bucket had
        before. What a killed call wrote behind goes."""
        bounds, counts = torch.tensor(self._bounds), list(counts)
        end = min(first + CHUNK, self._reader.num_edges)
        with ExitStack() as stack:
            files = {
                (bucket, column): self._reopened(stack, bucket, column, dtype, counts[bucket])
                for bucket in range(self._buckets)
                for column, dtype in self._columns().items()
            }
            edge = first
            for source, target in self._pieces(first, end, "spreading"):
                arrays = {"source": source, "target": target}
                if self._plan.edge_ids is not None:
                    arrays["edge"] = torch.arange(edge, edge + len(source), dtype=self._plan.edge_ids)
                edge += len(source)
                order, found = ops.group_by_range(target, bounds)
                if order is not None:
                    arrays = {column: array.index_select(0, order) for column, array in arrays.items()}
                for column, array in arrays.items():
                    for bucket, part in enumerate(array.split(found.tolist())):
                        write_bytes(files[bucket, column], self._bucket_file(bucket, column), part.numpy())
                counts = [old + new for old, new in zip(counts, found.tolist(), strict=True)]
        for bucket, column in files:
            sync_file(self._bucket_file(bucket, column))
        return {"counts": counts}, []

    def _columns(self) -> dict[str, torch.dtype]:
        columns = {"source": self._plan.ids, "target": self._plan.ids}
        return columns if self._plan.edge_ids is None else {**columns, "edge": self._plan.edge_ids}

    def _bucket_file(self, bucket: int, column: str) -> Path:
        return self._journal.work / f"{self._name}.{bucket:03d}.{column}"

    def _reopened(
        self, stack: ExitStack, bucket: int, column: str, dtype: torch.dtype, count: int
    ) -> IO[bytes]:
        file = self._bucket_file(bucket, column)
        stack.enter_context(writing(file))  # closing may fail, too
        stream = stack.enter_context(file.open("r+b" if file.exists() else "w+b"))
        stream.truncate(count * dtype.itemsize)
        stream.seek(0, 2)
        return stream

    # Sorting

    def _sort(self, bucket: int) -> Made:
        """Writes the sorted edges of a bucket to their place in the result."""
        indptr = np.load(self._file(INDPTR), mmap_mode="r")
        low, high = self._bounds[bucket : bucket + 2]
        first, last = int(indptr[low]), int(indptr[high])
        if high - low == 1:  # in order, and maybe more than fit into memory
            for at in range(first, last, self._plan.piece):
                count = min(self._plan.piece, last - at)
                for array, column in self._results().items():
                    part = self._read(
                        bucket, column, at - first, torch.empty(count, dtype=self._dtype(array))
                    )
                    self._put(array, at, part)
        elif first < last:
            index = torch.empty(2, last - first, dtype=self._plan.ids)
            for row, column in zip(index, ("source", "target"), strict=True):
                self._read(bucket, column, 0, row)
            index[1] -= low
            found = ops.build_csc(index, high - low, self._sizes[0])
            self._put(INDICES, first, found.indices.to(self._plan.ids))
            if EDGE_IDS in self._results():
                ids = self._read(bucket, "edge", 0, torch.empty(last - first, dtype=self._dtype(EDGE_IDS)))
                self._put(
                    EDGE_IDS, first, ids if found.edge_ids is None else ids.index_select(0, found.edge_ids)
                )
        self._progress("sorting", last, self._reader.num_edges)
        return {}, []

    def _results(self) -> dict[str, str]:
        """Returns the arrays that are sorted, and the columns of buckets that they are made of."""
        indices = {INDICES: "source"}
        return indices if self._plan.edge_ids is None else {**indices, EDGE_IDS: "edge"}

    def _dtype(self, array: str) -> torch.dtype:
        return self._columns()[self._results()[array]]

    def _read(self, bucket: int, column: str, first: int, out: Tensor) -> Tensor:
        """Fills ``out`` with elements of a bucket from the position ``first`` on."""
        file = self._bucket_file(bucket, column)
        with file.open("rb") as stream:
            stream.seek(first * out.itemsize)
            read = stream.readinto(out.numpy().view(np.uint8).data)
        if read != out.nbytes:
            raise broken(file, column, f"has {read} bytes for {out.nbytes}", "remove the folder; start again")
        return out

    def _put(self, array: str, first: int, values: Tensor) -> None:
        """Writes values to their place in the file of an array, which need not exist yet."""
        file, header = self._file(array), npy_header(_numpy(values.dtype), (self._reader.num_edges,))
        with writing(file), file.open("r+b" if file.exists() else "w+b") as stream:
            stream.write(header)
            stream.seek(len(header) + first * values.itemsize)
            write_bytes(stream, file, values.numpy())
            stream.flush()
        sync_file(file)

    # Pieces

    def _pieces(self, begin: int, end: int, phase: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields sources and destinations of some edges, in the type of ids if they fit it."""
        done = begin
        for source, target in self._reader.pieces(begin, end, self._plan.piece):
            if len(source):
                yield self._as_ids(source), self._as_ids(target)
            done += len(source)
            self._progress(phase, done, self._reader.num_edges)

    def _as_ids(self, values: np.ndarray) -> Tensor:
        """Ids that do not fit stay wide, and `_check` refuses them."""
        wide = values if values.dtype in (np.int32, np.int64) else values.astype(np.int64)
        ids = torch.from_numpy(np.require(wide, wide.dtype.newbyteorder("="), ["C", "W"]))
        if ids.dtype is self._plan.ids:
            return ids
        if self._plan.ids is torch.int32:
            low, high = ops.extent(ids)
            if low < 0 or high >= max(self._sizes):
                return ids
        return ids.to(self._plan.ids)


def _numpy(dtype: torch.dtype) -> np.dtype:
    return np.dtype(str(dtype).removeprefix("torch."))
