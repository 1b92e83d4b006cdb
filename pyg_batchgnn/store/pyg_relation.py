"""The in-edges of one relation, from PyG's forms of edges."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data.graph_store import EdgeLayout

from pyg_batchgnn import ops
from pyg_batchgnn.data import Relation
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.store.sharing import shared_copy, shared_in_place


@contextlib.contextmanager
def named(relation: Relation) -> Iterator[None]:
    """Lets errors about the edges of a relation name it."""
    try:
        yield
    except (TypeError, ValueError, IndexError) as error:
        raise type(error)(f"edges of {relation}: {error}") from None


def in_edges_of_storage(store: Any, num_sources: int, num_targets: int) -> InEdges:
    """Returns the in-edges in a storage of PyG's.

    Args:
        store: has ``edge_index``, ``adj_t`` or no edges.
        num_sources, num_targets: the number of nodes at either end.
    """
    if "adj_t" in store:
        return _of_adj_t(store["adj_t"], num_sources, num_targets)
    edge_index = store.get("edge_index", None)
    if edge_index is None and "adj" in store:
        raise TypeError("data has edges in adj only; give them as edge_index, or by destination as adj_t")
    if edge_index is None:
        edge_index = torch.empty(2, 0, dtype=torch.int64)
    return shared_copy(ops.build_csc(_plain(edge_index), num_targets, num_sources))


def _plain(edge_index: Any) -> Tensor:
    """Removes PyG's `EdgeIndex` wrapper: the kernels take plain tensors."""
    as_tensor = getattr(edge_index, "as_tensor", None)
    plain = as_tensor() if as_tensor is not None else edge_index
    check_dtype(plain)
    return plain.cpu()


def check_dtype(edge_index: Any) -> None:
    """Raises TypeError if a tensor of edges has no integer ids that are possible."""
    dtype = getattr(edge_index, "dtype", torch.int64)
    if dtype in (torch.int32, torch.int64):
        return
    remedy = f"; {ops.MAP_IDS}" if dtype == torch.uint64 else "; use .long()"
    raise TypeError(f"edge_index must be int64 (or int32), got {dtype}{remedy}")


def _of_adj_t(adj_t: Any, num_sources: int, num_targets: int) -> InEdges:
    if isinstance(adj_t, Tensor):
        if adj_t.layout is not torch.sparse_csr:
            raise TypeError(
                f"adj_t must be a sparse CSR tensor, got layout {adj_t.layout}; use adj_t.to_sparse_csr()"
            )
        indptr, indices = adj_t.crow_indices(), adj_t.col_indices()
    else:  # torch_sparse.SparseTensor
        indptr, indices, _ = adj_t.csr()
    if indptr.numel() != num_targets + 1:
        raise ValueError(
            f"adj_t has {indptr.numel() - 1} rows, but data has {num_targets} nodes; both must be the same"
        )
    return shared_in_place(
        InEdges.checked(indptr.long().contiguous(), indices.contiguous(), num_sources=num_sources)
    )


def in_edges_of_layout(
    layout: EdgeLayout, edges: tuple[Tensor, Tensor], num_sources: int, num_targets: int
) -> InEdges:
    """Returns the in-edges that a graph store holds in one of its layouts."""
    row, col = (part.contiguous() for part in edges)
    if layout is EdgeLayout.CSC:
        if col.numel() != num_targets + 1:
            raise ValueError(
                f"the CSC has {col.numel() - 1} columns for {num_targets} nodes; both must be the same"
            )
        return shared_in_place(InEdges.checked(col.long(), row, num_sources=num_sources))
    if layout is EdgeLayout.CSR:
        row = torch.repeat_interleave(torch.arange(row.numel() - 1), row[1:] - row[:-1])
    return shared_copy(ops.build_csc(torch.stack([row, col.to(row.dtype)]), num_targets, num_sources))
