"""Operators on the arrays of a graph: sorting edges, gathering rows, finding distinct nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
from pyg_batchgnn.ops.in_edges import InEdges
from pyg_batchgnn.ops.library import kernels, thread_count
from pyg_batchgnn.ops.quantized import QuantizedTensor, decode, decode_into


def build_csc(edge_index: Tensor, num_nodes: int, num_sources: int | None = None) -> InEdges:
    """Sorts edges by destination, in a stable order, by counting.

    Args:
        edge_index: [2, E] int32 or int64, sources above destinations; ids are checked here.
        num_nodes: the number of nodes that edges may lead to, N.
        num_sources: the number of nodes that they may come from; N if None.

    Returns:
        The in-edges of all N nodes, int32 where that holds the values (`id_dtype`). ``edge_ids`` is
        None where the edges were sorted already.
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


def gather_rows(table: Tensor, index: Tensor) -> Tensor:
    """Returns ``table[index]`` without a gradient, in memory that is reused.

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
    """Sets ``out[i] = table[index[i]]``, or ``out[i] = table[i]`` without an index.

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
    if isinstance(table, QuantizedTensor):
        if not out.is_contiguous() and not out[0].is_contiguous():
            raise ValueError("out's rows must be contiguous; call .contiguous()")
        increment_version(out)
        decode_into(out, table.codes, table.decoding, index)
        return
    for name, tensor in (("out", out), ("table", table)):
        # A whole tensor that is contiguous needs no view of a row, which takes longer.
        if not tensor.is_contiguous() and not tensor[0].is_contiguous():
            raise ValueError(f"{name}'s rows must be contiguous; call .contiguous()")
    increment_version(out)
    kernels.put_rows(table.detach(), index, out, thread_count())


def sum_lists(indptr: Tensor, values: Tensor) -> Tensor:
    """Returns the inclusive sums of values [e] float64, added one by one from the begin of each
    list. ``indptr``: [n + 1] int64, where lists begin; trusted."""
    check_vector("values", values, (torch.float64,))
    return kernels.sum_lists(indptr, values)


def unique_nodes(nodes: Sequence[Tensor], num_nodes: int) -> tuple[Tensor, list[Tensor]]:
    """Returns the distinct ids of int64 vectors, ascending, and each vector's positions in them."""
    _check_nodes(nodes, num_nodes)
    unique, places = kernels.unique_nodes(list(nodes), num_nodes)
    remember(unique, num_nodes)
    for place in places:
        remember(place, unique.numel())
    return unique, places


def list_unique_nodes(nodes: Sequence[Tensor], num_nodes: int) -> Tensor:
    """Returns the first result of `unique_nodes`, in half of the time."""
    _check_nodes(nodes, num_nodes)
    unique = kernels.list_unique_nodes(list(nodes), num_nodes)
    remember(unique, num_nodes)
    return unique


def count_unique_nodes(nodes: Sequence[Tensor], num_nodes: int) -> int:
    """Returns the number of distinct entries of int64 vectors of node ids."""
    return list_unique_nodes(nodes, num_nodes).numel()


def _check_nodes(nodes: Sequence[Tensor], num_nodes: int) -> None:
    for node in nodes:
        check_vector("nodes", node, (torch.int64,))
        check_ids("nodes", node, num_nodes)


# Degrees and self loops ###########################################################################


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


class LoopFree(NamedTuple):
    """A graph without its self loops."""

    indptr: Tensor  # [D + 1] int64
    indices: Tensor  # [E'] int32
    kept: Tensor  # [E'] int64, the former position of each edge


def drop_self_loops(indptr: Tensor, indices: Tensor) -> LoopFree | None:
    """Returns a CSC graph without its self loops, or None if it has none."""
    check_vector("indices", indices)
    check_indptr("indptr", indptr, indices.numel())
    targets = torch.repeat_interleave(torch.arange(indptr.numel() - 1), indptr.diff())
    kept = (indices != targets).nonzero().view(-1)
    if kept.numel() == indices.numel():
        return None
    found = LoopFree(torch.searchsorted(kept, indptr), indices[kept].int(), kept)
    remember(found.indptr, found.indices.numel() + 1, ascends=True)
    remember(found.kept, indices.numel())
    known = known_bound(indices)
    if known is not None:
        remember(found.indices, known)
    return found
