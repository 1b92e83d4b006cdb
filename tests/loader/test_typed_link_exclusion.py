"""The edges of the links themselves are left out of typed samples."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn import MacrobatchLinkNeighborLoader
from tests.loader.test_links import pairs
from tests.support.typed_link_cases import (
    BACK,
    BUYS,
    DATA,
    KNOWS,
    assert_same,
    make_links,
)


def sampled_pairs(batch: HeteroData, relation: Any) -> list[tuple[int, int]]:
    """The sampled edges of a relation, by the nodes' own ids."""
    ends = batch[relation].edge_index
    return pairs(torch.stack([batch[relation[0]].n_id[ends[0]], batch[relation[2]].n_id[ends[1]]]))


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("reverse", [True, "reverse", {BUYS: BACK}])
def test_edges_of_links_are_not_sampled(disjoint: bool, reverse: Any) -> None:
    loader = make_links(num_neighbors=[-1, -1], exclude_seed_edges=reverse, disjoint=disjoint)
    for batch in loader:
        links = pairs(DATA[BUYS].edge_index[:, batch[BUYS].input_id])
        both = reverse is not True
        for relation, flipped in ((BUYS, False), (BACK, True)):
            target = batch[relation].edge_index[1]
            for number, (tail, head) in enumerate(sampled_pairs(batch, relation)):
                pair = (head, tail) if flipped else (tail, head)
                own = links
                if disjoint:
                    own = [links[int(batch[relation[2]].batch[target[number]])]]
                assert pair not in own or (flipped and not both)
        # Every other in-edge of the seeds is there.
        item = batch["item"].n_id[: batch["item"].num_sampled_nodes[0]]
        if not disjoint:
            kept = [pair for pair in pairs(DATA[BUYS].edge_index) if pair not in set(links)]
            expected = sorted(pair for pair in kept if pair[1] in set(item.tolist()))
            found = [pair for pair in sampled_pairs(batch, BUYS) if pair[1] in set(item.tolist())]
            assert sorted(found) == expected


def test_fanouts_are_filled_from_what_is_left() -> None:
    # Node 0 has ten in-edges from 1, ..., 5, two of each; the link is (1, 0).
    source = torch.arange(1, 6).repeat(2)
    data = Data(edge_index=torch.stack([source, torch.zeros_like(source)]), num_nodes=6)
    options = {"edge_label_index": torch.tensor([[1], [0]]), "exclude_seed_edges": True, "batch_size": 1}
    batch = next(iter(MacrobatchLinkNeighborLoader(data, [8], **options)))
    assert sorted(batch.n_id[batch.edge_index[0]].tolist()) == [2, 2, 3, 3, 4, 4, 5, 5]


def test_reverses_by_the_names_of_their_ends() -> None:
    short = make_links(exclude_seed_edges={("user", "item"): ("item", "user")})
    assert_same(list(short), list(make_links(exclude_seed_edges={BUYS: BACK})))


def test_a_relation_without_a_reverse_is_an_error() -> None:
    advice = re.escape(f"like {{{KNOWS}: {KNOWS}}}")
    with pytest.raises(ValueError, match=rf"no relation \('user', 'rev_knows', 'user'\).*{advice}"):
        make_links(index=KNOWS, exclude_seed_edges="reverse")
    batch = next(iter(make_links(index=KNOWS, exclude_seed_edges={KNOWS: KNOWS})))
    links = set(map(tuple, batch["user"].n_id[batch[KNOWS].edge_label_index].t().tolist()))
    found = set(sampled_pairs(batch, KNOWS))
    assert found and not found & (links | {(target, source) for source, target in links})
    one_way = DATA.edge_type_subgraph([BUYS])
    with pytest.raises(ValueError, match="none from its target to its source: give True"):
        MacrobatchLinkNeighborLoader(one_way, [2], (BUYS, None), exclude_seed_edges="reverse")
    with pytest.raises(TypeError, match="exclude_seed_edges must be True"):
        make_links(exclude_seed_edges="both")
