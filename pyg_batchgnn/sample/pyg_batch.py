"""Native minibatches as the batches of PyG's loaders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler.base import SubgraphType

from pyg_batchgnn.data import FEATURES, Group
from pyg_batchgnn.sample.attribute_rows import AttributeRows
from pyg_batchgnn.sample.links import TripletLinks
from pyg_batchgnn.sample.negatives import NegativeMode
from pyg_batchgnn.sample.pyg_info import SampleInfo, SeedInfo
from pyg_batchgnn.sample.pyg_link_info import LinkInfo
from pyg_batchgnn.sample.pyg_output import Names, PygForm
from pyg_batchgnn.sample.sampled import SampledMinibatch


def pyg_batch(minibatch: SampledMinibatch, attributes: Mapping[Group, AttributeRows]) -> Data | HeteroData:
    """Returns a minibatch as PyG's batch, with copies of its attributes.

    Args:
        minibatch: the minibatch, whose node ids are original ones.
        attributes: the attributes of its nodes and edges by group.

    Returns:
        A ``Data`` for a homogeneous graph, else a ``HeteroData``.

    Raises:
        ValueError: an attribute has not one row per node or edge.
    """
    schema = minibatch.schema
    is_plain = not schema.has_names
    batch: Any = Data() if is_plain else HeteroData()
    for group, nodes in zip(schema.node_groups, minibatch.nodes, strict=True):
        store = batch if is_plain else batch[group.name]
        _put(store, attributes.get(group), nodes.node.numel(), "node")
        if FEATURES not in store:
            store.num_nodes = nodes.node.numel()
    for group, edges in zip(schema.edge_groups, minibatch.edges, strict=True):
        store = batch if is_plain else batch[group.name]
        store.edge_index = edges.edge_index
        _put(store, attributes.get(group), edges.num_edges, "edge")
    if minibatch.input_id is None and not minibatch.links:
        for number in minibatch.seed_types:
            store = batch if is_plain else batch[schema.node_types[number]]
            store.batch_size = minibatch.nodes[number].nodes_per_hop[0]
    subgraph = SubgraphType.directional if minibatch.has_layers else SubgraphType.induced
    form = PygForm(Names.NONE if is_plain else Names.TYPES, subgraph)
    _info(minibatch).add(batch, form.output(minibatch))
    return batch


def _put(store: Any, rows: AttributeRows | None, count: int, kind: str) -> None:
    """Copies the attributes of nodes or edges into their store."""
    for name in () if rows is None else rows.tables:
        assert rows is not None
        value = rows.gather(name)
        if len(value) != count:
            raise ValueError(
                f"{kind} attribute {name!r} has {len(value)} rows, but the minibatch has {count} {kind}s"
            )
        store[name] = value


def _info(minibatch: SampledMinibatch) -> SampleInfo:
    """Returns what adds the entries about seeds or about links."""
    if not minibatch.links:
        return SeedInfo([minibatch.schema.node_types[number] for number in minibatch.seed_types])
    modes = [
        (one.relation, NegativeMode.TRIPLET if isinstance(one, TripletLinks) else None)
        for one in minibatch.links
    ]
    return LinkInfo(modes, any(one.time is not None for one in minibatch.links))
