"""Sampling of a real graph of four node types and many relations, if it is at hand."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from pyg_batchgnn import MacrobatchLinkNeighborLoader, MacrobatchNeighborLoader
from tests.support.hetero_cases import assert_same

GRAPHS = Path(os.environ.get("PYG_BATCHGNN_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
NAME = "oewn_hetero"


@pytest.fixture(scope="module")
def wordnet() -> HeteroData:
    """Parts of speech and their relations; ``number`` tells nodes and edges of the whole apart."""
    if not (GRAPHS / f"{NAME}.npz").exists():
        pytest.skip(f"{NAME}.npz is not in {GRAPHS}; PYG_BATCHGNN_DATA can name another folder")
    names = json.loads((GRAPHS / f"{NAME}.json").read_text(encoding="utf-8"))
    arrays = np.load(GRAPHS / f"{NAME}.npz")
    kind, edge_kind = (torch.from_numpy(arrays[name]).long() for name in ("node_type", "edge_type"))
    data, within = HeteroData(), torch.empty_like(kind)
    for number, name in enumerate(names["node_type_names"]):
        members = (kind == number).nonzero().view(-1)
        within[members] = torch.arange(members.numel())
        data[name].num_nodes, data[name].number = members.numel(), members
        data[name].y = torch.from_numpy(arrays["y"])[members]
    source, target = torch.from_numpy(arrays["edge_index"]).long()
    relation = (kind[source] * 256 + edge_kind) * 256 + kind[target]
    types, edges = names["node_type_names"], names["edge_type_names"]
    order = relation.argsort(stable=True)
    codes, counts = relation[order].unique_consecutive(return_counts=True)
    for code, members in zip(codes.tolist(), order.split(counts.tolist()), strict=True):
        store = data[types[code >> 16], edges[code >> 8 & 255], types[code & 255]]
        store.edge_index = torch.stack([within[source[members]], within[target[members]]])
        store.number = members
    return data


def check(data: HeteroData, batch: HeteroData) -> int:
    """Nodes, edges and attributes are those of the graph. Returns the number of edges."""
    for name in data.node_types:
        assert torch.equal(batch[name].number, data[name].number[batch[name].n_id])
    for relation in data.edge_types:
        source, target = batch[relation].edge_index
        found = torch.stack([batch[relation[0]].n_id[source], batch[relation[2]].n_id[target]])
        assert torch.equal(found, data[relation].edge_index[:, batch[relation].e_id])
        assert torch.equal(batch[relation].number, data[relation].number[batch[relation].e_id])
    return batch.num_edges


def test_fanouts_of_all_relations_are_kept(wordnet: HeteroData) -> None:
    assert len(wordnet.node_types) == 4 and len(wordnet.edge_types) > 60
    loader = MacrobatchNeighborLoader(wordnet, [2, 1], "noun", batch_size=512, shuffle=True, seed=3)
    batch = next(iter(loader))
    assert check(wordnet, batch) > 512
    for relation in wordnet.edge_types:
        last = batch[relation[2]].num_sampled_nodes[0]
        targets = batch[relation].edge_index[1]
        assert torch.bincount(targets[targets < last], minlength=1).max() <= 2
        assert torch.bincount(targets[targets >= last], minlength=1).max() <= 1


def test_settings_and_seeds_of_all_types(wordnet: HeteroData) -> None:
    seeds = {name: torch.arange(0, wordnet[name].num_nodes, 601) for name in wordnet.node_types}
    common = {"input_nodes": seeds, "batch_size": 50, "shuffle": True, "seed": 3}
    first = list(MacrobatchNeighborLoader(wordnet, [3, 2], threads=1, macrobatch_size=1, **common))
    assert sum(check(wordnet, batch) for batch in first) > 0
    assert_same(first, MacrobatchNeighborLoader(wordnet, [3, 2], macrobatch_size=4, prefetch=1, **common))


def reached(data: HeteroData, seeds: Tensor) -> dict[str, Tensor]:
    """The nodes that reach some nouns in one or two steps, with the nouns, by type as a mask."""
    masks = {name: torch.zeros(data[name].num_nodes, dtype=torch.bool) for name in data.node_types}
    masks["noun"][seeds] = True
    for _ in range(2):
        before = {name: mask.clone() for name, mask in masks.items()}
        for relation in data.edge_types:
            source, target = data[relation].edge_index
            masks[relation[0]][source[before[relation[2]][target]]] = True
    return masks


def test_all_neighbours_are_all_that_is_reached(wordnet: HeteroData) -> None:
    seeds = torch.arange(0, 70_000, 7_001)
    (batch,) = MacrobatchNeighborLoader(wordnet, [-1, -1], ("noun", seeds), batch_size=20)
    check(wordnet, batch)
    for name, mask in reached(wordnet, seeds).items():
        assert torch.equal(batch[name].n_id.sort().values, mask.nonzero().view(-1))


def test_links_whose_reverse_is_the_same_relation(wordnet: HeteroData) -> None:
    relation = ("noun", "hypernym", "noun")
    links = wordnet[relation].edge_index[:, ::500]
    loader = MacrobatchLinkNeighborLoader(
        wordnet,
        [4, 2],
        (relation, links),
        batch_size=64,
        neg_sampling=("triplet", 2),
        exclude_existing=True,
        exclude_seed_edges={relation: relation},
    )
    pairs = set(map(tuple, wordnet[relation].edge_index.t().tolist()))
    for batch in loader:
        assert check(wordnet, batch) > 0
        nodes, own = batch["noun"].n_id, links[:, batch[relation].input_id]
        found = nodes[batch[relation].edge_index]
        taken = set(map(tuple, torch.cat([own, own.flip(0)], dim=1).t().tolist()))
        assert not taken & set(map(tuple, found.t().tolist()))
        sources = nodes[batch["noun"].src_index].repeat_interleave(2)
        negatives = torch.stack([sources, nodes[batch["noun"].dst_neg_index.reshape(-1)]])
        assert not pairs & set(map(tuple, negatives.t().tolist()))
