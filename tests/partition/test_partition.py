"""The partitioner equals the obvious one, for any number of ranks and any size of rounds."""

from __future__ import annotations

from itertools import accumulate, combinations_with_replacement, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.partition import Multilevel, move
from pyg_batchgnn.partition.limits import Balance
from pyg_batchgnn.partition.load import Load, balanced_offsets
from pyg_batchgnn.partition.move import add_rows, own_rounds, rows_per_round, shared_rounds
from pyg_batchgnn.partition.multilevel.rank_graph import Ghosts
from tests.partition import job_partition
from tests.support.ranks import run_ranks
from tests.support.thread_ranks import run_threads
from tests.support.tiers import each, in_all


def test_streaming_keeps_all_limits_or_says_why_not() -> None:
    for nodes, worst, said in run_ranks(job_partition.several_limits, 2)[0].value:
        if nodes == 600:  # the hub
            assert [one for one in said if "in-edges, more than 1.05: one node alone" in one], said
            assert worst["nodes"] <= 1.05, worst
        else:  # communities
            assert said == [] and worst.pop("val") <= 1.1 and max(worst.values()) <= 1.05, (worst, said)


def test_mistakes_are_told_on_every_rank() -> None:
    for result in run_ranks(job_partition.mistakes, 2):
        assert result.value == [
            "DatasetError: random 1: edge_index: node id 20 is outside [0, 20); correct it or num_nodes",
            "DatasetError: random 1: val: node id -1 is outside [0, 20); correct it or num_nodes",
            *result.value[2:3],
            "ValueError: policy 'best' is not known; choose among random, contiguous, ldg, fennel, "
            "multilevel, metis, a .npy file of owners, or give a function",
            "TypeError: policy must be a name or a function, not int",
            *result.value[5:],
        ]
        assert result.value[2].startswith("AgreementError: ranks were given different arguments: data set")
        assert "the policy returned parts 2 to 2; there are 2" in result.value[5]
        assert "not torch.float64" in result.value[6]
        colour, targets, file = result.value[7:]
        assert colour.startswith("ValueError: cannot balance 'colour': it is no split and no node attribute")
        assert targets.startswith("ValueError: cannot balance 'targets': it has shape")
        assert file.startswith("DatasetError:") and "owners.npy" in file


@pytest.mark.parametrize(
    ("how", "stage"),
    [("kill", "translating sources"), ("stop", "assigning owners"), *in_all(("kill", "reading edges"))],
)
def test_a_rank_that_is_lost_is_named(how: str, stage: str) -> None:
    results = run_ranks(
        job_partition.fault,
        3,
        {"how": how, "stage": stage, "victim": 1, "timeout": 6.0},
        never_end=[1] if how == "stop" else [],
        check=False,
    )
    for result in (results[0], results[2]):
        assert result.code == 0, result.stderr
        assert result.value["error"] == "PeerError" and result.value["ranks"] == [1], result.value
        assert ("is stopped" if how == "stop" else "no longer exists") in result.value["text"]
        assert "partition" in result.value["text"]


@pytest.mark.parametrize(
    ("slack", "says"),
    [
        (0.9, "'train' must be at least 1, not 0.9; 1.05 allows"),
        (float("nan"), "'train' must be at least 1, not nan; 1.05 allows"),
        (float("inf"), "'train' must be finite, not inf; leave out a load"),
    ],
)
def test_a_slack_is_a_finite_number_of_at_least_one(slack: float, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Multilevel({"nodes": 1.05, "train": slack})


def test_no_limit_is_more_than_there_is() -> None:
    total = torch.tensor([10, 10, 10, 0])
    balance = Balance.of(4, total, torch.tensor([1.0, 1.5, 1e300, 1e300], dtype=torch.float64))
    assert balance.limit.tolist() == [3, 3, 10, 0]


Weights = list[tuple[int, int]]


def loads_of(weights: Weights) -> list[list[int]]:
    columns = [[1] * len(weights), *([row[k] for row in weights] for k in (0, 1))]
    return [[0, *accumulate(column)] for column in columns]


def fullest(offsets: list[int], sums: list[list[int]]) -> float:
    ranks = len(offsets) - 1
    found = [
        (load[end] - load[begin]) * ranks / load[-1]
        for load in sums
        if load[-1]
        for begin, end in pairwise(offsets)
    ]
    return max(found, default=1.0)


def cut(weights: Weights, ranks: int) -> list[int]:
    loads: list[Load] = [load.__getitem__ for load in loads_of(weights)]
    return balanced_offsets(len(weights), loads, ranks)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 1)), max_size=9), st.integers(1, 4))
def test_no_other_ranges_are_better(weights: Weights, ranks: int) -> None:
    offsets, sums = cut(weights, ranks), loads_of(weights)
    assert len(offsets) == ranks + 1 and offsets[0] == 0 and offsets[-1] == len(weights)
    assert offsets == sorted(offsets)
    ways = combinations_with_replacement(range(len(weights) + 1), ranks - 1)
    best = min(fullest([0, *way, len(weights)], sums) for way in ways)
    assert fullest(offsets, sums) <= best * 1.002


def test_one_heavy_node_does_not_leave_one_range_with_nearly_all_others() -> None:
    weights = [(10_000 if row == 400 else 1, row % 2) for row in range(1000)]
    offsets = cut(weights, 4)
    sizes = [end - begin for begin, end in pairwise(offsets)]
    assert max(sizes) <= 600 and fullest(offsets, loads_of(weights)) < 3.7


@each
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("rows", [0, 1, 5, 700, 2304, 2305, 4000])
def test_ranks_share_rows_in_order_and_evenly(rows: int, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move, "ROUND_BYTES", 1)  # the fewest rows per round, 256
    rounds = run_threads(lambda comm: list(shared_rounds(comm, rows, 8)), ranks)
    assert len({len(one) for one in rounds}) == 1
    in_turn = [row for turn in zip(*rounds, strict=True) for own in turn for row in own]
    assert in_turn == list(range(rows))
    for turn in zip(*rounds, strict=True):
        sizes = [len(own) for own in turn]
        assert max(sizes) <= rows_per_round(8, ranks) and max(sizes) * (ranks - 1) < sum(sizes) + ranks


@pytest.mark.parametrize("most", [None, 5, 256, 257, 1000])
def test_ranks_ask_for_the_most_rows_only_if_they_may_not_fit_one_round(
    most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move, "ROUND_BYTES", 1)

    def run(comm: Communicator) -> tuple[list[range], int]:
        rows = comm.rank * min(most or 1000, 600) // 2
        found = list(own_rounds(comm, rows, 8, most))
        assert [row for own in found for row in own] == list(range(rows))
        return found, comm.counters.snapshot().total.count_rounds

    found = run_threads(run, 3)
    assert len({len(own) for own, _ in found}) == 1
    assert {asked for _, asked in found} == {0 if most and most <= 256 else 1}


@given(st.integers(0, 30), st.integers(1, 6), st.integers(0, 3), st.sampled_from([torch.int32, torch.int64]))
def test_rows_are_added_as_torch_adds_them(n: int, m: int, k: int, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(n * 100 + m * 10 + k)
    row = torch.randint(0, m, (n,), generator=draw)
    values, out = (torch.randint(-9, 9, (size, k), generator=draw).to(dtype) for size in (n, m))
    wanted = out.clone().index_add_(0, row, values)
    assert add_rows(out, row.int(), values) is out and torch.equal(out, wanted)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ghosts_are_refreshed_while_ranks_tell_each_other_other_numbers(ranks: int) -> None:
    bounds = torch.arange(ranks + 1) * 10

    def run(comm: Communicator) -> None:
        first = int(bounds[comm.rank])
        others = torch.cat([torch.arange(first), torch.arange(first + 10, 10 * ranks)])
        own = torch.tensor([comm.rank, -7])
        ghosts, every = Ghosts.of(comm, others[:: 2 + comm.rank].contiguous(), bounds, own)
        assert every.tolist() == [[rank, -7] for rank in range(ranks)]
        values = torch.full((10 + ghosts.ids.numel(),), -1)
        values[:10] = 7 * torch.arange(first, first + 10)
        told = ghosts.refresh_and_tell(
            comm, values, [torch.full((comm.rank + to,), 100 * comm.rank + to) for to in range(ranks)]
        )
        assert torch.equal(values[10:], 7 * ghosts.ids)
        wanted = [torch.full((source + comm.rank,), 100 * source + comm.rank) for source in range(ranks)]
        assert [one.tolist() for one in told] == [one.tolist() for one in wanted]
        assert torch.equal(ghosts.pull(comm, values[:10]), values[10:])

    run_threads(run, ranks)
