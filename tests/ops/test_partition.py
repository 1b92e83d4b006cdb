"""The partitioner's operators against the obvious, and that nothing wrong reaches a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from pyg_batchgnn import ops


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("groups", [1, 3, 16, 17, 40])
def test_rows_are_grouped_stably(groups: int, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(groups)
    for count in (0, 1, 1000):
        owner = torch.randint(groups, (count,), generator=draw).to(dtype)
        order, counts = ops.group_by_owner(owner, groups)
        assert counts.tolist() == torch.bincount(owner, minlength=groups).tolist()
        wanted = torch.argsort(owner, stable=True)
        assert torch.equal(torch.arange(count) if order is None else order.long(), wanted)
        assert ops.group_by_owner(owner.sort().values, groups)[0] is None


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("groups", [1, 4, 30])
def test_rows_are_grouped_by_range(groups: int, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(groups)
    bounds = torch.cat([torch.zeros(1).long(), torch.randint(0, 90, (groups,), generator=draw).sort().values])
    values = torch.randint(0, 100, (500,), generator=draw).to(dtype)
    owner = torch.bucketize(values.long(), bounds[1:-1], right=True)
    order, counts = ops.group_by_range(values, bounds)
    assert counts.tolist() == torch.bincount(owner, minlength=groups).tolist()
    wanted = torch.argsort(owner, stable=True)
    assert torch.equal(torch.arange(500) if order is None else order.long(), wanted)


@pytest.mark.parametrize(
    ("word", "index", "edge_id"),
    [
        (torch.int32,) * 3,
        (torch.int64,) * 3,
        (torch.int64, torch.int32, torch.int32),
        (torch.int64, torch.int32, torch.int64),
        (torch.int64, torch.int64, torch.int32),
    ],
)
def test_edges_that_come_in_pieces_make_lists(
    word: torch.dtype, index: torch.dtype, edge_id: torch.dtype
) -> None:
    draw = torch.Generator().manual_seed(1)
    edge_index = torch.randint(10, 60, (2, 700), generator=draw)
    counts = torch.zeros(50, dtype=torch.int64)
    ops.count_values(edge_index[1].contiguous(), 10, counts)
    assert torch.equal(counts, torch.bincount(edge_index[1] - 10, minlength=50))
    wanted = torch.argsort(edge_index[1], stable=True)
    cursor = counts.cumsum(0) - counts
    indices, edge_ids = torch.empty(700, dtype=index), torch.empty(700, dtype=edge_id)
    rows = torch.stack([edge_index[1], edge_index[0], torch.arange(700)], 1).to(word)
    for piece in rows.split(111):
        ops.place_edges(piece.contiguous(), 10, cursor, indices, edge_ids)
    assert torch.equal(edge_ids.long(), wanted)
    assert torch.equal(indices.long(), edge_index[0, wanted])
    assert torch.equal(cursor, counts.cumsum(0))


def chosen(
    load: Tensor, neighbours: list[int], limit: float, fennel: bool = False, alpha: float = 0.0
) -> int:
    """The part of one node, whose neighbours are outside the slice and have these owners."""
    owner = torch.full((1,), ops.UNASSIGNED, dtype=torch.int32)
    rules = ops.StreamRules(torch.full((3,), limit, dtype=torch.float64), fennel, alpha, 1, 0)
    ops.assign_nodes(
        torch.tensor([0, len(neighbours)]),
        torch.arange(1, len(neighbours) + 1),
        0,
        torch.tensor([[1, len(neighbours), 0]], dtype=torch.int32),
        owner,
        torch.tensor(neighbours, dtype=torch.int32),
        range(1),
        load,
        rules,
    )
    return int(owner)


def test_scores_weigh_neighbours_against_room() -> None:
    def load(*of: float) -> Tensor:
        return torch.tensor([of, [0.0] * len(of), [0.0] * len(of)], dtype=torch.float64)

    assert chosen(load(0, 0, 0), [1, 1, 2], 10) == 1  # most neighbours
    assert chosen(load(0, 9, 0), [1, 1, 2], 10) == 2  # 2 * (1 - 0.9) against 1
    assert chosen(load(3, 3, 1), [-1, -1], 10) == 2  # nobody known: the emptiest
    assert chosen(load(10, 3, 10), [0, 0, 0], 10) == 1  # full parts take nobody
    assert chosen(load(12, 11, 13), [0, 0, 0], 10) == 1  # all are full: the one that is least
    assert chosen(load(4, 9, 0), [1, 1, 0], 10, fennel=True, alpha=0.1) == 1
    assert chosen(load(4, 9, 0), [1, 1, 0], 10, fennel=True, alpha=9.0) == 2


ONE = torch.zeros(1, dtype=torch.int64)
WRONG: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: ops.group_by_owner(torch.tensor([0, 3]), 3), IndexError, "holds 3"),
    (lambda: ops.group_by_owner(torch.tensor([-1]), 3), IndexError, "holds -1"),
    (lambda: ops.group_by_range(ONE, ONE), ValueError, "two entries"),
    (lambda: ops.count_values(torch.tensor([4]), 1, ONE.clone()), IndexError, "outside"),
    (lambda: ops.place_edges(torch.tensor([[5, 0, 0]]), 0, ONE.clone(), ONE, ONE), IndexError, "no place"),
    (lambda: ops.place_edges(torch.zeros(2, 3).long(), 0, ONE.clone(), ONE, ONE), IndexError, "no place"),
]


@pytest.mark.parametrize(("call", "error", "says"), WRONG)
def test_mistakes_are_refused(call: Callable[[], object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()


def test_opcheck() -> None:
    """What is written to is what the schemas say.

    Lengths of results depend on values and nobody traces these operators, so they have no fake
    kernels.
    """

    def check(operator: Any, *arguments: Any) -> None:
        checks = ("test_schema", "test_autograd_registration")
        torch.library.opcheck(operator, arguments, test_utils=checks)

    kernels = torch.ops.pyg_batchgnn
    node = torch.arange(6)
    check(kernels.group_by_owner, torch.tensor([1, 0, 2]), 3)
    check(kernels.group_by_range, node, torch.tensor([0, 2, 9]))
    check(kernels.count_values_, node, 0, torch.zeros(6).long())
    edges = torch.tensor([[1, 5, 0], [0, 3, 1]])
    check(kernels.place_edges_, edges, 0, torch.tensor([0, 1]), torch.zeros(2).long(), torch.zeros(2).long())
    slices = (torch.tensor([0, 1, 2]), torch.tensor([1, 9]), 0, torch.ones(2, 3, dtype=torch.int32))
    owner, found = torch.full((2,), ops.UNASSIGNED).int(), torch.zeros(1).int()
    rules = (torch.full((3,), 9.0).double(), False, False, 0.5, 1, 7)
    check(kernels.assign_nodes_, *slices, owner, found, 0, 2, torch.zeros(3, 2).double(), *rules)
