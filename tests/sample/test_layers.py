"""Layers of minibatches for PyG's convolutions, beside the native ones."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg

from pyg_batchgnn import nn
from pyg_batchgnn.sample import Layout, MacrobatchSampler, Minibatch, SamplingPlan, Subgraph
from tests.support.layer_cases import batch_cases, layer_edges, relative_error, sampled, small_graph, table
from tests.support.typed_layers import (
    CITES,
    SCHEMA,
    WRITES,
    tables,
    typed_minibatch,
    with_tables,
)


def homogeneous() -> Minibatch:
    return Minibatch.in_place(sampled([3, 1, 4, 3]), {"x": table()})


@pytest.mark.parametrize("subgraph", Subgraph)
@pytest.mark.parametrize("layout", Layout)
def test_a_layer_is_a_prefix(layout: Layout, subgraph: Subgraph) -> None:
    plan = SamplingPlan((4, 3, 2), subgraph=subgraph)
    sampler = MacrobatchSampler(small_graph(), plan, seed=5, layout=layout)
    (found,) = sampler.sample([torch.tensor([3, 1, 4, 3])], 0)
    minibatch = Minibatch.in_place(found, {"x": table()})
    for number in (1, 2, 3):
        layer = minibatch.layer(number)
        edges, sources, targets = layer_edges(minibatch, number)
        assert (layer.num_sources, layer.num_targets) == (sources, targets)
        assert torch.equal(layer.edge_index, edges)
        assert [len(one) for one in layer.rows()] == [sources, targets]
        assert torch.equal(layer.rows()[0], minibatch.x[:sources])


def test_pygs_layers_compute_what_native_ones_do() -> None:
    torch.manual_seed(0)
    ours = nn.SAGE(12, 8, 3, 5)
    pygs = pyg.GraphSAGE(12, 8, 3, 5)
    pygs.load_state_dict(ours.state_dict())
    minibatch, x = homogeneous(), None
    for number, conv in enumerate(pygs.convs, 1):
        layer = minibatch.layer(number)
        x = conv(layer.rows(x), layer.edge_index)
        x = x.relu() if number < 3 else x
    assert relative_error(x, ours(minibatch)) < 1e-5


def test_a_typed_minibatch() -> None:
    minibatch = with_tables(typed_minibatch([3, 1], [2]))
    for relation in SCHEMA.relations:
        for number in (1, 2):
            layer, graph = minibatch.layer(number, relation), nn.layer_graph(minibatch, number, relation)
            assert (layer.num_sources, layer.num_targets) == (graph.num_sources, graph.num_targets)
            assert torch.equal(layer.edge_index, torch.stack([graph.indices.long(), graph.targets]))
            source, target = layer.rows(
                {name: minibatch.attributes_of(name).gather("x") for name in tables()}
            )
            features = layer.rows()
            assert torch.equal(source, features[0]) and torch.equal(target, features[1])
            assert source.size(1) == tables()[relation[0]].size(1)


def test_attributes_of_edges() -> None:
    from torch_geometric.data import HeteroData

    from pyg_batchgnn import MacrobatchNeighborLoader

    data = HeteroData()
    data["paper"].x, data["author"].num_nodes = torch.randn(20, 3), 10
    data[CITES].edge_index = torch.randint(20, (2, 80))
    data[CITES].edge_attr = torch.arange(80.0)
    data[WRITES].edge_index = torch.stack([torch.randint(10, (40,)), torch.randint(20, (40,))])
    (minibatch,) = MacrobatchNeighborLoader(
        data, [3, 2], input_nodes="paper", batch_size=20, seed=1, export="native"
    )
    layer = minibatch.layer(2, CITES)
    edges = minibatch.edges_of(CITES).edge[: layer.edge_index.size(1)]
    assert torch.equal(layer.edge_attribute(), edges.float())
    with pytest.raises(KeyError, match=r"edges of .* carry no attribute 'weight'"):
        layer.edge_attribute("weight")
    with pytest.raises(KeyError, match="nodes of 'author' carry no attribute 'x'"):
        minibatch.layer(1, WRITES).rows()


def test_refused() -> None:
    minibatch = with_tables(typed_minibatch([3, 1]))
    with pytest.raises(ValueError, match="say which relation"):
        minibatch.layer(1)
    with pytest.raises(KeyError, match="no relation"):
        minibatch.layer(1, ("a", "b", "c"))
    for number in (0, 3):
        with pytest.raises(ValueError, match=f"layers 1 to 2, there is no layer {number}"):
            minibatch.layer(number, CITES)
    layer = minibatch.layer(1, WRITES)
    with pytest.raises(KeyError, match="reads rows of 'author'"):
        layer.rows({"paper": torch.zeros(100, 2)})
    with pytest.raises(ValueError, match="x has 1 rows of 'author'"):
        layer.rows({"author": torch.zeros(1, 2), "paper": torch.zeros(100, 2)})
    with pytest.raises(ValueError, match="is an induced subgraph, there is no layer 0"):
        Minibatch.in_place(batch_cases()["induced subgraph"], {}).layer(0)
