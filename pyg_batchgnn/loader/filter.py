"""PyG batches: samples with every attribute of their nodes and edges.

The semantics are those of ``torch_geometric.loader.utils``. When a batch is made, rows are gathered
straight from the user's tensors into memory that is used again. So a script may change ``data``
between batches.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import BaseStorage
from torch_geometric.index import index2ptr
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from pyg_batchgnn.loader.gather import Gatherer
from pyg_batchgnn.sample import put_entry


@dataclass(frozen=True, eq=False)
class SampledRelation:
    """The sampled edges of one relation.

    Attributes:
        row, col: [E] local ids of the sources and of the targets.
        edge: [E] input edge ids, or None if the sample has none.
        num_sources, num_targets: the number of sampled nodes of either type.
    """

    row: Tensor
    col: Tensor
    edge: Tensor | None
    num_sources: int
    num_targets: int


def filter_data(data: Data, out: SamplerOutput, gather: Gatherer) -> Data:
    """Returns a shallow copy of ``data`` with the nodes and edges of ``out``.

    Attributes of the whole graph stay as they are.
    """
    batch = copy.copy(data)
    nodes = out.node.numel()
    _put_nodes(data._store, batch._store, out.node, gather)
    _put_edges(data._store, batch._store, SampledRelation(out.row, out.col, out.edge, nodes, nodes), gather)
    return batch


def filter_hetero_data(data: HeteroData, out: HeteroSamplerOutput, gather: Gatherer) -> HeteroData:
    """Returns a shallow copy of ``data`` with the nodes and edges of ``out``.

    What is not in ``out`` becomes empty, with rows of the right shape.
    """
    batch = copy.copy(data)
    none = torch.empty(0, dtype=torch.int64)
    # Looking a store up by name takes PyG as long as there are types.
    for node_type, nodes in data._node_store_dict.items():
        _put_nodes(nodes, batch._node_store_dict[node_type], out.node.get(node_type, none), gather)
    for edge_type, edges in data._edge_store_dict.items():
        source, _, target = edge_type
        sampled = SampledRelation(
            out.row.get(edge_type, none),
            out.col.get(edge_type, none),
            none if edge_type not in out.row else (out.edge or {}).get(edge_type),
            out.node.get(source, none).numel(),
            out.node.get(target, none).numel(),
        )
        _put_edges(edges, batch._edge_store_dict[edge_type], sampled, gather)
    return batch


def _put_nodes(store: BaseStorage, out: BaseStorage, node: Tensor, gather: Gatherer) -> None:
    """Puts the sampled rows of a store's node attributes into a copy of the store."""
    for key, value in store._mapping.items():
        if key == "num_nodes":
            put_entry(out, key, node.numel())
        elif key not in ("edge_index", "adj_t") and store.is_node_attr(key):
            put_entry(out, key, gather(value, node, store._parent().__cat_dim__(key, value, store)))


def _put_edges(store: BaseStorage, out: BaseStorage, sampled: SampledRelation, gather: Gatherer) -> None:
    """Puts the sampled edges and the rows of edge attributes into a copy of a store."""
    for key, value in store._mapping.items():
        if key == "edge_index":
            put_entry(out, key, edge_index_of(sampled.row, sampled.col).to(value.device))
        elif key == "adj_t":
            put_entry(out, key, _sampled_adj_t(value, sampled, gather))
        elif store.is_edge_attr(key):
            dim = store._parent().__cat_dim__(key, value, store)
            put_entry(out, key, None if sampled.edge is None else gather(value, sampled.edge, dim))


def edge_index_of(row: Tensor, col: Tensor) -> Tensor:
    """Returns the edges, [2, E].

    They are the block that the sampler wrote if row and col are still its two rows, else a stacked
    copy.
    """
    whole = row._base
    if whole is not None and whole is col._base and whole.dim() == 2 and _are_rows(whole, row, col):
        return whole
    return torch.stack([row, col])


def _are_rows(whole: Tensor, row: Tensor, col: Tensor) -> bool:
    return (
        whole.shape == (2, row.numel())
        and row.data_ptr() == whole.data_ptr()
        and col.data_ptr() == whole.data_ptr() + row.nbytes
        and col.numel() == row.numel()
        and whole.is_contiguous()
    )


def _sampled_adj_t(adj_t: Any, sampled: SampledRelation, gather: Gatherer) -> Any:
    size = (sampled.num_targets, sampled.num_sources)
    row, col, edge = sampled.row, sampled.col, sampled.edge
    if isinstance(adj_t, Tensor):
        values = gather(adj_t.values(), edge) if edge is not None else torch.ones(row.numel())
        order = torch.argsort(col * size[1] + row, stable=True)
        indptr = index2ptr(col[order], size[0])
        return torch.sparse_csr_tensor(indptr, row[order], values[order], size=size, check_invariants=False)
    value = adj_t.storage.value()
    if value is not None:
        value = None if edge is None else gather(value, edge)
    return type(adj_t)(row=col, col=row, value=value, sparse_sizes=size, is_sorted=False, trust_data=True)
