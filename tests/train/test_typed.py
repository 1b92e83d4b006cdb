"""Training on graphs with named node types, with learned rows of nodes without features."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyg_batchgnn.data import TypedGeneratorSpec, generate_typed_folder, load_dataset, write_folder
from tests.support.bare_graphs import without_features
from tests.support.launched_runs import RUN, assert_ended, assert_same_tensors, launch, train
from tests.support.ranks import run_ranks
from tests.support.tiers import ALL as ALL_TIERS
from tests.support.tiers import all_only
from tests.support.training_runs import batchgnn, records


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("typed") / "graph"
    return generate_typed_folder(TypedGeneratorSpec(papers=300, seed=1, classes=3, features=8), path)


def predicted(run: Path, out: Path, *options: str) -> np.ndarray:
    assert batchgnn("predict", run, "--out", out, "--threads", 1, *options) == 0
    found: np.ndarray = np.load(out / "probabilities.npy", allow_pickle=False)
    return found


def rows(run: Path) -> dict[str, bytes]:
    files = (run / "embeddings").rglob("*.npy")
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def test_two_ranks_train_as_one_process_with_the_same_seeds(folder: Path, tmp_path: Path) -> None:
    """With all neighbours a node's loss does not depend on who shares its minibatch."""
    options = ["--node-type", "paper", "--schedule", "global", "--fanout", "-1,-1", "--dropout", 0]
    options += ["--test-fanout", "-1,-1", "--last-batch", "keep", "--embed-rule", "sgd", "--embed-lr", 1]
    bare = write_folder(without_features(load_dataset(folder)), tmp_path / "bare graph")
    one, two = (tmp_path / str(ranks) for ranks in (1, 2))

    def arguments(ranks: int) -> list[str]:
        return train(bare, tmp_path / str(ranks), *options, "--batch-size", 48 // ranks)

    def embedding(out: str) -> list[str]:
        return ["predict", str(two), "--embeddings-of", "all", "--out", str(two / out), "--threads", "1"]

    for seen in launch(2, {"arguments": arguments(2)}, {"arguments": embedding("rows of ranks")}):
        assert_ended(seen, 0)
    assert batchgnn(*arguments(1)) == 0
    lines = records(one)
    for line, wanted in zip(records(two), lines, strict=True):
        assert line["train"]["loss"] == pytest.approx(wanted["train"]["loss"], rel=1e-4)
        assert line["val"]["loss"] == pytest.approx(wanted["val"]["loss"], rel=1e-3)
    assert lines[-1]["train"]["loss"] < lines[0]["train"]["loss"]
    outputs = [predicted(run, run / "outputs") for run in (one, two)]
    np.testing.assert_allclose(*outputs, atol=1e-4)
    exact = predicted(two, two / "exact", "--exact", "--embeddings")
    np.testing.assert_allclose(exact, outputs[1], atol=1e-5)
    papers = np.load(two / "exact" / "embeddings.npy")
    assert papers.shape == (300, 16)
    assert batchgnn(*embedding("rows")) == 0
    found, expected = (
        {path.name: np.load(path) for path in (two / name).glob("*.npy")}
        for name in ("rows of ranks", "rows")
    )
    assert expected.keys() == {"author.npy", "field.npy", "paper.npy"}, "papers read no institutions"
    assert np.array_equal(expected["paper.npy"], papers)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, atol=1e-5)


#: Options of a run: learned rows of types without features; of all types, beside features.
BARE = ["--node-type", "paper", "--prefetch", 1, "--feature-cache", "1MiB", "--model", "gin"]
ALL = ["--node-type", "author", "--schedule", "global", "--hybrid", "--model", "gat", "--heads", 2]
RESUMED = (
    *([BARE] if ALL_TIERS else []),
    [*ALL, "--embed", "all", "--embed-columns", 8, "--embed-rule", "adagrad", "--evaluation", "exact"],
)


def test_a_run_stopped_within_an_epoch_resumes_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    commands: list[dict[str, Any]] = []
    for number, options in enumerate(RESUMED):
        straight, broken = tmp_path / f"straight {number}", tmp_path / f"broken {number}"
        commands += [
            {"arguments": train(folder, straight, *options, "--batch-size", 16)},
            {"arguments": train(folder, broken, *options, "--batch-size", 16), "fault": [1, 7, "SIGINT"]},
            {"arguments": ["train", "--resume", str(broken), "--macrobatch", "2"]},
        ]
    seen = launch(2, *commands)
    for number in range(len(RESUMED)):
        whole, first, rest = seen[3 * number : 3 * number + 3]
        assert_ended(whole + rest, 0)
        assert_ended(first, 130)
        for undisturbed, before, after in zip(whole, first, rest, strict=True):
            assert before["seeds"] + after["seeds"] == undisturbed["seeds"]
            assert before["losses"] + after["losses"] == undisturbed["losses"]
        straight, broken = tmp_path / f"straight {number}", tmp_path / f"broken {number}"
        assert_same_tensors(straight, broken)
        assert rows(straight) == rows(broken) and rows(straight)
        assert records(straight) == records(broken)


#: Options of a run on nodes and of one on links.
NODES, LINKS = (
    ["--node-type", "paper", "--batch-size", 16, "--timeout", 20],
    ["--task", "link", "--edge-type", "author,writes,paper", "--batch-size", 80, "--timeout", 20],
)


@all_only
def test_a_killed_rank_is_named_and_the_run_ends_with_the_same_weights(folder: Path, tmp_path: Path) -> None:
    held = f"{folder}:hold_out=0.1,links=author__writes__paper"
    cases: dict[str, list[Any]] = {"nodes": [folder, *NODES], "links": [held, *LINKS]}

    def arguments(name: str, kind: str) -> list[str]:
        data, *options = cases[name]
        return train(data, tmp_path / kind / name, *options)

    for seen in launch(2, *({"arguments": arguments(name, "straight")} for name in cases)):
        assert_ended(seen, 0)
    for name in cases:
        command = {"arguments": arguments(name, "broken"), "fault": [1, 7, "SIGKILL"]}
        first, second = run_ranks(RUN, 2, {"commands": [command]}, timeout=100.0, check=False, whole_end=True)
        assert second.code == -signal.SIGKILL and first.code == 0, first.stderr
        (stopped,) = first.value
        assert stopped["status"] == 3
        assert re.search(r"rank 1 .*no longer exists", stopped["err"]), stopped["err"]
    resumed = [["train", "--resume", str(tmp_path / "broken" / name)] for name in cases]
    for seen in launch(2, *({"arguments": one} for one in resumed)):
        assert_ended(seen, 0)
    for name in cases:
        whole, broken = tmp_path / "straight" / name, tmp_path / "broken" / name
        assert_same_tensors(whole, broken)
        assert rows(whole) == rows(broken) and rows(whole)
