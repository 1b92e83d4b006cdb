"""Minibatches before and after fetching: keys, attributes by group, and whose bytes are counted."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

from pyg_batchgnn import nn
from pyg_batchgnn.data import EDGES, NODES, Schema
from pyg_batchgnn.sample import (
    AttributeRows,
    Layout,
    MacrobatchSampler,
    Minibatch,
    Placement,
    SampledMinibatch,
    SamplingPlan,
    Seeds,
    Subgraph,
)
from pyg_batchgnn.store import CscGraph, TypedGraph
from tests.support.accuracy import distance
from tests.support.layer_cases import batch_cases, layer_edges, sampled, small_graph, table
from tests.support.typed_layers import CITES, SCHEMA, WRITES, tables, typed_minibatch, with_tables

NODE_COUNT = 50


def sampler(layout: Layout = Layout.CSC) -> MacrobatchSampler:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(NODE_COUNT, (2, 400), generator=generator)
    graph = CscGraph.from_edge_index(edges, NODE_COUNT)
    return MacrobatchSampler(graph, SamplingPlan((3, 2)), seed=1, layout=layout)


def sampled_minibatch(layout: Layout = Layout.CSC) -> SampledMinibatch:
    return sampler(layout).sample([torch.tensor([4, 2, 4])], 0)[0]


def test_bytes_that_are_shared_are_not_counted() -> None:
    batch, table = sampled_minibatch(), torch.randn(NODE_COUNT, 8)
    in_place = Minibatch.in_place(batch, {"x": table})
    assert in_place.placement is Placement.IN_PLACE and in_place.nbytes == batch.nbytes
    row = torch.arange(batch.num_nodes)
    block = AttributeRows({"x": table[batch.node]}, row, Placement.BLOCK)
    copied = Minibatch.of(batch, {NODES: block})
    assert copied.nbytes == batch.nbytes + row.nbytes
    assert torch.equal(copied.attribute("x"), in_place.attribute("x"))
    own = AttributeRows({"w": torch.randn(batch.num_edges)}, None, Placement.MINIBATCH)
    with_edges = Minibatch.of(batch, {NODES: block, EDGES: own})
    assert with_edges.nbytes == copied.nbytes + 4 * batch.num_edges
    assert with_edges.edge_block.keys() == {"w"}


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (torch.randn(3, 2), "has 3 rows"),
        (torch.randn(()), "one number"),
        (torch.randn(NODE_COUNT, 2).to_sparse(), "dense"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(table: Tensor, problem: str) -> None:
    batch = sampled_minibatch()
    in_place = Minibatch.in_place(batch, {"x": torch.randn(NODE_COUNT, 8), "bad": table})
    with pytest.raises(ValueError, match=problem):
        in_place.attribute("bad")
    assert in_place.x.shape == (batch.num_nodes, 8)


def test_tables_of_one_block_have_as_many_rows() -> None:
    batch = sampled_minibatch()
    tables = {"x": torch.randn(batch.num_nodes, 8), "bad": torch.randn(NODE_COUNT, 2)}
    row = torch.arange(batch.num_nodes)
    with pytest.raises(ValueError, match="different numbers of rows"):
        Minibatch.of(batch, {NODES: AttributeRows(tables, row, Placement.BLOCK)}).attribute("bad")
    with pytest.raises(ValueError, match=f"nodes of a minibatch|{batch.num_nodes}"):
        Minibatch.of(batch, {NODES: AttributeRows(tables, row[:-1], Placement.BLOCK)}).attribute("x")
    edges = AttributeRows({"w": torch.randn(2)}, None, Placement.MINIBATCH)
    with pytest.raises(ValueError, match=f"2 rows.*{batch.num_edges} edges"):
        _ = Minibatch.of(batch, {EDGES: edges}).edge_block


def test_without_attributes_there_is_nothing_to_read() -> None:
    batch = Minibatch.of(sampled_minibatch(), {})
    assert batch.row is None and batch.placement is None
    assert not batch.block and not batch.edge_block


@pytest.mark.parametrize("make", [torch.Tensor.clone, lambda table: table.T.contiguous().T])
@pytest.mark.parametrize("shape", [(9,), (9, 3), (9, 2, 2)])
def test_rows_are_those_of_torch(shape: tuple[int, ...], make: Callable[[Tensor], Tensor]) -> None:
    table, row = torch.arange(math.prod(shape)).view(shape), torch.tensor([8, 0, 0, 3])
    rows = AttributeRows.in_place({"y": make(table) if len(shape) == 2 else table}, row)
    for count in (None, 0, 2):
        assert torch.equal(rows.gather("y", count), table[row][:count])
    learned = torch.rand(9, 2, requires_grad=True)
    AttributeRows.in_place({"y": learned}, row).gather("y").sum().backward()
    assert learned.grad is not None and learned.grad[:, 0].tolist() == [2, 0, 0, 1, 0, 0, 0, 0, 1]


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
    minibatch, x = Minibatch.in_place(sampled([3, 1, 4, 3]), {"x": table()}), None
    for number, conv in enumerate(pygs.convs, 1):
        layer = minibatch.layer(number)
        x = conv(layer.rows(x), layer.edge_index)
        x = x.relu() if number < 3 else x
    assert distance(x, ours(minibatch)) < 1e-5


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


def test_an_attribute_of_a_type() -> None:
    minibatch = with_tables(typed_minibatch([3, 1], [2]))
    for name in tables():
        rows = minibatch.attributes_of(name).gather("x")
        assert torch.equal(minibatch.attribute("x", of=name), rows)
        assert torch.equal(minibatch.attribute("x", 1, name), rows[:1])
    with pytest.raises(KeyError, match="rows of 'paper' carry no attribute 'y'"):
        minibatch.attribute("y", of="paper")
    with pytest.raises(KeyError, match="carries no attributes of"):
        minibatch.attribute("weight", of=CITES)
    with pytest.raises(
        TypeError, match=r"no minibatch\['paper'\]; read minibatch.attribute\('x', of='paper'\)"
    ):
        minibatch["paper"]


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


def test_types_that_a_minibatch_does_not_reach_share_their_parts() -> None:
    schema = Schema(("a", "b", "c"), (("b", "to", "a"), ("a", "to", "c"), ("c", "to", "b")))
    edges = {names: torch.tensor([[0, 1], [1, 1]]) for names in schema.relations}
    graph = TypedGraph.from_edge_indices(schema, {"a": 2, "b": 2, "c": 2}, edges)
    sampler = MacrobatchSampler(graph, SamplingPlan((2,)), layout=Layout.CSC)
    (minibatch,) = sampler.sample([Seeds.of(schema, {"a": torch.tensor([1])})], 0)
    assert list(minibatch.reached_nodes) == [0, 1] and list(minibatch.reached_edges) == [0]
    assert minibatch.edges[1] is minibatch.edges[2] and minibatch.edges[1].num_edges == 0
    assert minibatch.nodes_of("c").node.numel() == 0
    assert (minibatch.num_nodes, minibatch.num_edges, minibatch.batch_size) == (3, 2, 1)


def _sampler() -> tuple[MacrobatchSampler, CscGraph]:
    graph = CscGraph.from_edge_index(torch.randint(20, (2, 100)), 20)
    return MacrobatchSampler(graph, SamplingPlan((3,))), graph


def test_a_sampler_can_be_copied_after_it_has_sampled() -> None:
    sampler, _ = _sampler()
    expected = sampler.sample([torch.arange(5)], 0)[0]
    for other in (copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
        assert torch.equal(other.sample([torch.arange(5)], 0)[0].edge_index, expected.edge_index)


def test_arrays_that_are_resized_or_replaced_after_sampling_are_refused() -> None:
    for change in (lambda one: one.resize_(10), lambda one: setattr(one, "data", one.clone()[:10])):
        sampler, graph = _sampler()
        sampler.sample([torch.arange(5)], 0)
        change(graph.indices)
        with pytest.raises((ValueError, RuntimeError), match=r"indices|resized"):
            sampler.sample([torch.arange(5)], 0)


def test_inference_tensors_are_checked_at_every_call() -> None:
    with torch.inference_mode():
        indptr, indices = torch.tensor([0, 2, 2]), torch.tensor([0, 1])
    sampler = MacrobatchSampler(CscGraph.from_csc(indptr, indices), SamplingPlan((-1,)))
    assert sampler.sample([torch.tensor([0])], 0)[0].num_edges == 2
    indices.numpy()[0] = 7
    with pytest.raises(IndexError, match="7"):
        sampler.sample([torch.tensor([0])], 0)
