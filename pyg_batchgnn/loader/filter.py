"""PyG batches: samples with every attribute of their nodes and edges.

The semantics are those of ``torch_geometric.loader.utils``. When a batch is made, rows are gathered
straight from the user's tensors into memory that is used again. So a script may change ``data``
between batches.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info
from torch_geometric.data import Data, FeatureStore, HeteroData
from torch_geometric.data.storage import BaseStorage
from torch_geometric.index import index2ptr
from torch_geometric.loader.utils import index_select
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from pyg_batchgnn import ops
from pyg_batchgnn.ops import InEdges
from pyg_batchgnn.sample import put_entry
from pyg_batchgnn.store import AttributeGroups
from pyg_batchgnn.types import EDGES, NODES, Group

if TYPE_CHECKING:
    from pyg_batchgnn.loader.on_disk import BlockReader


@dataclass(frozen=True, eq=False)
class SampledRelation:
    """The sampled edges of one relation."""

    #: row, col: [E] local ids of the sources and of the targets
    row: Tensor
    col: Tensor
    edge: Tensor | None  # [E] input edge ids, or None if the sample has none
    #: num_sources, num_targets: the number of sampled nodes of either type
    num_sources: int
    num_targets: int


def filter_data(data: Data, out: SamplerOutput, gather: Gatherer) -> Data:
    """Returns a shallow copy of ``data`` with the sampled nodes and edges of ``out``."""
    batch = copy.copy(data)
    nodes = out.node.numel()
    _put_nodes(data._store, batch._store, out.node, gather)
    _put_edges(data._store, batch._store, SampledRelation(out.row, out.col, out.edge, nodes, nodes), gather)
    return batch


def filter_hetero_data(data: HeteroData, out: HeteroSamplerOutput, gather: Gatherer) -> HeteroData:
    """Returns a shallow copy of ``data`` with the sampled nodes and edges of ``out``. Types that
    ``out`` lacks become empty, with rows of the right shape."""
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
    for key, value in store._mapping.items():
        if key == "num_nodes":
            put_entry(out, key, node.numel())
        elif key not in ("edge_index", "adj_t") and store.is_node_attr(key):
            put_entry(out, key, gather(value, node, store._parent().__cat_dim__(key, value, store)))


def _put_edges(store: BaseStorage, out: BaseStorage, sampled: SampledRelation, gather: Gatherer) -> None:
    for key, value in store._mapping.items():
        if key == "edge_index":
            put_entry(out, key, gather.edges(edge_index_of(sampled.row, sampled.col), value))
        elif key == "adj_t" and isinstance(value, InEdges):
            put_entry(out, "edge_index", edge_index_of(sampled.row, sampled.col))
            for whole in (key, "num_edges"):
                out._mapping.pop(whole, None)
        elif key == "adj_t":
            put_entry(out, key, _sampled_adj_t(value, sampled, gather))
        elif store.is_edge_attr(key):
            dim = store._parent().__cat_dim__(key, value, store)
            put_entry(out, key, None if sampled.edge is None else gather(value, sampled.edge, dim))


def edge_index_of(row: Tensor, col: Tensor) -> Tensor:
    """Returns the edges, [2, E], without a copy if ``row`` and ``col`` are the rows of the
    sampler's own [2, E] tensor."""
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
        values = (
            gather(adj_t.values(), edge) if edge is not None else torch.ones(row.numel(), device=row.device)
        )
        order = torch.argsort(col * size[1] + row, stable=True)
        indptr = index2ptr(col[order], size[0])
        return torch.sparse_csr_tensor(indptr, row[order], values[order], size=size, check_invariants=False)
    value = adj_t.storage.value()
    if value is not None:
        value = None if edge is None else gather(value, edge)
    return type(adj_t)(row=col, col=row, value=value, sparse_sizes=size, is_sorted=False, trust_data=True)


# From feature stores ##############################################################################

# PyG batches with the attributes of a feature store.
#
# PyG reads edge attributes of a homogeneous store by node, leaves out those of a typed one, and
# knows only node types that have features. Here edge attributes belong to the sampled edges,
# and every node type has its store.


def filter_store(
    store: FeatureStore,
    groups: AttributeGroups,
    out: SamplerOutput | HeteroSamplerOutput,
    gather: Gatherer,
    custom_cls: Any = None,
) -> Data | HeteroData:
    """Makes a batch with every attribute of a feature store, all read in one request. Attributes of
    nodes are selected by node, those of edges by input edge."""
    schema = groups.schema
    if isinstance(out, HeteroSamplerOutput):
        batch: Any = HeteroData() if custom_cls is None else custom_cls()
        for node_type, node in out.node.items():
            batch[node_type].num_nodes = node.numel()
        for edge_type, row in out.row.items():
            batch[edge_type].edge_index = edge_index_of(row, out.col[edge_type])
        ids = {group: out.node[group.name] for group in schema.node_groups if group.name in out.node}
        edges = {group: (out.edge or {}).get(group.name) for group in schema.edge_groups}
    else:
        batch = Data() if custom_cls is None else custom_cls()
        batch.edge_index, batch.num_nodes = edge_index_of(out.row, out.col), out.node.numel()
        ids, edges = {NODES: out.node}, {EDGES: out.edge}
    ids |= {group: edge for group, edge in edges.items() if edge is not None}
    for group, named in read_store(store, groups, ids, gather).items():
        for name, tensor in named.items():
            (batch[group.name] if isinstance(out, HeteroSamplerOutput) else batch)[name] = tensor
    return batch


def read_store(
    store: FeatureStore,
    groups: AttributeGroups,
    ids: Mapping[Group, Tensor],
    gather: Gatherer,
    names: Sequence[str] | None = None,
) -> dict[Group, dict[str, Tensor]]:
    """Reads attributes of nodes and edges from a feature store in one request; returns them by
    group and name. ``ids``: the nodes or edges by group. ``names``: None reads all."""
    wanted, chosen = [], []
    for attr in map(copy.copy, store.get_all_tensor_attrs()):
        group = groups.of(attr)
        if group in ids and (names is None or attr.attr_name in names):
            attr.index = ids[group]
            wanted.append(attr)
            chosen.append(group)
    found: dict[Group, dict[str, Tensor]] = {group: {} for group in ids}
    for group, attr, tensor in zip(chosen, wanted, store.multi_get_tensor(wanted), strict=True):
        gather.count(tensor)
        found[group][attr.attr_name] = tensor
    return found


class Gatherer:
    """Selects rows of attributes, and counts the bytes copied. ``mapped``: reads tables in mapped
    files by direct reads; None reads them through the page cache."""

    def __init__(self, mapped: BlockReader | None = None) -> None:
        self.bytes_gathered = 0
        self.mapped = mapped
        self._known: list[tuple[Tensor, int]] = []  # indices met so far, and the rows that each needs

    def __call__(self, value: Any, index: Tensor, dim: int = 0) -> Any:
        """Selects ``index`` along ``dim``. int8 codes are decoded."""
        return self._selected(*self._found(value, index), dim)

    def narrow(self, value: Any, index: Tensor) -> Any:
        """Selects rows as they are stored: int8 codes stay codes."""
        value, index = self._found(value, index)
        return ops.rows_like(value, self._selected(ops.as_stored(value), index, 0))

    def _found(self, value: Any, index: Tensor) -> tuple[Any, Tensor]:
        """Returns a table in memory and the index into it; rows of mapped files are read first."""
        if self.mapped is None:
            return value, index
        value = self.mapped.held(value)
        return self.mapped.read(value, index) or (value, index)

    def _selected(self, value: Any, index: Tensor, dim: int) -> Any:
        if _is_ours(value, dim) and _is_plain(index):
            if not index.numel():
                return torch.empty((0, *value.shape[1:]), dtype=value.dtype)
            self._check(value, index)
            out = ops.gather_rows(value, index)
        else:
            out = _select(value, index, dim)
        self.count(out)
        return out

    def edges(self, edge_index: Tensor, like: Tensor) -> Tensor:
        """Moves a batch's edges to the device of the user's ``like``."""
        return edge_index.to(like.device)

    def count(self, out: Any) -> None:
        """Adds the bytes of a feature store's answer."""
        if isinstance(out, Tensor):
            self.bytes_gathered += out._values().nbytes if out.is_sparse else out.nbytes

    def _check(self, value: Tensor, index: Tensor) -> None:
        """Checks an index before a kernel trusts it: a script may have shrunk the table, or a
        user's function may have invented ids."""
        needed = next((rows for known, rows in self._known if known is index), None)
        if needed is None:
            low, high = ops.extent(index)
            if low < 0:
                raise IndexError(
                    f"a sample holds the id {low}, which is below 0: check what transform_sampler_output does"
                )
            needed = high + 1
            self._known.append((index, needed))
        if value.size(0) < needed:
            raise IndexError(
                f"an attribute of shape {list(value.shape)} has no row {needed - 1}, which a sample holds; "
                f"the graph is that of the loader's construction: make a new loader for another one"
            )


def _is_ours(value: Any, dim: int) -> bool:
    """Returns whether the package's own kernel may select: not in a worker process (which writes
    into shared memory), for values with a gradient, or for elements that are not plain bytes."""
    return (
        type(value) in (Tensor, ops.QuantizedTensor)
        and dim == 0
        and value.dim() > 0
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not (value.requires_grad or value.is_conj() or value.is_neg() or value.is_quantized)
        and get_worker_info() is None
    )


def _is_plain(index: Tensor) -> bool:
    return (
        index.dtype in ops.INTEGERS
        and index.dim() == 1
        and index.is_contiguous()
        and index.device.type == "cpu"
    )


def _select(value: Any, index: Tensor, dim: int) -> Any:
    if isinstance(value, Tensor) and value.requires_grad and get_worker_info() and torch.is_grad_enabled():
        raise RuntimeError(
            f"an attribute of shape {list(value.shape)} requires a gradient, which cannot flow back from a "
            f"worker process; use filter_per_worker=False or num_workers=0, or detach it"
        )
    if isinstance(value, ops.QuantizedTensor) and dim == 0:
        return value.with_codes(_select(value.codes, index, dim)).dequantize()
    device = value.device if hasattr(value, "device") and not isinstance(value, np.ndarray) else "cpu"
    return index_select(value, index.to(device), dim)
