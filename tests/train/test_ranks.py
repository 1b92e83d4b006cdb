"""Runs over ranks: resumed, interrupted, with faults, and equal to one process."""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from pyg_batchgnn.comm import Communicator
from pyg_batchgnn.data import Dataset, GeneratorSpec, generate_folder
from pyg_batchgnn.train.errors import FirstRankError, TrainError
from pyg_batchgnn.train.ranks import Ranks
from tests.support.backends import needs_ccl
from tests.support.launched_runs import RUN, assert_ended, assert_same_tensors, launch, train
from tests.support.leftovers import nothing_is_left
from tests.support.ranks import RankResult, run_ranks
from tests.support.thread_ranks import run_threads
from tests.support.tiers import ALL, in_all
from tests.support.training_runs import batchgnn, mistake, records, weights

STEPS_OF_TWO = 13  # 1,185 training nodes by 2 x 48, the last step incomplete

#: Ranks, who is asked to stop, options: running statistics, dropout, ranks of
#: unequal work, caches and pushes that are under way.
RESUMED = [
    *in_all((2, 1, ["--model", "gin", "--schedule", "balanced", "--prefetch", 1])),
    *in_all((3, 2, ["--model", "gin", "--schedule", "local", "--partition", "contiguous"])),
    *in_all((4, 0, ["--model", "sage", "--schedule", "global", "--hybrid"])),
    (2, 1, ["--model", "gat", "--remote", "historical", "--push", 40, "--life-span", 3, "--delay", 2]),
    *in_all((3, 0, ["--model", "gin", "--remote", "historical", "--push", "none", "--partition", "ldg"])),
]


@pytest.mark.parametrize(("ranks", "asked", "options"), RESUMED)
def test_a_run_that_one_rank_was_asked_to_stop_resumes_bit_for_bit(
    graph_folder: Path, tmp_path: Path, ranks: int, asked: int, options: list[object]
) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    at = 240 // (48 * ranks) + 1
    whole, first, rest = launch(
        ranks,
        {"arguments": train(graph_folder, straight, *options)},
        {"arguments": train(graph_folder, broken, *options), "fault": [asked, at, "SIGINT"]},
        {"arguments": ["train", "--resume", str(broken), "--macrobatch", "2"]},
    )
    assert_ended(whole + rest, 0)
    assert_ended(first, 130)
    for undisturbed, before, after in zip(whole, first, rest, strict=True):
        assert len(before["seeds"]) == at + 1, "all ranks stop at the same minibatch"
        assert before["seeds"] + after["seeds"] == undisturbed["seeds"]
        assert before["losses"] + after["losses"] == undisturbed["losses"]
    assert_same_tensors(straight, broken)
    assert records(straight) == records(broken)
    assert f"{ranks} on 1 host" in whole[0]["out"] and "range over ranks" in whole[0]["out"]
    assert all(seen["out"] == "" for seen in whole[1:]), "only the first rank reports"
    _check_reports(straight, ranks)
    _check_figures(straight, "historical" in options)


def _check_reports(run: Path, ranks: int) -> None:
    result = json.loads((run / "result.json").read_text())
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert result["ranks"] == last["ranks"] == ranks
    for name, (least, most) in result["phase_ranges"].items():
        assert least <= result["phases"][name] * (1 + 1e-9) and result["phases"][name] <= most * (1 + 1e-9)
    assert last["imbalance"]["edges"] >= 1.0 and last["imbalance"]["seconds"] >= 1.0
    assert last["phases"]["exchange"] > 0 and last["phases"]["sample"] > 0


def _check_figures(run: Path, historical: bool) -> None:
    figures = json.loads((run / "result.json").read_text())["historical"]
    assert (figures is not None) == historical
    if figures is not None:
        assert len(figures["hit_rates"]) == len(figures["edges_left_out"]) == 2
        assert all(0 < rate <= 1 for rate in figures["hit_rates"])
        assert all(0 <= share < 1 for share in figures["edges_left_out"])
        assert figures["bytes_pushed"] > 8 * figures["rows_pushed"] > 0
        assert figures["waited_seconds"] >= 0


def test_global_training_equals_one_process_at_the_same_global_batch(
    graph_folder: Path, tmp_path: Path
) -> None:
    """With all neighbours a node's loss does not depend on who shares its minibatch."""
    options = ["--schedule", "global", "--fanout", "-1,-1", "--dropout", 0, "--test-fanout", "-1,-1"]
    options += ["--last-batch", "keep", "--set", "sampling.test_batch_size=64"]
    found = []
    for ranks, size in ((1, 96), (3, 32) if ALL else (2, 48)):
        run = tmp_path / str(ranks)
        command = {"arguments": train(graph_folder, run, *options, "--batch-size", size)}
        (seen,) = launch(ranks, command)
        assert_ended(seen, 0)
        steps = list(zip(*(one["losses"] for one in seen), strict=True))
        nodes = [sorted(chain(*step)) for step in zip(*(one["seeds"] for one in seen), strict=True)]
        found.append(([sum(losses) for losses in steps], nodes, weights(run), records(run)))
    one, *others = found
    assert len(one[0]) == 2 * STEPS_OF_TWO
    for losses, nodes, tensors, lines in others:
        assert nodes == one[1], "every step has the same training nodes"
        assert losses == pytest.approx(one[0], rel=1e-4)
        for name, tensor in one[2].items():
            if name.startswith("/model"):
                torch.testing.assert_close(tensors[name], tensor, rtol=1e-3, atol=1e-4)
        for line, expected in zip(lines, one[3], strict=True):
            assert line["train"]["loss"] == pytest.approx(expected["train"]["loss"], rel=1e-4)
            assert line["val"]["loss"] == pytest.approx(expected["val"]["loss"], rel=1e-3)
            assert line["val"]["accuracy"] == pytest.approx(expected["val"]["accuracy"], abs=0.006)


@pytest.mark.parametrize(("before", "after"), [(2, 1), *in_all((2, 3), (3, 1), (1, 4))])
def test_another_number_of_ranks_goes_on_with_the_same_minibatches(
    graph_folder: Path, tmp_path: Path, before: int, after: int
) -> None:
    """Minibatch g, counted from the first one left, goes to rank g modulo R."""
    options = ["--schedule", "global", "--last-batch", "keep", "--model", "gin", "--epochs", 1]
    straight, run = tmp_path / "straight", tmp_path / "run"
    (whole,) = launch(1, {"arguments": train(graph_folder, straight, *options)})
    fault = [before - 1, 2, "SIGINT"]
    (first,) = launch(before, {"arguments": train(graph_folder, run, *options), "fault": fault})
    (rest,) = launch(after, {"arguments": ["train", "--resume", str(run)]})
    assert_ended(whole + rest, 0)
    assert_ended(first, 130)
    trained, expected, found = 3 * before, whole[0]["seeds"], _in_turns(rest)
    assert _in_turns(first)[:trained] == expected[:trained]
    assert found[: len(expected) - trained] == expected[trained:]
    assert not any(found[len(expected) - trained :]), "only empty minibatches fill the last step"
    assert records(run)[0]["minibatches"] == len(expected)


def _in_turns(seen: list[dict[str, Any]]) -> list[list[int]]:
    return [seeds for step in zip(*(one["seeds"] for one in seen), strict=True) for seeds in step]


def test_evaluation_on_any_number_of_ranks_equals_one_process(graph_folder: Path, tmp_path: Path) -> None:
    """A finished run is tested again; one with the local schedule is not resumed."""
    for schedule, model in (("global", "gin"), ("local", "sage")):
        run = tmp_path / schedule
        assert batchgnn(*train(graph_folder, run, "--schedule", schedule, "--model", model)) == 0
    run = tmp_path / "global"
    result = json.loads((run / "result.json").read_text())
    for ranks in (2, 3) if ALL else (2,):
        commands = [
            {"arguments": ["train", "--resume", str(tmp_path / name)]} for name in ("global", "local")
        ]
        tested, refused = launch(ranks, *commands)
        assert_ended(tested, 0)
        again = json.loads((run / "result.json").read_text())
        assert again["test"] == pytest.approx(result["test"], rel=1e-12) and again["ranks"] == ranks
        assert_ended(refused, 2)
        assert f"the run had 1 rank(s), now there are {ranks}: with ranks.schedule=local" in refused[0]["err"]


def test_who_owns_a_node_changes_no_bit_of_global_training(graph_folder: Path, tmp_path: Path) -> None:
    saved = tmp_path / "parts"
    of_parts: list[object] = ["--partition", saved, "--feature-cache", "20kB"]
    ways: dict[str, list[object]] = {
        "random": ["--partition", "random"],
        "hybrid": ["--partition", "fennel", "--hybrid", "--prefetch", 1],
        "saved": [*of_parts, "--memory-budget", "60kB", "--macrobatch-size", 3, "--fetch-size", 2],
    }
    assert batchgnn("partition", graph_folder, "--out", saved, "--parts", 2, "--policy", "ldg") == 0
    usual = ["--schedule", "global", "--epochs", 1]
    commands = [{"arguments": train(graph_folder, tmp_path / way, *usual, *ways[way])} for way in ways]
    for seen in launch(2, *commands, hosts=[0, 1]):
        assert_ended(seen, 0)
    assert "20.0 kB of remote rows kept" in seen[0]["out"]
    for way in ways:
        assert_same_tensors(tmp_path / "random", tmp_path / way)
        assert records(tmp_path / "random") == records(tmp_path / way)


def test_each_rank_has_its_own_threads(graph_folder: Path, tmp_path: Path) -> None:
    """At the start and when the run is resumed; where their number changes bits, it must be one."""
    straight, broken, refused = tmp_path / "straight", tmp_path / "broken", tmp_path / "refused"
    usual = ["--schedule", "local", "--epochs", 1]

    def by_rank(run: Path, *options: object) -> list[list[str]]:
        return [train(graph_folder, run, *usual, "--threads", count, *options) for count in (3, 2)]

    whole, first, rest, other = launch(
        2,
        {"arguments": train(graph_folder, straight, *usual)},
        {"by_rank": by_rank(broken, "--resume", "auto"), "fault": [1, 3, "SIGINT"]},
        {"by_rank": by_rank(broken, "--resume", "auto")},
        {"by_rank": by_rank(refused, "--set", "run.matrix_product=torch")},
    )
    assert_ended(whole + rest, 0)
    assert_ended(first, 130)
    assert [seen["threads"] for seen in (*whole, *first, *rest)] == [1, 1, 3, 2, 3, 2]
    assert_same_tensors(straight, broken)
    assert_ended(other, 2)
    assert "run.threads: 3 on rank 0, 2 on rank 1" in other[0]["err"]


def test_a_partition_of_a_graph_with_other_features_is_refused(graph_folder: Path, tmp_path: Path) -> None:
    spec = GeneratorSpec(nodes=2000, seed=3, degree=8.0, classes=4, features=16, signal=0.1)
    other, saved = generate_folder(spec, tmp_path / "other"), tmp_path / "parts"
    assert batchgnn("partition", other, "--out", saved, "--parts", 2) == 0
    (seen,) = launch(2, {"arguments": train(graph_folder, tmp_path / "run", "--partition", saved)})
    assert_ended(seen, 2)
    assert "as many nodes and edges" in seen[0]["err"] and "anew" in seen[0]["err"]


@needs_ccl
def test_training_over_ccl_ends_with_the_weights_of_gloo(graph_folder: Path, tmp_path: Path) -> None:
    for backend in ("gloo", "ccl"):
        run = tmp_path / backend
        (seen,) = launch(2, {"arguments": train(graph_folder, run, "--backend", backend, "--epochs", 1)})
        assert_ended(seen, 0)
        assert f", {backend}" in seen[0]["out"]
    assert "ccl over shared memory" in " ".join(seen[0]["out"].split())
    assert_same_tensors(tmp_path / "gloo", tmp_path / "ccl")


def test_a_backend_that_torch_lacks_is_a_mistake_of_one_line(
    graph_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = train(graph_folder, tmp_path / "run", "--backend", "x")
    assert "available here: gloo" in mistake(capsys, *arguments)
    world = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in world.items():
        monkeypatch.setenv(name, value)
    error = mistake(capsys, *arguments)
    assert error.startswith("batchgnn: rank 0: --backend is 'x'")


@pytest.mark.parametrize("parts", [*in_all(2), 3])
def test_every_training_node_is_trained_whatever_the_number_of_saved_parts(
    graph_folder: Path, small_graph: Dataset, tmp_path: Path, parts: int
) -> None:
    saved = tmp_path / "parts"
    assert batchgnn("partition", graph_folder, "--out", saved, "--parts", parts) == 0
    options = ["--schedule", "local", "--last-batch", "keep", "--partition", saved, "--epochs", 1]
    (seen,) = launch(2, {"arguments": train(graph_folder, tmp_path / "run", *options)})
    assert_ended(seen, 0)
    trained = sorted(chain.from_iterable(chain.from_iterable(one["seeds"] for one in seen)))
    assert trained == small_graph.split("train").sort().values.tolist()


@pytest.mark.parametrize(
    ("failing", "reported"),
    [((), None), ((1,), "rank 1: no file of 1"), ((0, 2), "no file of 0"), ((0, 1, 2), "no file of 0")],
)
def test_the_first_rank_reports_an_error_of_any_rank(failing: tuple[int, ...], reported: str | None) -> None:
    ends: dict[int, Exception | None] = {}

    def job(comm: Communicator) -> None:
        ranks = Ranks(comm, comm)
        ends[ranks.rank] = None
        try:
            with ranks.any_error():
                if ranks.rank in failing:
                    raise TrainError(f"no file of {ranks.rank}")
        except (TrainError, FirstRankError) as error:
            ends[ranks.rank] = error

    run_threads(job, 3)
    if reported is None:
        assert ends == dict.fromkeys(range(3))
        return
    assert isinstance(ends[0], TrainError) and str(ends[0]) == reported
    assert isinstance(ends[1], FirstRankError) and isinstance(ends[2], FirstRankError)


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
        *in_all(("SIGSTOP", 2, "exact", r"is stopped \(SIGSTOP")),
        *in_all(("SIGKILL", 2, "historical", "no longer exists")),
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
