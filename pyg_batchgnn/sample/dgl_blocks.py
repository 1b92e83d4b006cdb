"""Native minibatches as the blocks of DGL, one per layer.

A block has the edges of one layer. Its targets are the first of its sources, which is how local ids
are given here: nothing is numbered anew. Every block of an induced subgraph has all its edges, and
its targets are all its nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pyg_batchgnn.sample.attribute_rows import AttributeRows
from pyg_batchgnn.types import Group, LayerHops, SampledMinibatch


def dgl_blocks(minibatch: SampledMinibatch, attributes: Mapping[Group, AttributeRows]) -> list[Any]:
    """Returns the blocks of a minibatch, the layer nearest the input first."""
    try:
        import dgl
    except ImportError as error:
        raise ImportError(
            f"to_dgl() makes blocks of DGL, which cannot be imported here ({error}); install it, for "
            f"instance with 'pip install dgl==1.1.3'"
        ) from error
    indices = [edges.indices.to(torch.int64) for edges in minibatch.edges]
    layers = range(1, len(minibatch.nodes[0].nodes_per_hop))
    blocks = [_block(dgl, minibatch, indices, LayerHops.of(minibatch.num_layers, layer)) for layer in layers]
    if blocks:
        _put_nodes(minibatch, attributes, blocks)
        _put_edges(minibatch, attributes, blocks)
    return blocks


def _block(dgl: Any, minibatch: SampledMinibatch, indices: list[torch.Tensor], prefix: LayerHops) -> Any:
    schema = minibatch.schema
    targets = [prefix.targets(nodes.nodes_per_hop) for nodes in minibatch.nodes]
    sources = [prefix.sources(nodes.nodes_per_hop) for nodes in minibatch.nodes]
    csc = [
        (
            "csc",
            (
                edges.indptr[: targets[target] + 1],
                own[: prefix.edges(edges.edges_per_hop, edges.num_edges)],
                _NO_IDS,
            ),
        )
        for edges, own, target in zip(minibatch.edges, indices, schema.target_types, strict=True)
    ]
    if not schema.has_names:
        block = dgl.create_block(csc[0], sources[0], targets[0])
    else:
        names = schema.node_types
        block = dgl.create_block(
            dict(zip(schema.relations, csc, strict=True)),
            dict(zip(names, sources, strict=True)),
            dict(zip(names, targets, strict=True)),
        )
    for nodes, name, source, target in zip(
        minibatch.nodes, _type_names(minibatch), sources, targets, strict=True
    ):
        block.srcnodes[name].data[dgl.NID] = nodes.node[:source]
        block.dstnodes[name].data[dgl.NID] = nodes.node[:target]
    for edges, relation in zip(minibatch.edges, _relation_names(minibatch), strict=True):
        if edges.edge is not None:
            block.edges[relation].data[dgl.EID] = edges.edge[
                : prefix.edges(edges.edges_per_hop, edges.num_edges)
            ]
    return block


def _put_nodes(
    minibatch: SampledMinibatch, attributes: Mapping[Group, AttributeRows], blocks: list[Any]
) -> None:
    for group, name in zip(minibatch.schema.node_groups, _type_names(minibatch), strict=True):
        rows = attributes.get(group)
        for attribute in () if rows is None else rows.tables:
            assert rows is not None
            blocks[0].srcnodes[name].data[attribute] = rows.gather(attribute)
            targets = blocks[-1].num_dst_nodes(name)
            blocks[-1].dstnodes[name].data[attribute] = rows.gather(attribute, targets)


def _put_edges(
    minibatch: SampledMinibatch, attributes: Mapping[Group, AttributeRows], blocks: list[Any]
) -> None:
    for group, name in zip(minibatch.schema.edge_groups, _relation_names(minibatch), strict=True):
        rows = attributes.get(group)
        for attribute in () if rows is None else rows.tables:
            assert rows is not None
            values = rows.gather(attribute)
            for block in blocks:
                block.edges[name].data[attribute] = values[: block.num_edges(name)]


def _type_names(minibatch: SampledMinibatch) -> tuple[str, ...]:
    return minibatch.schema.node_types if minibatch.schema.has_names else ("_N",)


def _relation_names(minibatch: SampledMinibatch) -> tuple[Any, ...]:
    return minibatch.schema.relations if minibatch.schema.has_names else (("_N", "_E", "_N"),)


_NO_IDS = torch.empty(0, dtype=torch.int64)
