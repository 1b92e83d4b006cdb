"""The multilevel policy: valid, deterministic, balanced, and better than streaming."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.ranks import run_ranks
from tests.support.tiers import in_all

JOBS = "tests.partition.job_multilevel"


@pytest.mark.parametrize("ranks", [*in_all(1), 3])
def test_every_node_has_an_owner_and_runs_repeat(ranks: int) -> None:
    run_ranks(f"{JOBS}:everywhere_valid", ranks)


@pytest.mark.parametrize("ranks", [*in_all(1), 3])
def test_graphs_of_all_levels_are_the_obvious_ones(ranks: int) -> None:
    run_ranks(f"{JOBS}:levels", ranks)


def test_memory_is_bounded_by_the_share(tmp_path: Path) -> None:
    """At most twice the share and some small rounds, where clusters join hardly any edges."""
    nodes, edges = 100_000, 4_000_000
    draw = np.random.default_rng(1)
    np.save(tmp_path / "edge_index.npy", draw.integers(0, nodes, (2, edges), dtype=np.int32))
    for result in run_ranks(f"{JOBS}:memory", 2, {"folder": str(tmp_path)}):
        share, most = result.value
        assert most < 2 * share + (32 << 20), (share, most)


def test_the_heaviest_edges_are_left_at_both_ends() -> None:
    run_ranks(f"{JOBS}:heaviest", 2)


@pytest.mark.parametrize(("ranks", "parts", "cut"), [(1, 4, 0.11), (2, 2, 0.11), (3, 8, 0.22)])
def test_communities_stay_whole_and_all_loads_are_balanced(ranks: int, parts: int, cut: float) -> None:
    """One edge of ten leaves its community."""
    balance = {"nodes": 1.05, "edges": 1.05, "train": 1.05}
    found = run_ranks(f"{JOBS}:quality", ranks, {"parts": parts, "balance": balance})[0].value
    assert found["cut"] < cut, found
    assert max(found[load] for load in balance) <= 1.05, found


@pytest.mark.parametrize(("ranks", "hosts"), [(4, None), (1, 2)])
def test_few_edges_join_hosts(ranks: int, hosts: int | None) -> None:
    """One edge of twenty leads anywhere, so one of forty to the other half."""
    of_ranks = [0, 0, 1, 1] if hosts is None else None
    found = run_ranks(f"{JOBS}:two_levels", ranks, {"hosts": hosts}, hosts=of_ranks)[0].value
    assert found["between"] < 0.035, found
    assert found["cut"] < 0.2, found
    assert max(found["nodes"], found["edges"]) <= 1.05, found


def test_threads_do_not_matter() -> None:
    found = [run_ranks(f"{JOBS}:owners", 2, {"threads": threads})[0].value for threads in (1, 2)]
    assert found[0] == found[1]


def test_mistakes_are_told_on_every_rank() -> None:
    for result in run_ranks(f"{JOBS}:mistakes", 2):
        colour, targets, file = result.value
        assert colour.startswith("ValueError: cannot balance 'colour': it is no split and no node attribute")
        assert targets.startswith("ValueError: cannot balance 'targets': it has shape")
        assert file.startswith("DatasetError:") and "owners.npy" in file


def test_owners_come_from_a_file(tmp_path: Path) -> None:
    np.save(
        tmp_path / "owners.npy",
        np.arange(4800, dtype=np.int16) * 7 % 2,
    )
    run_ranks(f"{JOBS}:given_owners", 2, {"file": str(tmp_path / "owners.npy")})


def test_what_cannot_be_balanced_is_told_with_the_reason() -> None:
    results = run_ranks(f"{JOBS}:unmet", 2)
    (hub,), fine = results[0].value
    assert "of in-edges, more than 1.05: one node alone has 3.00 times the mean" in hub
    assert fine == [] and results[1].value == [[], []]


@pytest.mark.parametrize("ranks", [2])
def test_every_node_type_is_balanced_apart(ranks: int, tmp_path: Path) -> None:
    found = run_ranks(f"{JOBS}:typed", ranks, {"file": str(tmp_path / "report.png")})[0].value
    cut = found.pop("cut")
    assert cut < 0.12, cut
    assert max(found.values()) <= 1.05, found
    assert (tmp_path / "report.png").stat().st_size > 10_000
