"""DGL blocks of native minibatches: DGL's layers compute on them what PyG's compute."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as pyg

from pyg_batchgnn import MacrobatchLinkNeighborLoader, Minibatch
from tests.support import hetero_cases, loader_cases
from tests.support.hetero_cases import CITES, COUNTS, WRITES, make_hetero

FEATURES, OUT = 4, 6


def test_without_dgl_an_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dgl", None)
    with pytest.raises(ImportError, match=r"pip install dgl==1\.1\.3"):
        homogeneous().to_dgl()


def homogeneous(**kwargs: Any) -> Minibatch:
    """Returns a minibatch with duplicate seeds, of a graph with isolated nodes."""
    data = loader_cases.make_data(edges=600)
    seeds = torch.tensor([5, 5, 9, 200, 3, 9])
    minibatch: Minibatch = next(
        iter(loader_cases.make_loader(data, (4, 3, 2), input_nodes=seeds, export="native", **kwargs))
    )
    return minibatch


def typed(**kwargs: Any) -> Minibatch:
    """Returns a minibatch whose types all have features, two of which are never reached."""
    data = make_hetero()
    for name, count in COUNTS.items():
        data[name].x = torch.randn(count, FEATURES)
    kwargs = {"input_nodes": hetero_cases.BOTH, "batch_size": 30, **kwargs}
    minibatch: Minibatch = next(iter(hetero_cases.make_loader(data, export="native", **kwargs)))
    return minibatch


def layers_of(minibatch: Minibatch) -> list[tuple[int, int, Tensor]]:
    """Returns the sources, the targets and the edges of each layer, the input's first."""
    nodes, edges = minibatch.nodes_per_hop, minibatch.edges_per_hop
    if not minibatch.has_layers:
        return [(minibatch.num_nodes, minibatch.num_nodes, minibatch.edge_index)] * (len(nodes) - 1)
    return [
        (sum(nodes[: hop + 1]), sum(nodes[:hop]), minibatch.edge_index[:, : sum(edges[:hop])])
        for hop in range(len(edges), 0, -1)
    ]


@pytest.mark.parametrize("subgraph", ["directional", "induced"])
@pytest.mark.parametrize("disjoint", [False, True])
def test_blocks_have_the_layers_of_the_minibatch(disjoint: bool, subgraph: str) -> None:
    dgl = pytest.importorskip("dgl")
    minibatch = homogeneous(disjoint=disjoint, subgraph_type=subgraph)
    blocks = minibatch.to_dgl()
    assert len(blocks) == 3
    for block, (sources, targets, edges) in zip(blocks, layers_of(minibatch), strict=True):
        assert block.is_block
        assert (block.num_src_nodes(), block.num_dst_nodes()) == (sources, targets)
        assert torch.equal(torch.stack(block.edges(order="eid")), edges)
        assert torch.equal(block.srcdata[dgl.NID], minibatch.node[:sources])
        assert torch.equal(block.dstdata[dgl.NID], minibatch.node[:targets])
        assert minibatch.edge is not None
        assert torch.equal(block.edata[dgl.EID], minibatch.edge[: edges.size(1)])
        assert torch.equal(block.edata["edge_attr"], minibatch.attribute("edge_attr")[: edges.size(1)])
    assert torch.equal(blocks[0].srcdata["x"], minibatch.x)
    assert torch.equal(blocks[-1].dstdata["y"], minibatch.y[: blocks[-1].num_dst_nodes()])


def paired_sage() -> tuple[Any, Any]:
    ours = pytest.importorskip("dgl.nn").SAGEConv(FEATURES, OUT, "mean")
    theirs = pyg.SAGEConv(FEATURES, OUT)
    theirs.lin_l.weight, theirs.lin_r.weight = ours.fc_neigh.weight, ours.fc_self.weight
    theirs.lin_l.bias.data = torch.zeros(OUT) if ours.fc_self.bias is None else ours.fc_self.bias.data
    return ours, theirs


@pytest.mark.parametrize("disjoint", [False, True])
def test_typed_blocks(disjoint: bool) -> None:
    dgl = pytest.importorskip("dgl")
    minibatch = typed(disjoint=disjoint)
    schema = minibatch.schema
    pairs = {relation: paired_sage() for relation in schema.relations}
    blocks = minibatch.to_dgl()
    assert len(blocks) == 2 and set(blocks[0].ntypes) == set(schema.node_types)
    x = {name: torch.randn(minibatch.nodes_of(name).node.numel(), FEATURES) for name in schema.node_types}
    for hop, block in zip((2, 1), blocks, strict=True):
        counts = {name: minibatch.nodes_of(name).nodes_per_hop for name in schema.node_types}
        inputs = {name: x[name][: sum(counts[name][: hop + 1])] for name in x}
        targets = {name: x[name][: sum(counts[name][:hop])] for name in x}
        for relation, (ours, theirs) in pairs.items():
            source, _, target = relation
            edges = minibatch.edges_of(relation)
            index = edges.edge_index[:, : sum(edges.edges_per_hop[:hop])]
            assert torch.equal(torch.stack(block.edges(etype=relation, order="eid")), index)
            found = ours(block[relation], (inputs[source], targets[target]))
            torch.testing.assert_close(found, theirs((inputs[source], targets[target]), index))
        nodes = minibatch.nodes_of("paper").node[: len(inputs["paper"])]
        assert torch.equal(block.srcnodes["paper"].data[dgl.NID], nodes)
    assert torch.equal(blocks[0].srcnodes["paper"].data["x"], minibatch.to_data()["paper"].x)
    edge_attr = minibatch.to_data()[CITES].edge_attr
    assert torch.equal(blocks[0].edges[CITES].data["edge_attr"], edge_attr)


def test_blocks_of_links() -> None:
    pytest.importorskip("dgl")
    data = make_hetero()
    loader = MacrobatchLinkNeighborLoader(
        data, [3, 2], (WRITES, None), neg_sampling="binary", batch_size=16, seed=0, export="native"
    )
    minibatch = next(iter(loader))
    seeds = minibatch.nodes_of("author").nodes_per_hop[0]
    assert minibatch.to_dgl()[-1].num_dst_nodes("author") == seeds
    assert int(minibatch.links[0].index[0].max()) < seeds
