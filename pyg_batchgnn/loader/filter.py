"""PyG batches: samples with every attribute of their nodes and edges.

The semantics are those of ``torch_geometric.loader.utils``. When a batch is made, rows are gathered
straight from the user's tensors into memory that is used again. So a script may change ``data``
between batches.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, FeatureStore
from torch_geometric.index import index2ptr
from torch_geometric.sampler import SamplerOutput

from pyg_batchgnn.loader.gather import Gatherer
from pyg_batchgnn.store import group_of


def filter_data(data: Data, out: SamplerOutput, gather: Gatherer) -> Data:
    """Returns a shallow copy of ``data`` with the nodes and edges of ``out``.

    Attributes of the whole graph stay as they are.
    """
    store = data._store
    batch = copy.copy(data)
    for key, value in store.items():
        if key == "num_nodes":
            batch._store.num_nodes = out.node.numel()
        elif key == "edge_index":
            batch._store.edge_index = edge_index_of(out).to(value.device)
        elif key == "adj_t":
            batch._store.adj_t = _sampled_adj_t(value, out, gather)
        elif store.is_node_attr(key):
            batch._store[key] = gather(value, out.node, data.__cat_dim__(key, value, store))
        elif store.is_edge_attr(key):
            dim = data.__cat_dim__(key, value, store)
            batch._store[key] = None if out.edge is None else gather(value, out.edge, dim)
    return batch


def edge_index_of(out: SamplerOutput) -> Tensor:
    """Returns the edges, [2, E].

    They are the block that the sampler wrote if row and col are still its two rows, else a stacked
    copy.
    """
    whole = out.row._base
    if (
        whole is not None
        and whole is out.col._base
        and whole.dim() == 2
        and _are_rows(whole, out.row, out.col)
    ):
        return whole
    return torch.stack([out.row, out.col])


def _are_rows(whole: Tensor, row: Tensor, col: Tensor) -> bool:
    return (
        whole.shape == (2, row.numel())
        and row.data_ptr() == whole.data_ptr()
        and col.data_ptr() == whole.data_ptr() + row.nbytes
        and col.numel() == row.numel()
        and whole.is_contiguous()
    )


def _sampled_adj_t(adj_t: Any, out: SamplerOutput, gather: Gatherer) -> Any:
    size = (out.node.numel(), out.node.numel())
    if isinstance(adj_t, Tensor):
        values = gather(adj_t.values(), out.edge) if out.edge is not None else torch.ones(out.row.numel())
        order = torch.argsort(out.col * size[1] + out.row, stable=True)
        indptr = index2ptr(out.col[order], size[0])
        return torch.sparse_csr_tensor(
            indptr, out.row[order], values[order], size=size, check_invariants=False
        )
    value = adj_t.storage.value()
    if value is not None:
        value = None if out.edge is None else gather(value, out.edge)
    return type(adj_t)(
        row=out.col, col=out.row, value=value, sparse_sizes=size, is_sorted=False, trust_data=True
    )


def filter_store(store: FeatureStore, out: SamplerOutput, gather: Gatherer, custom_cls: Any = None) -> Data:
    """Makes a batch with every attribute of a feature store.

    Attributes of nodes are selected by node, those of edges by input edge.
    """
    batch = custom_cls() if custom_cls is not None else Data()
    batch.edge_index = edge_index_of(out)
    batch.num_nodes = out.node.numel()
    for name, tensor in read_store(store, out.node, out.edge, gather).items():
        batch[name] = tensor
    return batch


def read_store(
    store: FeatureStore,
    node: Tensor,
    edge: Tensor | None,
    gather: Gatherer,
    names: Sequence[str] | None = None,
) -> dict[str, Tensor]:
    """Reads attributes from a feature store in one request.

    Args:
        store: the feature store.
        node: [n] ids of the nodes whose attributes are read.
        edge: [e] ids of the edges whose attributes are read; None reads no edge attributes.
        gather: counts the bytes.
        names: the attributes that are read; None reads all.

    Returns:
        The attributes by name.
    """
    wanted = []
    for attr in map(copy.copy, store.get_all_tensor_attrs()):
        attr.index = edge if group_of(attr).is_edge else node
        if attr.index is not None and (names is None or attr.attr_name in names):
            wanted.append(attr)
    tensors = store.multi_get_tensor(wanted)
    for tensor in tensors:
        gather.count(tensor)
    return {attr.attr_name: tensor for attr, tensor in zip(wanted, tensors, strict=True)}


def add_sample_info(batch: Data, out: SamplerOutput) -> None:
    """Adds what PyG's loaders put beside the attributes.

    ``n_id`` and ``e_id`` give way to the user's attributes of that name.
    """
    if "n_id" not in batch:
        batch.n_id = out.node
    if out.edge is not None and "e_id" not in batch:
        batch.e_id = out.edge.to(torch.long)
    batch.batch = out.batch
    batch.num_sampled_nodes = out.num_sampled_nodes
    batch.num_sampled_edges = out.num_sampled_edges
    if out.orig_row is not None and out.orig_col is not None:
        batch._orig_edge_index = torch.stack([out.orig_row, out.orig_col])
    batch.input_id, batch.seed_time = out.metadata[:2]
    batch.batch_size = out.metadata[0].numel()
