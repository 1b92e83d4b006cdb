"""The arrays of a graph: edges by destination, gathering rows, finding distinct nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from pyg_batchgnn.ops.aggregate import inverse_degrees
from pyg_batchgnn.ops.checks import (
    INTEGERS,
    MAP_IDS,
    check_dense,
    check_ids,
    check_indptr,
    check_node_count,
    check_range,
    check_vector,
    extent,
    fits_int32,
    id_dtype,
    known_bound,
    remember,
    too_many_nodes,
)
from pyg_batchgnn.ops.library import kernels, thread_count
from pyg_batchgnn.ops.quantized import QuantizedTensor, decode, decode_into


@dataclass(frozen=True, eq=False, repr=False)
class InEdges:
    """The in-edges of some nodes, the targets, in compressed sparse columns (CSC). The constructor
    takes any arrays; `checked` checks them, and so does every operator.
    """

    indptr: Tensor  # [n + 1] int64, where each target's in-edges begin; from 0 to e, ascending
    indices: Tensor  # [e] int32 or int64, the ids of the sources
    edge_ids: Tensor | None = None  # [e] int32 or int64, the id of each edge; None if it is the position

    @classmethod
    def checked(
        cls,
        indptr: Tensor,
        indices: Tensor,
        edge_ids: Tensor | None = None,
        *,
        num_sources: int | None = None,
    ) -> InEdges:
        """Returns in-edges from contiguous CPU arrays, checked. Raises TypeError, ValueError or
        IndexError if they do not fit together; the message names the entry. ``num_sources``:
        sources are in [0, num_sources); None: as many as there are targets."""
        found = cls(indptr, indices, edge_ids)
        found.check(num_sources=num_sources)
        return found

    def check(self, *, num_sources: int | None = None) -> None:
        """Raises as `checked`; arrays are read again only if torch has written to them."""
        indptr, indices, edge_ids = self.indptr, self.indices, self.edge_ids
        check_vector("indptr", indptr, (torch.int64,))
        check_vector("indices", indices)
        edges, targets = indices.numel(), indptr.numel() - 1
        sources = targets if num_sources is None else num_sources
        if indices.dtype == torch.int32 and not fits_int32(sources):
            raise TypeError(
                f"int32 indices cannot name all {sources} nodes; convert them with .to(torch.int64)"
            )
        check_indptr("indptr", indptr, edges, of_graph=True)
        check_ids("indices", indices, sources, of_graph=True)
        if edge_ids is not None:
            check_vector("edge_ids", edge_ids)
            if edge_ids.numel() != edges:
                raise ValueError(f"edge_ids has {edge_ids.numel()} entries for {edges} edges")
            check_ids("edge_ids", edge_ids, edges, "edge ids", of_graph=True)

    def note_checked(self, num_sources: int, *, of_graph: bool = True) -> None:
        """Records that the entries were checked elsewhere: for `check`, and if the arrays are the
        sampler's own, not ``of_graph``, for operators, too."""
        remember(self.indptr, self.indices.numel() + 1, ascends=True, of_graph=of_graph)
        remember(self.indices, num_sources, of_graph=of_graph)
        if self.edge_ids is not None:
            remember(self.edge_ids, self.indices.numel(), of_graph=of_graph)

    @property
    def num_targets(self) -> int:
        return self.indptr.numel() - 1

    @property
    def num_edges(self) -> int:
        return self.indices.numel()

    @property
    def degrees(self) -> Tensor:
        """[n] int64, the number of in-edges of each target."""
        return self.indptr.diff()

    def edges(self, rows: range) -> range:
        """Returns the positions of the in-edges of targets ``rows``."""
        return range(int(self.indptr[rows.start]), int(self.indptr[rows.stop]))

    def sources(self, rows: range) -> Tensor:
        """Returns the sources of the in-edges of targets ``rows``, a view of ``indices``."""
        return self.indices[int(self.indptr[rows.start]) : int(self.indptr[rows.stop])]

    def targets(self, rows: range | None = None) -> Tensor:
        """Returns [e] int64, the target of each in-edge of targets ``rows``, or of all."""
        rows = range(self.num_targets) if rows is None else rows
        degrees = self.indptr[rows.start : rows.stop + 1].diff()
        return torch.repeat_interleave(torch.arange(rows.start, rows.stop), degrees)

    def targets_of(self, edges: range) -> Tensor:
        """Returns [len(edges)] int64, the target of each edge, given by position."""
        if not len(edges):
            return torch.empty(0, dtype=torch.int64)
        first = int(torch.searchsorted(self.indptr, edges.start, right=True)) - 1
        last = int(torch.searchsorted(self.indptr, edges.stop))
        ends = self.indptr[first : last + 1].clamp(edges.start, edges.stop)
        return torch.repeat_interleave(torch.arange(first, last), ends.diff())

    def explicit_edge_ids(self) -> Tensor:
        """Returns [e], the id of each edge: ``edge_ids``, or the positions as int64."""
        return torch.arange(self.num_edges) if self.edge_ids is None else self.edge_ids

    def edge_list(self) -> Tensor:
        """Returns [2, e] int64, sources above targets, by input edge id."""
        index = torch.stack([self.indices.long(), self.targets()])
        if self.edge_ids is None:
            return index
        ordered = torch.empty_like(index)
        ordered[:, self.edge_ids.long()] = index
        return ordered

    def __repr__(self) -> str:
        return f"InEdges({self.num_targets:,} targets, {self.num_edges:,} edges)"


@dataclass(frozen=True, eq=False)
class OwnedEdges:
    """The in-edges of the nodes that a process owns: a rank's part, or a whole graph."""

    # Of the owned nodes; row i is node ``first_node`` + i. Over ranks edge ids are never None.
    in_edges: InEdges
    node: Tensor  # [n] int64, the original id of each owned node
    first_node: int  # the id of the first owned node, in the numbering of the sources
    num_nodes: int
    num_edges: int


def build_csc(edge_index: Tensor, num_nodes: int, num_sources: int | None = None) -> InEdges:
    """Sorts edges by destination, stably, by counting.

    Args:
        edge_index: [2, E] int32 or int64, sources above destinations; ids are checked here.
        num_nodes: the number of destination nodes, N.
        num_sources: the number of source nodes; None for N.

    Returns:
        The in-edges of all N nodes, int32 if that holds the values (`id_dtype`). ``edge_ids`` is
            None if the edges were sorted already.
    """
    check_dense("edge_index", edge_index)
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(f"edge_index must have shape [2, num_edges], got {list(edge_index.shape)}")
    if edge_index.stride(1) != 1 and edge_index.size(1) > 1:
        edge_index = edge_index.contiguous()
    sizes = (num_nodes if num_sources is None else num_sources, num_nodes)
    _check_sizes(edge_index, sizes)
    for name, row, size in zip(("edge_index[0]", "edge_index[1]"), edge_index, sizes, strict=True):
        check_vector(name, row)
        check_range(name, row, size)
    # The number of targets decides how wide the indices of the sources are.
    same_width = fits_int32(sizes[0]) == fits_int32(num_nodes)
    indptr, indices, edge_ids = kernels.build_csc(edge_index, num_nodes if same_width else max(sizes))
    # The operator returns no ids where the edges were in order.
    ids = edge_ids if edge_ids.numel() else None
    found = InEdges(indptr[: num_nodes + 1], indices.to(id_dtype(max(sizes))), ids)
    found.note_checked(sizes[0], of_graph=False)
    return found


def _check_sizes(edge_index: Tensor, sizes: tuple[int, int]) -> None:
    bad = [at for at in range(2) if too_many_nodes(sizes[at])]
    if not bad:
        return
    high = {at: extent(edge_index[at])[1] for at in bad if edge_index[at].dtype in INTEGERS}
    at = max(bad, key=lambda one: high.get(one, -1))
    if high.get(at, -1) + 1 != sizes[at]:
        check_node_count("num_nodes", sizes[at])
    raise ValueError(
        f"edge_index[{at}] holds the id {high[at]}, so there would be {sizes[at]} nodes, but "
        f"{too_many_nodes(sizes[at])}; {MAP_IDS}"
    )


def degree_scale(
    indptr: Tensor, num_nodes: int, *, loops: int, root: bool, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Returns 1 / d for each of N nodes, or 1 / sqrt(d) with ``root``; 0 where d is 0.

    Args:
        indptr: [D + 1] int64; nodes from D on have no in-edges.
        num_nodes: N >= D.
        loops: d is the number of in-edges and this number.
        dtype: float32 or float64.
    """
    check_indptr("indptr", indptr, int(indptr[-1]) if indptr.numel() else 0)
    if num_nodes < indptr.numel() - 1:
        raise ValueError(f"num_nodes is {num_nodes}, but indptr has {indptr.numel() - 1} targets")
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"scales are float32 or float64, not {dtype}")
    return inverse_degrees(indptr, num_nodes, loops, root, dtype)


def drop_self_loops(indptr: Tensor, indices: Tensor) -> tuple[InEdges, Tensor] | None:
    """Returns a CSC graph without its self loops; None if it has none."""
    check_vector("indices", indices)
    check_indptr("indptr", indptr, indices.numel())
    targets = torch.repeat_interleave(torch.arange(indptr.numel() - 1), indptr.diff())
    kept = (indices != targets).nonzero().view(-1)
    if kept.numel() == indices.numel():
        return None
    found = InEdges(torch.searchsorted(kept, indptr), indices[kept].int())
    remember(found.indptr, found.indices.numel() + 1, ascends=True)
    remember(kept, indices.numel())
    known = known_bound(indices)
    if known is not None:
        remember(found.indices, known)
    return found, kept


# Rows and nodes #################################################################################


def gather_rows(table: Tensor, index: Tensor) -> Tensor:
    """Returns ``table[index]``, a copy without a gradient.

    Args:
        table: [N, ...] any dtype, on the CPU. Rows of a `QuantizedTensor` are decoded.
        index: [M] int32 or int64 in [0, N).
    """
    check_dense("table", table)
    if table.dim() == 0:
        raise ValueError("table must have rows, got one number")
    check_ids("index", index, table.size(0), "rows of the table")
    if isinstance(table, QuantizedTensor):
        return decode(table.codes, table.decoding, table.dtype, index)
    table = table.detach()
    if table.size(0) == 0:
        return table.new_empty((0, *table.shape[1:]))
    if not table[0].is_contiguous():
        table = table.contiguous()
    return kernels.gather_rows(table, index, thread_count())


def put_rows(out: Tensor, table: Tensor, index: Tensor | None = None) -> None:
    """Sets ``out[i] = table[index[i]]``, or ``out[i] = table[i]`` without an index. Raises
    TypeError, ValueError or IndexError if the arguments do not fit.

    Args:
        out: [M, ...] on the CPU, of the table's dtype and row shape; rows must be contiguous, but
            ``out`` may be a part of a block or a column of packed rows.
        table: [N, ...]; rows must be contiguous. Those of a `QuantizedTensor` are decoded.
        index: [M] int32 or int64 in [0, N). None copies the first M rows in order.
    """
    for name, tensor in (("out", out), ("table", table)):
        check_dense(name, tensor)
        if tensor.dim() == 0:
            raise ValueError(f"{name} must have rows, got one number")
    if out.dtype != table.dtype or out.shape[1:] != table.shape[1:]:
        raise ValueError(
            f"rows of {table.dtype} {list(table.shape[1:])} cannot be put into {out.dtype} "
            f"{list(out.shape[1:])}"
        )
    rows = table.size(0) if index is None else len(index)
    if out.size(0) > rows or (index is not None and out.size(0) != rows):
        raise ValueError(f"{rows} rows do not fill {out.size(0)}")
    if index is not None:
        check_ids("index", index, table.size(0), "rows of the table")
    if not out.numel():
        return
    coded = isinstance(table, QuantizedTensor)
    for name, tensor in (("out", out), ("table", out if coded else table)):
        # A whole tensor that is contiguous needs no view of a row, which takes longer.
        if not tensor.is_contiguous() and not tensor[0].is_contiguous():
            raise ValueError(f"{name}'s rows must be contiguous; call .contiguous()")
    increment_version(out)
    if isinstance(table, QuantizedTensor):
        decode_into(out, table.codes, table.decoding, index)
    else:
        kernels.put_rows(table.detach(), index, out, thread_count())


def sum_lists(indptr: Tensor, values: Tensor) -> Tensor:
    """Returns [e] float64, the prefix sums of ``values`` (the place itself included), which begin
    anew in every list. ``indptr``: [n + 1] int64, where lists begin; not checked."""
    check_vector("values", values, (torch.float64,))
    return kernels.sum_lists(indptr, values)


def unique_nodes(nodes: Sequence[Tensor], num_nodes: int) -> tuple[Tensor, list[Tensor]]:
    """Returns the distinct ids of int64 vectors, ascending, and each vector's positions there."""
    _check_nodes(nodes, num_nodes)
    unique, places = kernels.unique_nodes(list(nodes), num_nodes)
    remember(unique, num_nodes)
    for place in places:
        remember(place, unique.numel())
    return unique, places


def list_unique_nodes(nodes: Sequence[Tensor], num_nodes: int) -> Tensor:
    """As `unique_nodes`, without positions, in half of the time."""
    _check_nodes(nodes, num_nodes)
    unique = kernels.list_unique_nodes(list(nodes), num_nodes)
    remember(unique, num_nodes)
    return unique


def count_unique_nodes(nodes: Sequence[Tensor], num_nodes: int) -> int:
    """Returns the number of distinct node ids in several int64 vectors."""
    return list_unique_nodes(nodes, num_nodes).numel()


def _check_nodes(nodes: Sequence[Tensor], num_nodes: int) -> None:
    for node in nodes:
        check_vector("nodes", node, (torch.int64,))
        check_ids("nodes", node, num_nodes)
