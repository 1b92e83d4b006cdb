"""The schedules of an epoch: every seed once, and over ranks the minibatches of one process."""

from __future__ import annotations

import itertools

import pytest
import torch

from pyg_batchgnn.loader.position import Order, Remainder, Run
from pyg_batchgnn.loader.rank_inputs import moved_seeds
from pyg_batchgnn.loader.schedule import GlobalSchedule, LocalSchedule, StepShape, work_items

SEED = 3


@pytest.mark.parametrize("order", [Order.KEYED, Order.SEQUENTIAL])
@pytest.mark.parametrize("remainder", list(Remainder))
@pytest.mark.parametrize(("count", "size"), [(0, 4), (3, 4), (4, 4), (21, 4), (24, 4), (50, 7)])
@pytest.mark.parametrize("skip", [0, 1, 3])
def test_ranks_deal_the_minibatches_of_one_process(
    count: int, size: int, remainder: Remainder, order: Order, skip: int
) -> None:
    shape, ranks = StepShape(size, remainder, order), 3
    alone = list(GlobalSchedule(count, 0, 1, shape).steps(Run(1, skip=skip), SEED))
    assert [step.seeds for step in alone] == [step.positions.numel() for step in alone]
    schedules = [GlobalSchedule(count, rank, ranks, shape) for rank in range(ranks)]
    dealt = [list(one.steps(Run(1, skip=skip), SEED)) for one in schedules]
    assert {len(steps) for steps in dealt} == {schedules[0].length(skip)}
    for step in zip(*dealt, strict=True):
        assert {one.seeds for one in step} == {sum(one.positions.numel() for one in step)}
    in_turn = [one.positions.tolist() for one in itertools.chain(*zip(*dealt, strict=True))]
    wanted = [step.positions.tolist() for step in alone]
    if remainder is Remainder.DROP:
        wanted = wanted[: len(wanted) // ranks * ranks]
    assert in_turn[: len(wanted)] == wanted and not any(in_turn[len(wanted) :])
    assert schedules[0].end(skip) == min(shape.batches(count), skip + len(dealt[0]) * ranks)


@pytest.mark.parametrize("remainder", list(Remainder))
@pytest.mark.parametrize("counts", [[0, 5, 17], [8, 8, 8], [1, 0, 0], [0, 0, 0]])
def test_a_rank_trains_each_of_its_own_seeds_once(counts: list[int], remainder: Remainder) -> None:
    shape = StepShape(4, remainder, Order.KEYED)
    firsts = [0, *itertools.accumulate(counts)]
    made = []
    for rank, count in enumerate(counts):
        own = torch.arange(firsts[rank], firsts[rank] + count)
        steps = list(LocalSchedule(own, counts, rank, shape).steps(Run(0), SEED))
        visited = [position for step in steps for position in step.positions.tolist()]
        assert len(set(visited)) == len(visited) and set(visited) <= set(own.tolist())
        assert len(visited) == count or remainder is Remainder.DROP
        assert all(step.positions.numel() <= 4 for step in steps)
        made.append(steps)
    assert len({len(steps) for steps in made}) == 1
    for step in zip(*made, strict=True):
        assert {one.seeds for one in step} == {sum(one.positions.numel() for one in step)}


@pytest.mark.parametrize(
    ("counts", "hosts", "moved"),
    [
        ([5], [0], [[0]]),
        ([3, 3], [0, 1], [[0, 0], [0, 0]]),
        ([4, 3], [0, 1], [[0, 0], [0, 0]]),
        ([3, 4], [0, 1], [[0, 0], [0, 0]]),  # the rank with more keeps the one that is over
        ([0, 0, 1], [0, 1, 2], [[0] * 3] * 3),
        ([9, 0, 0], [0, 1, 2], [[0, 3, 3], [0] * 3, [0] * 3]),
        # Ranks of one host give to each other first.
        ([6, 6, 0, 0], [0, 1, 0, 1], [[0, 0, 3, 0], [0, 0, 0, 3], [0] * 4, [0] * 4]),
        ([8, 2, 0, 2], [0, 0, 1, 1], [[0, 1, 3, 1], [0] * 4, [0] * 4, [0] * 4]),
    ],
)
def test_ranks_give_each_other_as_few_seeds_as_possible(
    counts: list[int], hosts: list[int], moved: list[list[int]]
) -> None:
    assert moved_seeds(counts, hosts) == moved


def test_macrobatches_hold_all_steps_in_order() -> None:
    shape = StepShape(3, Remainder.KEEP, Order.KEYED)
    schedule, run = GlobalSchedule(40, 0, 1, shape), Run(2)
    steps = [step.positions.tolist() for step in schedule.steps(Run(2), SEED)]
    items = list(work_items(schedule.steps(run, SEED), run, 4))
    assert [item.number for item in items] == list(range(4))
    assert {item.epoch for item in items} == {2}
    assert [step.positions.tolist() for item in items for step in item.steps] == steps
    assert run.seeds == [len(step) for step in steps]
