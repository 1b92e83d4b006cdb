"""Rounds of rows between ranks, and what moves in them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.partition import move
from pyg_batchgnn.partition.move import add_rows, own_rounds, rows_per_round, shared_rounds
from pyg_batchgnn.partition.multilevel.rank_graph import Ghosts
from tests.support.thread_ranks import run_threads


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
