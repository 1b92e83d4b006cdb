"""Training on links over two ranks: as in one process, resumed, and its predictions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pyg_batchgnn.data import (
    Dataset,
    EdgeSet,
    LinkSplit,
    NodeSet,
    load_dataset,
    write_folder,
)
from pyg_batchgnn.train.checkpoint import Checkpoint
from pyg_batchgnn.train.config import read_config
from pyg_batchgnn.train.run_folder import RunFolder
from tests.support.bare_graphs import without_features
from tests.support.launched_runs import assert_ended, assert_same_tensors, launch
from tests.support.link_runs import arguments, write_links
from tests.support.training_runs import batchgnn, job_alone, records

#: The fixture `launched` runs many commands on two ranks.
pytestmark = pytest.mark.timeout(500)

#: With a learning rate of 0 each minibatch has the same loss in any order of steps.
FROZEN: list[Any] = ["--epochs", 2, "--lr", 0, "--schedule", "global", "--last-batch", "keep"]
LOCAL: list[Any] = ["--epochs", 2, "--loss", "bpr", "--negatives", 2, "--model", "gin", "--prefetch", 1]
TYPED: list[Any] = ["--edge-type", "user,buys,item", *FROZEN[:2], *FROZEN[4:], "--batch-size", 24]
#: Kinds of predictions, and those that are made of each run.
KINDS = {
    "pairs": ["--pairs", "pairs.npy"],
    "top": ["--top", "6", "--nodes", "nodes.npy"],
    "rows": ["--embeddings-of", "all"],
}
PREDICTED = [("broken", "pairs"), ("broken", "top"), ("fewest", "top"), *(("typed", one) for one in KINDS)]


@dataclass(frozen=True)
class Launched:
    """Runs of two ranks, all in the same two processes.

    Attributes:
        path: the folder of the runs and of their predictions.
        shop: the data set of the typed runs, which holds out links.
        seen: what each rank saw, by command.
    """

    path: Path
    shop: str
    seen: dict[str, list[dict[str, Any]]]

    def result(self, run: str) -> Any:
        """Returns the final figures of a run."""
        return json.loads((self.path / run / "result.json").read_text())


def write_shop(path: Path) -> str:
    """Writes users who buy items, and returns the data set that holds out links of theirs."""
    draw = torch.Generator().manual_seed(0)
    counts = {"user": 60, "item": 40}
    nodes = [NodeSet(name, n, {"x": torch.randn(n, 6, generator=draw)}) for name, n in counts.items()]
    buys = torch.stack([torch.randint(n, (500,), generator=draw) for n in counts.values()])
    back = EdgeSet(("item", "rev_buys", "user"), buys.flip(0).contiguous())
    shop = Dataset("shop", tuple(nodes), (EdgeSet(("user", "buys", "item"), buys), back))
    return f"{write_folder(shop, path)}:hold_out=0.1,links=user__buys__item"


def predicting(path: Path, run: str, name: str, out: Path) -> list[str]:
    """Returns a command that predicts."""
    files = [str(path / word) if word.endswith(".npy") else word for word in KINDS[name]]
    return ["predict", str(path / run), *files, "--out", str(out)]


def few_links(folder: Path, path: Path) -> Path:
    """Writes the same graph with fewer measured links than ranks, and without negatives for one."""
    few = load_dataset(folder)
    links, none = few.edges.links, torch.zeros(2, 0, dtype=torch.int64)
    links["val"] = LinkSplit(links["val"].index[:, :1])
    links["test"] = LinkSplit(links["test"].index[:, :1], {}, none)
    return write_folder(few, path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_links(tmp_path_factory.mktemp("links") / "g")


@pytest.fixture(scope="module")
def launched(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Launched:
    path = tmp_path_factory.mktemp("launched")
    bare = write_folder(without_features(load_dataset(folder)), path / "bare")
    few, shop = few_links(folder, path / "few"), write_shop(path / "shop")
    draw = torch.Generator().manual_seed(1)
    np.save(path / "pairs.npy", torch.randint(40, (90, 2), generator=draw).numpy())
    np.save(path / "nodes.npy", np.array([7, 3, 7, 39, *range(12)]))
    assert batchgnn("partition", shop, "--out", path / "parts", "--parts", 3, "--policy", "ldg") == 0
    made = {
        "frozen": arguments(folder, path / "frozen", *FROZEN),
        "rows": arguments(bare, path / "rows", *FROZEN),
        "straight": arguments(folder, path / "straight", *LOCAL, "--feature-cache", "4kB"),
        "broken": arguments(folder, path / "broken", *LOCAL),
        "resumed": ["train", "--resume", str(path / "broken")],
        "measured": ["evaluate", str(path / "broken"), "--out", str(path / "measured.json")],
        "fewest": arguments(few, path / "fewest", "--epochs", 1, "--decoder", "mlp"),
        "typed": arguments(shop, path / "typed", *TYPED),
        "saved": arguments(shop, path / "saved", *TYPED, "--partition", path / "parts", "--prefetch", 1),
        "typed measured": ["evaluate", str(path / "typed"), "--out", str(path / "typed.json")],
    }
    for run, name in PREDICTED:
        made[f"{run} {name}"] = predicting(path, run, name, path / f"{run} {name}")
    commands: list[dict[str, Any]] = [{"arguments": one} for one in made.values()]
    commands[list(made).index("broken")]["fault"] = [1, 3, "SIGINT"]
    seen = dict(zip(made, launch(2, *commands, hosts=[0, 1], timeout=240.0), strict=True))
    for name, one in seen.items():
        assert_ended(one, 130 if name == "broken" else 0)
    return Launched(path, shop, seen)


def test_two_ranks_are_as_one_process(folder: Path, launched: Launched, tmp_path: Path) -> None:
    for name, data in (("frozen", folder), ("rows", launched.path / "bare")):
        run, alone = launched.path / name, tmp_path / name
        assert batchgnn(*arguments(data, alone, *FROZEN[:4], *FROZEN[6:])) == 0
        for one, other in zip(records(alone), records(run), strict=True):
            for part in ("train", "val"):
                assert one[part] == pytest.approx(other[part], rel=1e-5)
        found = json.loads((alone / "result.json").read_text())["test"]
        assert found == pytest.approx(launched.result(name)["test"], rel=1e-5)
    assert read_config(launched.path / "frozen" / "config.json").task.kind.value == "link"
    assert launched.result("fewest")["test"]["mrr"] == 1.0  # of no negatives
    measured = json.loads((launched.path / "measured.json").read_text())
    assert measured["scores"]["test"] == pytest.approx(launched.result("broken")["test"], abs=1e-9)


def test_a_stopped_run_of_two_ranks_resumes_bit_for_bit(launched: Launched) -> None:
    straight, broken = launched.path / "straight", launched.path / "broken"
    whole, first, rest = (launched.seen[name] for name in ("straight", "broken", "resumed"))
    assert "4.0 kB of remote rows kept" in whole[0]["out"]
    for undisturbed, before, after in zip(whole, first, rest, strict=True):
        assert before["seeds"] + after["seeds"] == undisturbed["seeds"]
        assert before["losses"] + after["losses"] == undisturbed["losses"]
    assert_same_tensors(straight, broken)
    assert records(straight) == records(broken)


def test_two_ranks_predict_as_one_process(
    launched: Launched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyg_batchgnn.train.link_prediction._TARGETS", 16)
    for run, name in PREDICTED:
        out, alone = launched.path / f"{run} {name}", tmp_path / f"{run} {name}"
        seen = launched.seen[out.name]
        assert "written to" in seen[0]["out"] and not seen[1]["out"], "only the first rank reports"
        assert batchgnn(*predicting(launched.path, run, name, alone)) == 0
        assert {path.name for path in out.iterdir()} == {path.name for path in alone.iterdir()}
        assert (out / "META.json").read_text() == (alone / "META.json").read_text()
        assert json.loads((out / "META.json").read_text())["evaluation"] == "exact"
        for path in alone.glob("*.npy"):
            found, expected = np.load(out / path.name), np.load(path)
            assert found.dtype == expected.dtype and found.shape == expected.shape
            np.testing.assert_allclose(found, expected, atol=1e-5)


def test_typed_training_over_ranks_adds_the_gradients_of_a_step(launched: Launched) -> None:
    """One process replays the minibatches of each step, and ends with the same weights."""
    run = launched.path / "typed"
    config = read_config(run / "config.json")
    job = job_alone(config, load_dataset(launched.shop))
    job.network.model.train()
    for epoch in range(config.run.epochs):
        job.train_loader.set_epoch(epoch)
        minibatches = list(job.train_loader)
        for step in zip(minibatches[::2], [*minibatches[1::2], None], strict=False):
            targets = [job.task.targets(job.labels(job.network, one)) for one in step if one is not None]
            job.optimiser.zero_grad()
            for one, wanted in zip(step, targets, strict=False):
                loss = job.task.loss(job.network.outputs(one).logits, wanted)
                (loss * len(wanted) / sum(map(len, targets))).backward()
            job.optimiser.step()
    for name, tensor in Checkpoint.load(RunFolder(run).checkpoint).model.items():
        torch.testing.assert_close(tensor, job.network.model.state_dict()[name], atol=1e-5, rtol=1e-5)
    losses = [one["train"]["loss"] for one in records(run)]
    assert losses[1] < losses[0]


def test_typed_links_that_are_held_out_come_from_saved_parts_too(launched: Launched, tmp_path: Path) -> None:
    """Neither the partition nor prefetching changes a bit, and metrics are those of one process."""
    assert_same_tensors(launched.path / "typed", launched.path / "saved")
    measured = json.loads((launched.path / "typed.json").read_text())
    assert measured["scores"]["test"] == pytest.approx(launched.result("typed")["test"], abs=1e-9)
    assert batchgnn("evaluate", launched.path / "typed", "--out", tmp_path / "alone.json") == 0
    alone = json.loads((tmp_path / "alone.json").read_text())
    assert alone["links"] == measured["links"] and alone["links"]["val"] > 0
    for split, scores in alone["scores"].items():
        assert measured["scores"][split] == pytest.approx(scores, abs=1e-5)
