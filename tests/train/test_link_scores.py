"""Scores of pairs and best partners, over ranks that are threads, beside all scores sorted."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset, EdgeSet, NodeSet
from pyg_batchgnn.nn import DotProductDecoder, MLPDecoder
from pyg_batchgnn.partition import partition
from pyg_batchgnn.store import DistFeatureStore
from pyg_batchgnn.train.evaluate import PairScorer
from pyg_batchgnn.train.link_prediction import BestPartners, best_columns, find_partners
from pyg_batchgnn.train.ranks import Ranks
from pyg_batchgnn.train.run_graph import EmbeddedNodes, EmbeddedRows, RowsHere, RowsOverRanks
from tests.support.thread_ranks import run_threads
from tests.support.tiers import examples, in_all

USERS, ITEMS, COLUMNS, TOP = 31, 45, 6, 7
SCORES = st.sampled_from([-math.inf, -2.0, -0.0, 0.0, 1.0, 3.5, math.inf, math.nan, -math.nan])


@given(st.data(), st.integers(1, 9), st.integers(1, 12))
def test_the_best_columns_are_those_of_a_stable_sort(data: st.DataObject, rows: int, columns: int) -> None:
    drawn = [data.draw(st.lists(SCORES, min_size=columns, max_size=columns)) for _ in range(rows)]
    scores, count = torch.tensor(drawn), data.draw(st.integers(1, columns))
    expected = scores.argsort(dim=1, descending=True, stable=True)
    behind = scores.isnan().gather(1, expected).int().argsort(dim=1, stable=True)  # NaN comes last
    assert torch.equal(best_columns(scores, count), expected.gather(1, behind)[:, :count])


@examples(50)
@given(st.randoms(use_true_random=False), st.integers(1, 5), st.integers(1, 9))
def test_partners_do_not_depend_on_the_pieces(random: Any, nodes: int, top: int) -> None:
    scores = torch.tensor([[random.choice([0.0, 1.0, 2.0, -1.0]) for _ in range(30)] for _ in range(nodes)])
    found = BestPartners(nodes, top)
    ids = list(range(30))
    random.shuffle(ids)
    while ids:
        size = random.randint(1, 11)
        piece, ids = torch.tensor(sorted(ids[:size])), ids[size:]
        found.offer(slice(0, nodes), scores[:, piece], piece)
    order = scores.argsort(dim=1, descending=True, stable=True)[:, :top]
    assert torch.equal(found.partners, order) and torch.equal(found.scores, scores.gather(1, order))


@dataclass
class Watched:
    """Rows of nodes, with what was asked of them.

    Attributes:
        rows: the rows.
        asked: the ids of each call of `of`.
        passed: the number of nodes of each piece.
    """

    rows: EmbeddedRows
    asked: list[Tensor] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)

    def of(self, node_type: str, ids: Tensor) -> Tensor:
        self.asked.append(ids)
        return self.rows.of(node_type, ids)

    def own(self, node_type: str) -> EmbeddedNodes:
        return self.rows.own(node_type)

    def pieces(self, node_type: str, size: int) -> Any:
        for piece in self.rows.pieces(node_type, size):
            self.passed.append(len(piece))
            yield piece


def shop() -> Dataset:
    """Returns users and items whose edges do not matter."""
    none = torch.zeros(2, 0, dtype=torch.int64)
    nodes = NodeSet("user", USERS), NodeSet("item", ITEMS)
    return Dataset("shop", nodes, (EdgeSet(("user", "buys", "item"), none),))


@pytest.mark.parametrize("ranks", [*in_all(1), 3])
@pytest.mark.parametrize("relation", [("user", "buys", "item"), ("item", "like", "item")])
@pytest.mark.parametrize("decoder", [DotProductDecoder(), MLPDecoder(COLUMNS)], ids=["dot", "mlp"])
def test_ranks_score_what_one_process_scores(
    ranks: int,
    relation: tuple[str, str, str],
    decoder: DotProductDecoder | MLPDecoder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyg_batchgnn.train.link_prediction._TARGETS", 8)
    monkeypatch.setattr("pyg_batchgnn.train.link_prediction._SCORES", 50)
    monkeypatch.setattr("pyg_batchgnn.train.evaluate._NUMBERS", 30)
    monkeypatch.setattr("pyg_batchgnn.train.evaluate._SCORED", 12)
    draw = torch.Generator().manual_seed(0)
    whole = {name: torch.randn(n, COLUMNS, generator=draw) for name, n in (("user", USERS), ("item", ITEMS))}
    whole["item"][40:] = whole["item"][:5]  # ties
    left, right = whole[relation[0]], whole[relation[2]]
    pairs = torch.stack([torch.randint(len(one), (200,), generator=draw) for one in (left, right)], dim=1)
    wanted = torch.cat([torch.tensor([3, 3, 0]), torch.arange(len(left))])
    network: Any = SimpleNamespace(relation=relation, decoder=decoder)

    def job(comm: Communicator) -> None:
        if ranks == 1:
            rows = Watched(RowsHere(whole))
        else:
            part = partition(shop(), "random", comm=comm)
            held = {
                name: whole[name][part.original_ids(at)] for at, name in enumerate(part.schema.node_types)
            }
            rows = Watched(RowsOverRanks.beside(DistFeatureStore(part, comm, share=False), held))
        own, scorer = rows.own(relation[0]), PairScorer(network, rows, COLUMNS, Ranks(comm, comm))
        mine = own.find(pairs[:, 0].contiguous())
        scores[mine.position] = scorer.scores(own.rows, mine.row, pairs[mine.position, 1])
        asked = torch.cat(rows.asked)
        assert len(asked) == len(asked.unique()), "each distinct target is fetched once"
        assert max(map(len, rows.asked)) <= 30 // COLUMNS
        nodes = own.find(wanted)
        found = find_partners(network, rows, nodes.row, TOP)
        partners[nodes.position], best[nodes.position] = found.partners, found.scores
        assert sum(rows.passed) == len(right) and max(rows.passed) <= 8

    scores = torch.full((200,), math.nan)
    partners, best = torch.full((len(wanted), TOP), -1), torch.empty(len(wanted), TOP)
    run_threads(job, ranks)
    with torch.no_grad():
        expected = decoder.all_pairs(left, right)
    torch.testing.assert_close(scores, expected[pairs[:, 0], pairs[:, 1]], atol=1e-5, rtol=1e-5)
    if relation[0] == relation[2]:
        expected.fill_diagonal_(-math.inf)
    order = expected[wanted].argsort(dim=1, descending=True, stable=True)[:, :TOP]
    assert torch.equal(partners, order), "of equal scores the lower ids come first"
    torch.testing.assert_close(best, expected[wanted].gather(1, order), atol=1e-6, rtol=1e-6)
