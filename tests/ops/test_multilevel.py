"""The partitioner's operators against the obvious, and that nothing wrong reaches a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pyg_batchgnn import ops
from pyg_batchgnn.ops import WeightedGraph


def random_graph(seed: int, nodes: int, edges: int, constraints: int = 2) -> WeightedGraph:
    draw = torch.Generator().manual_seed(seed)
    ends = torch.randint(max(nodes, 1), (2, edges), generator=draw)
    ends = ends[:, ends[0] != ends[1]]
    weight = torch.randint(1, 5, (ends.size(1),), generator=draw)
    both = torch.cat([ends, ends.flip(0)], 1)
    table = torch.zeros(nodes, nodes, dtype=torch.int64)
    table.index_put_((both[0], both[1]), weight.repeat(2), accumulate=True)
    return graph_of(table, torch.randint(0, 4, (nodes, constraints), generator=draw).int())


def graph_of(table: Tensor, node_weight: Tensor) -> WeightedGraph:
    node, other = table.nonzero(as_tuple=True)
    indptr = torch.cat([torch.zeros(1).long(), torch.bincount(node, minlength=len(table)).cumsum(0)])
    return WeightedGraph(indptr, other.int(), node_weight, table[node, other].int())


def matrix_of(graph: WeightedGraph) -> Tensor:
    assert graph.edge_weight is not None
    table = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.int64)
    node = torch.arange(graph.num_nodes).repeat_interleave(graph.indptr.diff())
    table[node, graph.indices.long()] = graph.edge_weight.long()
    return table


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("weighted", [False, True])
def test_lists_that_come_in_pieces_are_merged(dtype: torch.dtype, weighted: bool) -> None:
    draw = torch.Generator().manual_seed(1)
    first, nodes, total = 5, 30, 60
    rows = torch.stack(
        [
            torch.randint(first, first + nodes, (400,), generator=draw),
            torch.randint(total, (400,), generator=draw),
            torch.randint(1, 9, (400,), generator=draw),
        ],
        1,
    ).to(dtype)
    wanted = torch.zeros(nodes, total, dtype=torch.int64)
    ones = rows[:, 2].long() if weighted else torch.ones(400, dtype=torch.int64)
    wanted.index_put_((rows[:, 0].long() - first, rows[:, 1].long()), ones, accumulate=True)
    wanted[torch.arange(nodes), torch.arange(first, first + nodes)] = 0
    counts = torch.bincount(rows[:, 0].long() - first, minlength=nodes)
    indptr = torch.cat([torch.zeros(1).long(), counts.cumsum(0)])
    ids, cursor = torch.empty(400, dtype=dtype), indptr[:-1].clone()
    weight = torch.empty(400, dtype=torch.int32) if weighted else None
    for piece in rows.split(90):
        columns = piece if weighted else piece[:, :2]
        ops.append_neighbours(columns.contiguous(), first, cursor, ids, weight)
    merged = ops.merge_neighbours(indptr, ids, weight, first)
    node = torch.arange(nodes).repeat_interleave(merged.indptr.diff())
    found = torch.zeros_like(wanted)
    found[node, merged.ids.long()] = merged.weight.long()
    assert torch.equal(found, wanted) and merged.uniform == 0
    assert merged.ids.dtype == dtype and merged.ids.numel() == int((wanted > 0).sum())


def test_edges_outside_the_lists_are_refused() -> None:
    cursor, ids = torch.tensor([0]), torch.empty(1, dtype=torch.int64)
    with pytest.raises(IndexError, match="no place in the 1 lists from node 4"):
        ops.append_neighbours(torch.tensor([[5, 1]]), 4, cursor, ids)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_ghosts_are_numbered_in_order(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(2)
    ids = torch.randint(500, (300,), generator=draw).to(dtype)
    ghosts, local = ops.number_ghosts(ids, range(100, 220), 500)
    own = (ids >= 100) & (ids < 220)
    assert torch.equal(ghosts, ids[~own].unique()) and ghosts.dtype == dtype
    assert torch.equal(local[own].long(), ids[own].long() - 100)
    assert torch.equal(ghosts[local[~own].long() - 120], ids[~own])


@given(st.integers(0, 10_000), st.integers(0, 40), st.integers(0, 150), st.integers(1, 5))
def test_a_partition_is_what_it_says(seed: int, nodes: int, edges: int, parts: int) -> None:
    graph = random_graph(seed, nodes, edges)
    limit = (1.3 * graph.node_weight.sum(0) / parts).ceil().long() + 3
    found = ops.solve_partition(graph, parts, limit, seed)
    assert found.part.numel() == nodes and (nodes == 0 or int(found.part.min()) >= 0)
    assert nodes == 0 or int(found.part.max()) < parts
    load = torch.zeros(parts, graph.node_weight.size(1), dtype=torch.int64)
    load.index_add_(0, found.part.long(), graph.node_weight.long())
    excess = ((load - limit).clamp(min=0) / limit.clamp(min=1)).sum()
    cut = matrix_of(graph) * (found.part[:, None] != found.part[None, :])
    assert found.excess == pytest.approx(float(excess)) and found.cut == int(cut.sum()) // 2
    again = ops.solve_partition(graph, parts, limit, seed)
    assert torch.equal(again.part, found.part)


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
