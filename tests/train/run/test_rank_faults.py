"""A rank that dies, stops or differs: the others say so in one line, and nothing is left."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.launched_runs import RUN, train
from tests.support.leftovers import nothing_is_left
from tests.support.ranks import RankResult, run_ranks

TIMEOUT = 6


def faulty(folder: Path, run: Path, name: str, ranks: int, remote: str) -> list[RankResult]:
    """Ranks of which the second one sends itself a signal in the middle of the second epoch."""
    options = ["--timeout", TIMEOUT, "--schedule", "local", "--remote", remote]
    command = {"arguments": train(folder, run, *options), "fault": [1, 15, name]}
    never = [1] if name == "SIGSTOP" else []
    arguments = {"commands": [command]}
    return run_ranks(RUN, ranks, arguments, timeout=60.0, never_end=never, check=False, whole_end=True)


@pytest.mark.parametrize(
    ("name", "ranks", "remote", "text"),
    [
        ("SIGKILL", 3, "exact", "no longer exists"),
        ("SIGSTOP", 2, "exact", r"is stopped \(SIGSTOP"),
        ("SIGKILL", 2, "historical", "no longer exists"),
    ],
)
def test_the_others_name_the_rank_in_one_line(
    graph_folder: Path, tmp_path: Path, name: str, ranks: int, remote: str, text: str
) -> None:
    run = tmp_path / "run"
    with nothing_is_left():
        results = faulty(graph_folder, run, name, ranks, remote)
    for result in results:
        if result.rank == 1:
            continue
        assert result.code == 0 and result.value[0]["status"] == 3, result.stderr
        err = result.value[0]["err"]
        assert err.startswith(f"batchgnn: rank {result.rank}: ") and err.count("\n") == 1, err
        assert re.search(rf"rank 1 .*{text}", err), err
        assert result.value[0]["seconds"] < 2 * TIMEOUT  # one wait, not two
    assert {path.name for path in run.iterdir()} == {"config.json", "metrics.jsonl", "checkpoint.safetensors"}


def test_a_rank_given_something_else_is_told_at_the_start(graph_folder: Path, tmp_path: Path) -> None:
    """Other fanouts, seeds and data sets, and a mistake that only the first rank can see."""
    run, taken = tmp_path / "run", tmp_path / "taken"
    taken.mkdir()
    (taken / "something").touch()
    usual = train(graph_folder, run)
    cases = [
        [usual, train(graph_folder, run, "--fanout", "4,2", "--seed", 6)],
        [train(Path("generated:nodes=300"), run), train(Path("generated:nodes=301"), run)],
        [train(graph_folder, taken)] * 2,
        [["train", "--resume", str(taken)]] * 2,
    ]
    results = run_ranks(RUN, 2, {"commands": [{"by_rank": case} for case in cases]})
    first, second = ("".join(seen["err"] for seen in result.value).splitlines() for result in results)
    for result in results:
        assert [seen["status"] for seen in result.value] == [2] * len(cases), result.stderr
    assert "run.seed: 5 on rank 0, 6 on rank 1; sampling.fanout: [4, 3] on rank 0, [4, 2] on" in first[0]
    assert "data set, num_nodes: 300 on rank 0, 301 on rank 1" in first[1]
    assert "taken is not empty; give another folder" in first[2]
    assert "taken: not a run folder" in first[3]
    assert second == [], "what the first rank says is not said again"
    assert not run.exists()
