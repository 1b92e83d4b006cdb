"""Rows arrive whole, in order, and counted."""

from __future__ import annotations

import pytest

from tests.support.ranks import run_ranks
from tests.support.tiers import in_all

JOBS = "tests.comm.job_rows"


@pytest.mark.parametrize("hosts", [[0, 0], [0, 1], *in_all([0] * 4, [0, 0, 1, 1])])
def test_rows_of_every_dtype_and_shape_arrive(hosts: list[int]) -> None:
    run_ranks(f"{JOBS}:exchanges", len(hosts), hosts=hosts)


def test_large_messages_are_cut_into_pieces_that_count_as_one_round() -> None:
    whole = run_ranks(f"{JOBS}:exchanges", 3, {"most": 9, "dtypes": 3})
    pieces = run_ranks(f"{JOBS}:exchanges", 3, {"most": 9, "dtypes": 3, "limit": 7})
    for one, other in zip(whole, pieces, strict=True):
        for counts in (*one.value.values(), *other.value.values()):
            counts.pop("seconds")
        assert one.value == other.value
        assert one.value["features"]["rounds"] == 3 * 5 * 3


@pytest.mark.parametrize("ranks", [2, *in_all(4)])
def test_nobody_sends_anything(ranks: int) -> None:
    run_ranks(f"{JOBS}:nothing_at_all", ranks)


def test_attributes_of_different_types_travel_in_one_exchange() -> None:
    run_ranks(f"{JOBS}:packed_rows", 3)


@pytest.mark.parametrize("hosts", [[0, 0], [0, 1], [0, 0, 1]])
def test_counts_are_exact(hosts: list[int]) -> None:
    ranks = len(hosts)
    message = 13 * 8 + 512 * (
        len(set(hosts)) > 1
    )  # bytes of a count message; the backend also moves its room
    for result in run_ranks(f"{JOBS}:counted", ranks, hosts=hosts):
        counts, total = result.value
        others = [rank for rank in range(ranks) if rank != result.rank]
        features, gradients = counts["features"], counts["gradients"]
        assert (features["rounds"], features["count_rounds"]) == (1, 1)
        assert features["rows_sent"] == (result.rank + 1) * len(others)
        assert features["rows_received"] == sum(rank + 1 for rank in others)
        assert features["bytes_sent"] == 12 * features["rows_sent"]
        assert features["bytes_received"] == 12 * features["rows_received"]
        assert features["count_bytes"] == 2 * len(others) * message
        assert counts["topology"]["rounds"] == 2
        assert counts["topology"]["bytes_sent"] == 2 * features["bytes_sent"]
        # where the rows hold other things, those are counted
        assert counts["partition"]["rows_sent"] == (result.rank + 7) * len(others)
        assert counts["partition"]["rows_received"] == sum(rank + 7 for rank in others)
        assert counts["partition"]["bytes_received"] == features["bytes_received"]
        # Ten floats are gathered in one round. Four thousand go in pieces out and in sums back,
        # both of which have room in the messages of one host.
        count_rounds = 1 + (2 if len(set(hosts)) == 1 else 1)
        assert (gradients["rounds"], gradients["count_rounds"]) == (1 + 2, count_rounds)
        sizes = [4000 // ranks + (rank < 4000 % ranks) for rank in range(ranks)]
        large = 4 * (sum(sizes[rank] for rank in others) + sizes[result.rank] * len(others))
        assert gradients["bytes_sent"] == 40 * len(others) + large
        assert (counts["control"]["rounds"], counts["control"]["count_rounds"]) == (0, 1)
        assert total == {"total": 7}
