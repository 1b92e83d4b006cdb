"""Typed minibatches are those that PyG's own loader makes of the samples, and right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import HeteroData
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import NumNeighbors

from pyg_batchgnn.sample import Placement
from tests.support import loader_cases
from tests.support.hetero_cases import (
    BOTH,
    CITES,
    as_hetero,
    assert_same,
    check_batch,
    contents,
    make_hetero,
    make_loader,
)
from tests.support.tiers import examples


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"replace": True},
        {"disjoint": True},
        {"subgraph_type": "induced"},
        {"num_neighbors": NumNeighbors({CITES: [-1, 2]}, default=[3, 0.5])},
    ],
)
def test_the_same_as_pygs_own_node_loader(kwargs: dict[str, Any]) -> None:
    data = make_hetero()
    fanouts = kwargs.pop("num_neighbors", (4, 3))
    for nodes in ("paper", ("author", torch.tensor([5, 3, 5, 9])), ("paper", data["paper"].train_mask)):
        loader = make_loader(data, fanouts, input_nodes=nodes, **kwargs)
        theirs = NodeLoader(data, loader.node_sampler, nodes, batch_size=8)
        assert_same(loader, theirs)


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_one_type_and_one_relation_are_the_same_data(export: str) -> None:
    data = loader_cases.make_data()
    hetero = as_hetero(data)
    nodes = torch.arange(0, 300, 2)
    plain = loader_cases.make_loader(data, input_nodes=nodes, shuffle=True, export=export)
    typed = make_loader(hetero, input_nodes=("thing", nodes), shuffle=True, batch_size=32, export=export)
    for one, other in zip(plain, typed, strict=True):
        if export == "native":
            loader_cases.assert_same([one], [other])
            continue
        held = {name: value for (_, name), value in contents(other).items()}
        for name, value in loader_cases.contents(one).items():
            assert loader_cases.equal(value, held[name]), name


def whole_neighbourhood(data: HeteroData, papers: list[int], hops: int) -> dict[Any, set[int]]:
    """The nodes of each type within some hops of papers, and the edges that lead there."""
    found: dict[Any, set[int]] = {name: set() for name in (*data.node_types, *data.edge_types)}
    found["paper"] |= set(papers)
    expanded: set[tuple[str, int]] = set()
    for _ in range(hops):
        frontier = {(name, node) for name in data.node_types for node in found[name]} - expanded
        expanded |= frontier
        for relation in data.edge_types:
            source, _, target = relation
            for edge, (one, other) in enumerate(data[relation].edge_index.t().tolist()):
                if (target, other) in frontier:
                    found[relation].add(edge)
                    found[source].add(one)
    return found


def test_a_typed_graph_with_the_names_of_a_homogeneous_one_stays_typed() -> None:
    hetero = as_hetero(loader_cases.make_data(), "node", "to")
    (made, *_), (native, *_) = (
        list(make_loader(hetero, input_nodes="node", export=export)) for export in ("pyg", "native")
    )
    for batch in (made, native.to_data()):
        assert isinstance(batch, HeteroData) and batch["node"].batch_size == 8
        assert torch.equal(batch["node"].x, hetero["node"].x[made["node"].n_id])


def test_all_neighbours() -> None:
    data = make_hetero()
    for batch in make_loader(data, (-1, -1), input_nodes=("paper", torch.arange(12)), batch_size=2):
        found = whole_neighbourhood(data, batch["paper"].n_id[:2].tolist(), 2)
        for name in data.node_types:
            assert sorted(batch[name].n_id.tolist()) == sorted(found[name])
        for relation in data.edge_types:
            assert sorted(batch[relation].e_id.tolist()) == sorted(found[relation])


@examples(20, deadline=None)
@given(
    seed=st.integers(0, 99),
    fanouts=st.lists(st.one_of(st.integers(-1, 4), st.floats(0.1, 1.0)), min_size=1, max_size=3),
    replace=st.booleans(),
    disjoint=st.booleans(),
)
def test_any_graph_and_fanouts(seed: int, fanouts: list[Any], replace: bool, disjoint: bool) -> None:
    data = make_hetero(seed)
    loader = make_loader(data, fanouts, input_nodes=BOTH, replace=replace, disjoint=disjoint, shuffle=True)
    seen: dict[str, list[int]] = {"author": [], "paper": []}
    for batch in loader:
        check_batch(data, batch)
        for name, nodes in seen.items():
            nodes += batch[name].n_id[: batch[name].batch_size].tolist()
    assert {name: sorted(nodes) for name, nodes in seen.items()} == {
        "author": list(range(0, 40, 3)),
        "paper": list(range(0, 60, 2)),
    }


def test_seeds_of_several_types() -> None:
    data = make_hetero()
    ids = {"author": torch.arange(14) * 10, "paper": None}
    loader = make_loader(data, input_nodes=BOTH, input_id=ids, batch_size=10)
    assert len(loader) == 5 and len(loader.dataset) == 44
    batches = list(loader)
    sizes = [(batch["author"].batch_size, batch["paper"].batch_size) for batch in batches]
    assert sizes == [(10, 0), (4, 6), (0, 10), (0, 10), (0, 4)]
    assert torch.equal(torch.cat([batch["author"].input_id for batch in batches]), torch.arange(14) * 10)
    # A mask's are node ids, as they are with one type.
    assert torch.equal(torch.cat([batch["paper"].input_id for batch in batches]), torch.arange(0, 60, 2))
    assert "input_id" not in batches[0]["venue"]
    assert_same([loader([12, 20])], [make_loader(data, input_nodes=BOTH, input_id=ids)([12, 20])])


def test_examples_run_on_over_types() -> None:
    loader = make_loader(make_hetero(), input_nodes=BOTH, disjoint=True, batch_size=10)
    batch = list(loader)[1]
    assert batch["author"].batch[:4].tolist() == [0, 1, 2, 3]
    assert batch["paper"].batch[:6].tolist() == [4, 5, 6, 7, 8, 9]


def test_changed_features_show() -> None:
    data = make_hetero()
    loader = make_loader(data, input_nodes="paper")
    data["paper"].x = -data["paper"].x
    check_batch(data, next(iter(loader)))
    other = make_hetero()
    other["paper"].x = other["paper"].x + 0.5
    loader.data = other
    check_batch(other, next(iter(loader)))


def test_native_tables_are_the_users_own() -> None:
    data = make_hetero()
    groups = {group.name: rows for group, rows in native(data, attributes=["x"]).attributes.items()}
    assert groups["paper"].placement is Placement.IN_PLACE and groups["paper"].tables["x"] is data["paper"].x
    assert list(groups["author"].tables) == [] and list(groups["lonely"].tables) == ["x"]
    copied = native(data, features="copy")
    placements = {(group.is_node, rows.placement) for group, rows in copied.attributes.items()}
    assert placements == {(True, Placement.BLOCK), (False, Placement.MINIBATCH)}
    with pytest.raises(ValueError, match="'z'"):
        native(data, attributes=["z"])


def native(data: HeteroData, **kwargs: Any) -> Any:
    return next(iter(make_loader(data, input_nodes="paper", export="native", **kwargs)))
