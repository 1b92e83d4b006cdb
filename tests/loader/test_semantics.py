"""The subgraphs that PyG's users expect, whatever the sizes, threads, prefetching and workers."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GraphSAGE
from torch_geometric.utils import k_hop_subgraph

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from tests.support.loader_cases import NODES, assert_same, contents, make_data, make_loader
from tests.support.tiers import each, examples


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


ODD_GRAPHS = {
    "no edges": Data(x=torch.randn(5, 2), edge_index=torch.empty(2, 0, dtype=torch.long)),
    "no edge_index": Data(x=torch.randn(5, 2)),
    "self loops": Data(x=torch.randn(2, 2), edge_index=torch.tensor([[0, 1, 1], [0, 1, 1]])),
    "parallel edges": Data(x=torch.randn(3, 2), edge_index=torch.tensor([[0] * 9, [1] * 9])),
    "one node": Data(x=torch.randn(1, 2), edge_index=torch.empty(2, 0, dtype=torch.long)),
    "no nodes": Data(x=torch.randn(0, 2), edge_index=torch.empty(2, 0, dtype=torch.long)),
}


@each
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


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("kwargs", [{}, {"num_workers": 1}, {"prefetch": 1}])
def test_layerwise_inference(kwargs: dict[str, Any], cache: bool) -> None:
    data = make_data()
    data.x = torch.randn(NODES, 4)
    net = GraphSAGE(4, 8, num_layers=2, out_channels=3).eval()
    with torch.no_grad():
        out = net.inference(make_loader(data, [-1], **kwargs), cache=cache)
        torch.testing.assert_close(out, net(data.x, data.edge_index), rtol=1e-4, atol=1e-4)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Data, dict[str, Any]]:
    nodes = draw(st.integers(1, 40))
    ends = st.integers(0, nodes - 1)
    pairs = draw(st.lists(st.tuples(ends, ends), max_size=120))
    data = Data(
        x=torch.arange(nodes * 3.0).view(nodes, 3),
        edge_index=torch.tensor(pairs, dtype=torch.long).view(-1, 2).t().contiguous(),
    )
    if pairs and len(pairs) != nodes:
        data.edge_attr = torch.arange(len(pairs))
    arguments = {
        "num_neighbors": draw(st.lists(st.sampled_from([-1, 0, 1, 2, 5]), min_size=1, max_size=4)),
        "replace": draw(st.booleans()),
        "batch_size": draw(st.integers(1, 9)),
        "shuffle": draw(st.booleans()),
        "drop_last": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**64 - 1)),
        "input_nodes": draw(
            st.none() | st.lists(ends, max_size=30).map(lambda ids: torch.tensor(ids).long())
        ),
    }
    return data, arguments


@st.composite
def settings_of(draw: st.DrawFn) -> dict[str, Any]:
    macrobatch = draw(st.integers(1, 9))
    return {
        "macrobatch_size": macrobatch,
        "fetch_size": draw(st.integers(1, macrobatch)),
        "threads": draw(st.sampled_from([1, 2, 3, None])),
        "prefetch": draw(st.integers(0, 3)),
    }


@examples(60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(cases(), settings_of(), st.integers(0, 3))
def test_settings_do_not_matter(
    case: tuple[Data, dict[str, Any]], chosen: dict[str, Any], epoch: int
) -> None:
    data, arguments = case
    plain = MacrobatchNeighborLoader(data, **arguments, macrobatch_size=1, fetch_size=1, threads=1)
    plain.set_epoch(epoch)
    other = MacrobatchNeighborLoader(data, **arguments, **chosen)
    other.set_epoch(epoch)
    expected = list(plain)
    assert_same(other, expected)
    native = MacrobatchNeighborLoader(data, **arguments, **chosen, export="native")
    native.set_epoch(epoch)
    assert_same(native, expected, ignore=["e_id", "edge_attr", "num_nodes"])


@pytest.mark.parametrize("calls", [1, 3])
def test_calls_in_between_change_nothing(calls: int) -> None:
    data = make_data()
    expected = list(make_loader(data, shuffle=True))
    for prefetch in (0, 1):
        loader = make_loader(data, shuffle=True, prefetch=prefetch)
        seen = []
        for batch in loader:
            seen.append(batch)
            for position in range(calls):
                loader([position])
        assert_same(seen, expected)


def test_two_iterators_at_a_time() -> None:
    data = make_data()
    epochs = make_loader(data, shuffle=True)
    expected = [list(epochs), list(epochs)]
    for kwargs in ({}, {"prefetch": 1}, {"num_workers": 1}):
        loader = make_loader(data, shuffle=True, **kwargs)
        both = list(zip(loader, loader, strict=True))
        assert_same([one for one, _ in both], expected[0])
        assert_same([other for _, other in both], expected[1])


def test_the_default_generator_is_left_alone() -> None:
    automatic = {"macrobatch_size": "auto", "fetch_size": "auto"}
    ways: list[dict[str, Any]] = [{}, {"prefetch": 1}, {"num_workers": 1}, automatic]
    for loader in [make_loader(make_data(), shuffle=True, **way) for way in ways]:
        before = torch.get_rng_state()
        assert len(list(loader)) == -(-NODES // 32)
        loader([0])
        assert torch.equal(torch.get_rng_state(), before)
