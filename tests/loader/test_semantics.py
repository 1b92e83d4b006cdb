"""The subgraphs that PyG's users expect, against obvious references; models on top of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCN, GraphSAGE
from torch_geometric.utils import k_hop_subgraph, to_torch_csr_tensor

from pyg_batchgnn import MacrobatchLinkNeighborLoader
from tests.support.loader_cases import NODES, contents, make_data, make_loader


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_all_neighbours_are_the_k_hop_subgraph(hops: int) -> None:
    data = make_data(edges=400)
    for batch in make_loader(data, [-1] * hops, batch_size=8, input_nodes=torch.randperm(NODES)[:60]):
        seeds = batch.n_id[: batch.batch_size]
        nodes, _, _, _ = k_hop_subgraph(seeds, hops, data.edge_index, num_nodes=NODES)
        assert batch.n_id.sort().values.tolist() == nodes.tolist()
        inner, _, _, _ = k_hop_subgraph(seeds, hops - 1, data.edge_index, num_nodes=NODES)
        into_inner = torch.isin(data.edge_index[1], inner)
        assert batch.e_id.sort().values.tolist() == into_inner.nonzero().view(-1).tolist()


def test_each_node_is_expanded_once_at_the_hop_where_it_is_first_seen() -> None:
    data = make_data()
    for batch in make_loader(data, [5, 4, 3]):
        nodes, edges = batch.num_sampled_nodes, batch.num_sampled_edges
        node_hop = torch.repeat_interleave(torch.arange(4), torch.tensor(nodes))
        edge_hop = torch.repeat_interleave(torch.arange(3), torch.tensor(edges))
        source, destination = batch.edge_index
        assert torch.equal(node_hop[destination], edge_hop)
        assert (node_hop[source] <= edge_hop + 1).all()
        first = torch.full((batch.num_nodes,), batch.num_edges).scatter_reduce(
            0, source, torch.arange(batch.num_edges), "amin"
        )
        assert (first[batch.batch_size :].diff() > 0).all()  # discovery order


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [0, 1, 3, 1000])
def test_fanouts_are_kept(fanout: int, replace: bool) -> None:
    data = make_data()
    degree = torch.bincount(data.edge_index[1], minlength=NODES)
    for batch in make_loader(data, [fanout], replace=replace):
        picked = torch.bincount(batch.edge_index[1], minlength=batch.num_nodes)[: batch.batch_size]
        of_seeds = degree[batch.n_id[: batch.batch_size]]
        expected = torch.where(of_seeds > 0, fanout, 0) if replace else of_seeds.clamp(max=fanout)
        assert torch.equal(picked, expected)
        assert replace or batch.e_id.unique().numel() == batch.num_edges


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_without_hops_a_batch_is_its_seeds(export: str) -> None:
    data = make_data()
    for batch in make_loader(data, [], export=export, shuffle=True):
        found = contents(batch)
        assert torch.equal(found["n_id"], found["input_id"])
        assert found["num_sampled_nodes"] == [batch.batch_size] and found["num_sampled_edges"] == []
        assert found["edge_index"].shape == (2, 0) and torch.equal(found["x"], data.x[found["n_id"]])
    (link,) = MacrobatchLinkNeighborLoader(data, [], data.edge_index[:, :9], batch_size=9)
    assert torch.equal(link.n_id[link.edge_label_index], data.edge_index[:, :9]) and link.num_edges == 0


def test_a_graph_without_relations() -> None:
    data = HeteroData(a={"x": torch.arange(5.0)}, b={"num_nodes": 3})
    for fanouts in ([], [3, 2]):
        for batch in make_loader(data, fanouts, input_nodes="a", batch_size=2):
            assert torch.equal(batch["a"].x, data["a"].x[batch["a"].input_id]) and batch["b"].num_nodes == 0
            assert batch["a"].num_sampled_nodes == [batch["a"].batch_size] + [0] * len(fanouts)


@pytest.mark.parametrize("replace", [False, True])
def test_duplicate_seeds_keep_their_rows_and_edges(replace: bool) -> None:
    data = make_data()
    seeds = torch.tensor([5, 9, 5, 5, 200, 9])
    (batch,) = make_loader(data, [3, 2], input_nodes=seeds, replace=replace)
    assert batch.n_id[:6].tolist() == seeds.tolist() and batch.batch_size == 6
    assert batch.n_id.numel() == sum(batch.num_sampled_nodes)
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
    into = [batch.e_id[batch.edge_index[1] == row].tolist() for row in range(6)]
    assert into[0] == into[2] == into[3] and into[1] == into[5]
    assert not torch.isin(batch.edge_index[0], torch.tensor([2, 3, 5])).any()  # a source is the first one


ODD_GRAPHS = {
    "no edges": Data(x=torch.randn(5, 2), edge_index=torch.empty(2, 0, dtype=torch.long)),
    "no edge_index": Data(x=torch.randn(5, 2)),
    "self loops": Data(x=torch.randn(2, 2), edge_index=torch.tensor([[0, 1, 1], [0, 1, 1]])),
    "parallel edges": Data(x=torch.randn(3, 2), edge_index=torch.tensor([[0] * 9, [1] * 9])),
    "one node": Data(x=torch.randn(1, 2), edge_index=torch.empty(2, 0, dtype=torch.long)),
    "no nodes": Data(x=torch.randn(0, 2), edge_index=torch.empty(2, 0, dtype=torch.long)),
}


@pytest.mark.parametrize("export", ["pyg", "native"])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", ODD_GRAPHS)
def test_odd_graphs(name: str, shuffle: bool, export: str) -> None:
    data = ODD_GRAPHS[name]
    loader = make_loader(
        data, [2, 2], batch_size=2, shuffle=shuffle, export=export, macrobatch_size="auto", fetch_size="auto"
    )
    seen: list[Any] = []
    for batch in loader:
        if export == "pyg" and "edge_index" in data:
            assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        seen += (batch.n_id if export == "pyg" else batch.node)[: batch.batch_size].tolist()
    assert sorted(seen) == list(range(data.num_nodes))


# Models ###########################################################################################


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("kwargs", [{}, {"num_workers": 1}, {"prefetch": 1}])
@pytest.mark.parametrize("model", [GraphSAGE, GCN])
def test_layerwise_inference(model: Any, kwargs: dict[str, Any], cache: bool) -> None:
    data = make_data()
    data.x = torch.randn(NODES, 4)
    if model is GCN:  # whose normalisation needs every edge of a node, self loops included
        net = model(4, 8, num_layers=2, out_channels=3, normalize=False).eval()
    else:
        net = model(4, 8, num_layers=2, out_channels=3).eval()
    with torch.no_grad():
        out = net.inference(make_loader(data, [-1], **kwargs), cache=cache)
        torch.testing.assert_close(out, net(data.x, data.edge_index), rtol=1e-4, atol=1e-4)


def test_layerwise_inference_with_adj_t() -> None:
    edge_index = make_data().edge_index.unique(dim=1)
    adj_t = to_torch_csr_tensor(edge_index.flip(0), size=(NODES, NODES))
    data = Data(x=torch.randn(NODES, 4), adj_t=adj_t)
    net = GraphSAGE(4, 8, num_layers=2, out_channels=3).eval()
    with torch.no_grad():
        out = net.inference(make_loader(data, [-1]))
        torch.testing.assert_close(out, net(data.x, adj_t), rtol=1e-4, atol=1e-4)
