"""Sampling over ranks gives what one process gives, in the rounds that the design promises."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.ranks import run_ranks

JOBS = "tests.sample.job_relay"


@pytest.mark.parametrize(("ranks", "cases"), [(1, 20), (2, 45), (3, 36), (4, 36)])
def test_equal_to_one_process(ranks: int, cases: int) -> None:
    """Graphs, owners, plans, layouts, id widths and seeds differ from case to case."""
    results = run_ranks(f"{JOBS}:equal_to_one_process", ranks, {"count": cases})
    minibatches = sum(result.value[0] for result in results)
    edges = sum(result.value[1] for result in results)
    assert minibatches > 2 * cases and edges > 100 * cases


@pytest.mark.parametrize("edge_ids", [False, True])
@pytest.mark.parametrize("seeds_are_own", [False, True])
def test_what_crosses_the_wire(edge_ids: bool, seeds_are_own: bool) -> None:
    """Rows are remote nodes asked for and their edges; bytes are the ids, a byte for each number of
    picks, and little else.
    """
    ranks, minibatches = 3, 4
    arguments = {"edge_ids": edge_ids, "seeds_are_own": seeds_are_own, "minibatches": minibatches}
    results = [result.value for result in run_ranks(f"{JOBS}:counted", ranks, arguments)]
    assert sum(result["sent"][0] for result in results) == sum(result["received"][0] for result in results)
    assert sum(result["sent"][1] for result in results) == sum(result["received"][1] for result in results)
    nodes, edges, blocks = (sum(result["asked"][at] for result in results) for at in range(3))
    assert sum(result["sent"][0] for result in results) == nodes + edges
    assert nodes > 0
    messages = ranks * (ranks - 1) * (3 - seeds_are_own)
    ids = 4 * nodes + (8 if edge_ids else 4) * edges
    padding = sum(result["sent"][1] for result in results) - (ids + nodes + 12 * blocks + 4 * messages)
    assert 0 <= padding <= messages * 3 * 7


@pytest.mark.parametrize(("how", "text"), [("kill", r"no longer exists"), ("stop", r"is stopped")])
def test_a_rank_that_fails_in_the_middle_is_named(how: str, text: str) -> None:
    timeout = 8.0  # for starting, too: a machine may stand still for seconds
    results = run_ranks(
        f"{JOBS}:fault",
        3,
        {"how": how, "victim": 1, "timeout": timeout},
        never_end=[1] if how == "stop" else [],
        check=False,
    )
    for result in (results[0], results[2]):
        assert result.code == 0, result.stderr
        value: dict[str, Any] = result.value
        assert value["error"] == "PeerError" and value["ranks"] == [1], value
        assert re.search(text, value["text"]) and "topology, epoch 1, macrobatch 3" in value["text"]
        assert value["seconds"] < 2 * timeout  # one wait, not two


def test_wrong_arguments_are_told_before_anything_is_exchanged() -> None:
    for result in run_ranks(f"{JOBS}:refusals", 2):
        said = result.value
        assert re.search(r"but this rank owns \d+ to \d+; seeds of other parts need", said["foreign"])
        assert said["outside"].startswith("IndexError: seeds of minibatch 0 holds 10")
        assert "3 with 2 original ids" in said["short"]
        assert "1 lists of seeds came with 0 of original ids" in said["lists"]
        assert "TypeError" in said["dtype"]
        assert f"cannot be on rank {result.rank} of 2" in said["part"]
        assert "gives part" in said["node"] and "99 original ids" in said["node"]


def test_a_rank_with_another_book_is_told() -> None:
    first, second = (result.value for result in run_ranks(f"{JOBS}:wrong_book", 2))
    assert first["ranks"] == [1] and "asked for node 140, but rank 0 owns 0 to 99" in first["text"]
    assert second["ranks"] == [1] and "asked for node 140" in second["text"]
