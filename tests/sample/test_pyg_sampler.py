"""`PygNeighborSampler` inside PyG's own loaders: batches are subgraphs of the input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader, NodeLoader
from torch_geometric.sampler import BaseSampler, NodeSamplerInput
from torch_geometric.utils import trim_to_layer

from pyg_batchgnn.sample import PygNeighborSampler, Replacement
from pyg_batchgnn.store import CscGraph
from tests.support.graph_strategies import Coo
from tests.support.reference_sampler import reference_sample

NUM_NODES, NUM_EDGES = 120, 900


@pytest.fixture
def data() -> Data:
    """Attributes name their node or edge; edges are in no order; nodes 100..119 are isolated."""
    generator = np.random.default_rng(12)
    edge_index = torch.from_numpy(generator.integers(0, 100, (2, NUM_EDGES)))
    x = torch.stack([torch.arange(NUM_NODES), torch.arange(NUM_NODES) ** 2], dim=1).float()
    edge_attr = torch.stack([torch.arange(NUM_EDGES), *edge_index], dim=1)
    return Data(x=x, edge_index=edge_index, edge_attr=edge_attr, y=torch.arange(NUM_NODES) % 7)


def sampler_of(
    data: Data, num_neighbors: list[int], replace: bool = False, seed: int = 4
) -> PygNeighborSampler:
    graph = CscGraph.from_edge_index(data.edge_index, data.num_nodes)
    return PygNeighborSampler(graph, num_neighbors, replace=replace, seed=seed)


def assert_subgraph(batch: Data, data: Data) -> None:
    """Checks that each edge of the batch is the input edge of its id, between its nodes."""
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.y, data.y[batch.n_id])
    assert batch.e_id.dtype == torch.int64 and batch.edge_index.dtype == torch.int64
    assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("num_neighbors", [[4], [5, 3], [-1, 2, 0], [0]])
def test_node_loader(data: Data, num_neighbors: list[int], replace: bool) -> None:
    nodes = torch.arange(NUM_NODES - 1, -1, -3)
    loader = NodeLoader(data, sampler_of(data, num_neighbors, replace), input_nodes=nodes, batch_size=16)
    seen = []
    for batch in loader:
        assert_subgraph(batch, data)
        assert batch.batch_size == batch.num_sampled_nodes[0]
        assert type(batch.num_sampled_nodes) is list and type(batch.num_sampled_edges) is list
        assert sum(batch.num_sampled_nodes) == batch.num_nodes
        assert sum(batch.num_sampled_edges) == batch.num_edges
        assert torch.equal(batch.n_id[: batch.batch_size], nodes[batch.input_id])
        seen.append(batch.n_id[: batch.batch_size])
    assert torch.equal(torch.cat(seen), nodes)


@pytest.mark.parametrize("replace", [False, True])
def test_duplicate_seeds(data: Data, replace: bool) -> None:
    """Every occurrence keeps its row and its own in-edges, and n_id and edge_index agree."""
    nodes = torch.tensor([5, 7, 5, 110, 5, 7])
    loader = NodeLoader(data, sampler_of(data, [3, 2], replace), input_nodes=nodes, batch_size=6)
    (batch,) = loader
    assert_subgraph(batch, data)
    assert batch.batch_size == 6 and torch.equal(batch.n_id[:6], nodes)
    others = batch.n_id[6:]
    assert others.unique().numel() == others.numel() and not torch.isin(others, nodes).any()
    in_edges = [batch.e_id[batch.edge_index[1] == row].tolist() for row in range(6)]
    assert in_edges[0] == in_edges[2] == in_edges[4] and in_edges[1] == in_edges[5]
    assert len(in_edges[0]) == 3 and in_edges[3] == []
    assert not torch.isin(batch.edge_index[0], torch.tensor([2, 4, 5])).any()  # sources are first occurrences


@pytest.mark.parametrize("replace", [False, True])
def test_batches_are_the_references(data: Data, replace: bool) -> None:
    lists = Coo(data.edge_index, NUM_NODES).lists()
    loader = NodeLoader(data, sampler_of(data, [4, 3], replace, seed=9), batch_size=25)
    replacement = Replacement.WITH if replace else Replacement.WITHOUT
    for batch in loader:
        seeds = batch.n_id[: batch.batch_size].tolist()
        expected = reference_sample(*lists, seeds, [4, 3], replacement, seed=9, epoch=0)
        assert batch.n_id.tolist() == expected.node
        assert batch.e_id.tolist() == expected.edge
        assert batch.edge_index[0].tolist() == expected.indices
        assert batch.num_sampled_nodes == expected.nodes_per_hop
        assert batch.num_sampled_edges == expected.edges_per_hop


def test_neighbor_loader_takes_it(data: Data) -> None:
    sampler = sampler_of(data, [3, 3])
    loader = NeighborLoader(data, [3, 3], neighbor_sampler=sampler, batch_size=30, input_nodes=None)
    batches = list(loader)
    assert len(batches) == 4
    for batch in batches:
        assert_subgraph(batch, data)


def test_trim_to_layer_takes_the_batches(data: Data) -> None:
    """Hops are prefixes: trimming a layer away leaves the edges into nodes of the hops before."""
    (batch,) = NodeLoader(data, sampler_of(data, [4, 3]), input_nodes=torch.arange(10), batch_size=10)
    arguments = (batch.num_sampled_nodes, batch.num_sampled_edges, batch.x, batch.edge_index, batch.edge_attr)
    x, edge_index, edge_attr = trim_to_layer(1, *arguments)
    assert x.size(0) == sum(batch.num_sampled_nodes[:2])
    assert edge_index.size(1) == batch.num_sampled_edges[0] == edge_attr.size(0)
    assert int(edge_index.max()) < x.size(0) and int(edge_index[1].max()) < batch.batch_size


def test_worker_processes_give_the_same_batches(data: Data) -> None:
    sampler = sampler_of(data, [4, 3])
    alone = list(NodeLoader(data, sampler, batch_size=50))
    workers = list(NodeLoader(data, sampler, batch_size=50, num_workers=2))
    assert len(alone) == len(workers) == 3
    for a, b in zip(alone, workers, strict=True):
        assert torch.equal(a.n_id, b.n_id) and torch.equal(a.e_id, b.e_id)
        assert torch.equal(a.edge_index, b.edge_index)


def test_epoch_changes_the_sample(data: Data) -> None:
    sampler = sampler_of(data, [2, 2])
    inputs = NodeSamplerInput(input_id=None, node=torch.arange(50))
    first = sampler.sample_from_nodes(inputs)
    again = sampler.sample_from_nodes(inputs)
    sampler.epoch = 1
    other = sampler.sample_from_nodes(inputs)
    assert first.edge is not None and again.edge is not None and other.edge is not None
    assert torch.equal(first.edge, again.edge)
    assert first.edge.tolist() != other.edge.tolist()


def test_it_is_a_base_sampler(data: Data) -> None:
    sampler = sampler_of(data, [2])
    assert isinstance(sampler, BaseSampler)
    assert sampler.edge_permutation is None
    inputs = NodeSamplerInput(input_id=None, node=torch.tensor([1, 2]), time=torch.tensor([3, 4]))
    with pytest.raises(ValueError, match="time_attr"):
        sampler.sample_from_nodes(inputs)
