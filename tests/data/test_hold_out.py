"""Edges held out as links."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.data import (
    Dataset,
    DatasetError,
    EdgeSet,
    NodeSet,
    hold_out_links,
    load_dataset,
    write_folder,
)
from tests.support.dataset_strategies import edges
from tests.support.tiers import examples
from tests.support.tiny_datasets import NODES, tiny_dataset
from tests.support.tiny_links import pairs

BUYS, BACK = ("user", "buys", "item"), ("item", "rev_buys", "user")


def as_pairs(index: torch.Tensor) -> list[tuple[int, ...]]:
    return [tuple(pair) for pair in index.T.tolist()]


@examples(60)
@given(edges(9), st.floats(0.05, 0.49))
def test_no_pair_is_in_two_places(index: torch.Tensor, share: float) -> None:
    whole = Dataset.homogeneous("h", 9, index, edges={"at": torch.arange(index.size(1))})
    held = hold_out_links(whole, share)
    links = held.edges.links
    undirected = {tuple(sorted(pair)) for pair in as_pairs(index) if pair[0] != pair[1]}
    count = round(share * len(undirected))
    out = [[tuple(sorted(pair)) for pair in as_pairs(links[split].index)] for split in ("val", "test")]
    assert [len(found) for found in out] == [count, count]
    assert len({*out[0], *out[1]}) == 2 * count and undirected.issuperset({*out[0], *out[1]})
    wanted = [tuple(sorted(pair)) not in {*out[0], *out[1]} for pair in as_pairs(index)]
    assert held.edges.tables["at"].tolist() == [at for at, kept in enumerate(wanted) if kept]
    assert torch.equal(held.edge_index, index[:, held.edges.tables["at"]])
    assert torch.equal(links["train"].index, held.edge_index)
    again = hold_out_links(whole, share).edges.links
    assert all(torch.equal(links[split].index, again[split].index) for split in links)


def test_the_reverse_relation_loses_the_same_pairs() -> None:
    buys = EdgeSet(BUYS, torch.cat([pairs(30, 8, 5, 1), torch.tensor([[0], [0]])], dim=1))
    back = EdgeSet(BACK, buys.edge_index.flip(0).clone())
    other = EdgeSet(("user", "knows", "user"), pairs(4, 8, 8, 2))
    whole = Dataset("shop", (NodeSet("user", 8), NodeSet("item", 5)), (buys, back, other))
    held = hold_out_links(whole, 0.2, BUYS, BACK)
    left, links = held.edges_of(BUYS), held.edges_of(BUYS).links
    out = {*as_pairs(links["val"].index), *as_pairs(links["test"].index)}
    assert out and out.isdisjoint(as_pairs(left.edge_index))
    assert torch.equal(held.edges_of(BACK).edge_index, left.edge_index.flip(0))
    assert held.edges_of(other.relation) is other
    for relation, reverse in ((BUYS, BACK), (BACK, BUYS)):  # by their names
        found = hold_out_links(whole, 0.2, relation)
        there, back = (found.edges_of(one).edge_index for one in (relation, reverse))
        assert there.size(1) < buys.edge_index.size(1) and torch.equal(back, there.flip(0))
    assert hold_out_links(whole, 0.2, BUYS, BUYS).edges_of(BACK) is whole.edge_sets[1]
    with pytest.raises(DatasetError, match=r"relation: is not given; name one of user__buys__item"):
        hold_out_links(whole, 0.2)
    with pytest.raises(DatasetError, match="does not lead from item to user"):
        hold_out_links(whole, 0.2, BUYS, other.relation)
    with pytest.raises(DatasetError, match="has links already"):
        hold_out_links(held, 0.2, BUYS)


def test_options_of_load_dataset(tmp_path: Path) -> None:
    write_folder(tiny_dataset(), tmp_path / "tiny")
    wanted = hold_out_links(tiny_dataset(), 0.1)
    for found in (
        load_dataset(f"{tmp_path / 'tiny'}", hold_out=0.1),
        load_dataset("tiny/.:hold_out=0.1,links=node__to__node", tmp_path),
    ):
        assert torch.equal(found.edge_index, wanted.edge_index)
        assert torch.equal(found.edges.links["test"].index, wanted.edges.links["test"].index)
    both = load_dataset(tmp_path / "tiny", undirected="keep", hold_out="0.1")
    assert len(both.edges.links["val"]) == len(wanted.edges.links["val"]) and both.num_nodes == NODES
    for options, fact in (
        ({"hold_out": 0.5}, r"hold_out: is 0\.5"),
        ({"hold_out": "x"}, "give a number"),
        ({"links": "a__b__c"}, "go with hold_out"),
        ({"hold_out": 0.1, "links": "to"}, "give SOURCE__RELATION__TARGET"),
    ):
        with pytest.raises(DatasetError, match=fact):
            load_dataset(tmp_path / "tiny", **options)


def test_features_and_splits_of_nodes_stay() -> None:
    tiny = tiny_dataset()
    held = hold_out_links(tiny, 0.2)
    assert held.node_sets == tiny.node_sets and "held out" in held.source
    assert replace(held, edge_sets=tiny.edge_sets).num_edges == tiny.num_edges
