"""A graph by destination from what PyG's loaders accept as ``data``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.graph_store import EdgeLayout, GraphStore

from pyg_batchgnn.store.graph import CscGraph

_HETERO = (
    "heterogeneous graphs are not supported yet; give a homogeneous Data, for instance data.to_homogeneous()"
)


def graph_from_pyg(data: Any) -> CscGraph:
    """Returns the graph of a homogeneous ``Data`` or of a ``(FeatureStore, GraphStore)`` pair.

    A ``Data`` gives its edges as ``edge_index`` or ``adj_t``. Edges that are by destination already
    are used where they lie; others are sorted once, by counting.

    Raises:
        NotImplementedError: a heterogeneous graph.
        TypeError, ValueError, IndexError: there is no graph, or its arrays do not fit together.
    """
    if isinstance(data, HeteroData):
        raise NotImplementedError(_HETERO)
    if isinstance(data, Data):
        return _from_data(data)
    if isinstance(data, (tuple, list)) and len(data) == 2 and isinstance(data[1], GraphStore):
        return _from_store(data[1])
    raise TypeError(f"data must be a Data or a (FeatureStore, GraphStore) pair, got {type(data).__name__}")


def _from_data(data: Data) -> CscGraph:
    num_nodes = data.num_nodes
    if num_nodes is None:
        raise ValueError(
            "the number of nodes is unknown: set data.num_nodes or a node attribute such as data.x"
        )
    if "adj_t" in data:
        return _from_adj_t(data.adj_t, num_nodes)
    if data.edge_index is None:
        if "adj" in data:
            raise TypeError("data has edges in adj only; give them as edge_index, or by destination as adj_t")
        return CscGraph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), num_nodes)
    return CscGraph.from_edge_index(_plain(data.edge_index), num_nodes)


def _plain(edge_index: Tensor) -> Tensor:
    """Removes PyG's `EdgeIndex` wrapper: the kernels take plain tensors."""
    as_tensor = getattr(edge_index, "as_tensor", None)
    plain = as_tensor() if as_tensor is not None else edge_index
    if plain.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"edge_index must be int64 (or int32), got {plain.dtype}")
    return plain.cpu()


def _from_adj_t(adj_t: Any, num_nodes: int) -> CscGraph:
    if isinstance(adj_t, Tensor):
        if adj_t.layout is not torch.sparse_csr:
            raise TypeError(
                f"adj_t must be a sparse CSR tensor, got layout {adj_t.layout}; use adj_t.to_sparse_csr()"
            )
        indptr, indices = adj_t.crow_indices(), adj_t.col_indices()
    else:  # torch_sparse.SparseTensor
        indptr, indices, _ = adj_t.csr()
    if indptr.numel() != num_nodes + 1:
        raise ValueError(
            f"adj_t has {indptr.numel() - 1} rows, but data has {num_nodes} nodes; both must be the same"
        )
    return CscGraph.from_csc(indptr.long().contiguous(), indices.contiguous())


def _from_store(store: GraphStore) -> CscGraph:
    attrs = store.get_all_edge_attrs()
    if not attrs:
        raise ValueError("the graph store holds no edges: put some with put_edge_index")
    if {attr.edge_type for attr in attrs} != {None}:
        raise NotImplementedError(_HETERO)
    by_layout = {attr.layout: attr for attr in attrs}
    for layout in (EdgeLayout.CSC, EdgeLayout.COO, EdgeLayout.CSR):
        if layout in by_layout:
            return _from_edges(layout, store.get_edge_index(by_layout[layout]), by_layout[layout].size)
    raise ValueError(f"the graph store holds edges in an unknown layout: {sorted(map(str, by_layout))}")


def _from_edges(layout: EdgeLayout, edges: tuple[Tensor, Tensor], size: tuple[int, int] | None) -> CscGraph:
    row, col = (part.contiguous() for part in edges)
    if layout is EdgeLayout.CSC:
        return CscGraph.from_csc(col.long(), row)
    if size is None:
        raise ValueError("the graph store does not say how many nodes there are: give size to put_edge_index")
    if layout is EdgeLayout.CSR:
        row = torch.repeat_interleave(torch.arange(row.numel() - 1), row[1:] - row[:-1])
    return CscGraph.from_edge_index(torch.stack([row, col.to(row.dtype)]), max(size))
