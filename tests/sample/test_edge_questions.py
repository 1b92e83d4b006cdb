"""The answers to questions whether candidates of negatives are edges."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.sample.negatives import NOTHING, NegativeMode, NegativePlan
from pyg_batchgnn.sample.node_pool import ExistingPairs, NodePool
from pyg_batchgnn.sample.rank_finder import Column, EdgeQuestions, RankPlan

NODES = 20
#: Every pair is an edge but those of this target, and (1, 3).
FREE = 7
RELATION = ("node", "to", "node")


def answers(rows: Tensor) -> Tensor:
    held, other = torch.cartesian_prod(torch.arange(NODES), torch.arange(NODES)).unbind(1)
    is_edge = (held != FREE) & ~((held == 1) & (other == 3))
    existing = ExistingPairs.of(held[is_edge], other[is_edge], NODES, NODES)
    pool = NodePool.of(NODES)
    plan = NegativePlan(NegativeMode.BINARY, 1, pool, pool, existing)
    with Communicator.create("alone") as comm:
        questions = EdgeQuestions(comm, {RELATION: RankPlan(plan, {}, torch.tensor([0, NODES]))})
        return questions._answer(rows)


def candidates(pairs: Tensor, allowed: int) -> Tensor:
    """Returns questions about [n, 2] pairs of a target and a source."""
    rows = torch.zeros(len(pairs), len(Column), dtype=torch.int64)
    rows[:, Column.HELD], rows[:, Column.OTHER] = pairs.unbind(1)
    rows[:, Column.STREAM] = torch.arange(len(pairs))
    rows[:, Column.SOURCES] = rows[:, Column.TARGETS] = allowed
    return rows


def test_a_candidate_is_kept_unless_it_is_an_edge_and_the_last_one_is_drawn_again() -> None:
    pairs = torch.tensor([[FREE, 2], [1, 3], [1, 4], [0, 0]])
    nothing = [NOTHING, NOTHING]
    assert answers(candidates(pairs, 0)).tolist() == [[FREE, 2], [1, 3], nothing, nothing]
    assert answers(candidates(pairs, NODES)).tolist() == [[FREE, 2], [1, 3], [1, 3], [1, 3]]
    assert answers(candidates(pairs, 1)).tolist()[2:] == [nothing, nothing]


class Calls(TorchDispatchMode):
    """Counts the operations of torch."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_candidates_that_are_not_the_last_are_answered_all_at_once() -> None:
    def calls(count: int) -> int:
        rows = candidates(torch.zeros(count, 2, dtype=torch.int64), 0)
        with Calls() as mode:
            assert bool((answers(rows) == NOTHING).all())
        return mode.count

    assert calls(1000) == calls(10)
