"""PyG batches with the attributes of a feature store.

PyG reads edge attributes of a homogeneous store by node, leaves out those of a typed one, and knows
only node types that have features. Here edge attributes are those of the sampled edges, and every
node type has its store.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch_geometric.data import Data, FeatureStore, HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from pyg_batchgnn.data import EDGES, NODES, Group
from pyg_batchgnn.loader.filter import edge_index_of
from pyg_batchgnn.loader.gather import Gatherer
from pyg_batchgnn.store import AttributeGroups


def filter_store(
    store: FeatureStore,
    groups: AttributeGroups,
    out: SamplerOutput,
    gather: Gatherer,
    custom_cls: Any = None,
) -> Data:
    """Makes a batch with every attribute of a feature store, all read in one request.

    Attributes of nodes are selected by node, those of edges by input edge.
    """
    batch = Data() if custom_cls is None else custom_cls()
    batch.edge_index = edge_index_of(out.row, out.col)
    batch.num_nodes = out.node.numel()
    ids = {NODES: out.node} if out.edge is None else {NODES: out.node, EDGES: out.edge}
    for named in read_store(store, groups, ids, gather).values():
        for name, tensor in named.items():
            batch[name] = tensor
    return batch


def filter_hetero_store(
    store: FeatureStore,
    groups: AttributeGroups,
    out: HeteroSamplerOutput,
    gather: Gatherer,
    custom_cls: Any = None,
) -> HeteroData:
    """Makes a typed batch with every attribute of a feature store, all read in one request."""
    batch = HeteroData() if custom_cls is None else custom_cls()
    for node_type, node in out.node.items():
        batch[node_type].num_nodes = node.numel()
    for edge_type, row in out.row.items():
        batch[edge_type].edge_index = edge_index_of(row, out.col[edge_type])
    schema = groups.schema
    ids = {group: out.node[group.name] for group in schema.node_groups if group.name in out.node}
    for group in schema.edge_groups:
        edge = (out.edge or {}).get(group.name)
        if edge is not None:
            ids[group] = edge
    for group, named in read_store(store, groups, ids, gather).items():
        for name, tensor in named.items():
            batch[group.name][name] = tensor
    return batch


def read_store(
    store: FeatureStore,
    groups: AttributeGroups,
    ids: Mapping[Group, Tensor],
    gather: Gatherer,
    names: Sequence[str] | None = None,
) -> dict[Group, dict[str, Tensor]]:
    """Reads attributes from a feature store in one request.

    Args:
        store: the feature store.
        groups: says whose rows each attribute has.
        ids: the nodes and the edges whose attributes are read, by group.
        gather: counts the bytes.
        names: the attributes that are read; None reads all.

    Returns:
        The attributes of each group by name.
    """
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
