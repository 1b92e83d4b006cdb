"""Runs that predict links, in one process and over ranks."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pyg_batchgnn.data import (
    Dataset,
    EdgeSet,
    GeneratorSpec,
    LinkSplit,
    NodeSet,
    generate,
    load_dataset,
    write_folder,
)
from pyg_batchgnn.train.checkpoint import Checkpoint
from pyg_batchgnn.train.config.train_config import TrainConfig, assign, read_config
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graphs import WholeGraph
from pyg_batchgnn.train.link_tasks import PredictedLinks
from pyg_batchgnn.train.network import LinkNetwork, build_network
from pyg_batchgnn.train.run_folder import RunFolder
from tests.support.launched_runs import (
    NODES,
    arguments,
    assert_ended,
    assert_same_tensors,
    launch,
    write_links,
)
from tests.support.tiers import ALL, in_all
from tests.support.training_runs import SMALL, batchgnn, job_alone, mistake, records


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_links(tmp_path_factory.mktemp("links") / "g")


def slow_metrics(scores: Tensor, negatives: Tensor, is_shared: bool) -> dict[str, float]:
    reciprocal, hits = 0.0, 0
    for link, others in zip(scores.tolist(), negatives.tolist(), strict=True):
        above, equal = sum(o > link for o in others), sum(o == link for o in others)
        rank = 1 + above + equal / 2
        reciprocal += 1 / rank
        hits += above + equal < 10 if is_shared else rank <= 10
    return {"mrr": reciprocal / len(scores), "hits@10": hits / len(scores)}


def best_rows(run: Path, dataset: Dataset) -> tuple[LinkNetwork, Tensor]:
    checkpoint = Checkpoint.load(RunFolder(run).checkpoint)
    graph = WholeGraph.of(dataset, checkpoint.config)
    network = build_network(checkpoint.config, graph.inputs, checkpoint.config.model.hidden)
    assert isinstance(network, LinkNetwork)
    network.model.load_state_dict(checkpoint.best)
    network.model.eval()
    with torch.no_grad():
        return network, network.encoder.model(dataset.nodes.tables["x"], dataset.edge_index.long())


def best_scores(run: Path, dataset: Dataset, split: str) -> dict[str, float]:
    """Returns the metrics of the best weights, from one forward pass on the whole graph."""
    network, rows = best_rows(run, dataset)
    with torch.no_grad():
        links = PredictedLinks.of(dataset, read_config(run / "config.json").task).measured(split)
        source, target = links.index.long()
        scores = network.decoder(rows[source], rows[target])
        if isinstance(links.negatives, Tensor):
            shared = network.decoder(*rows[links.negatives.long()])
            return slow_metrics(scores, shared.expand(len(scores), -1), is_shared=True)
        others = network.decoder(rows[source].unsqueeze(1), rows[links.negatives.of(slice(0, len(links)))])
        return slow_metrics(scores, others, is_shared=False)


OTHERS = ["--model", "gin", "--loss", "bpr", "--negatives", 3, "--decoder", "mlp", "--metric", "hits@10"]


@pytest.fixture(scope="module", params=[*in_all(["--model", "sage"]), OTHERS])
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    run = tmp_path_factory.mktemp("trained") / "run"
    assert batchgnn(*arguments(folder, run, "--epochs", 2, *request.param)) == 0
    return run


def test_metrics_are_those_of_the_whole_graph(folder: Path, run: Path) -> None:
    result, dataset = json.loads((run / "result.json").read_text()), load_dataset(folder)
    for split in ("val", "test"):
        for name, score in best_scores(run, dataset, split).items():
            assert result[split][name] == pytest.approx(score, abs=1e-9)
    assert {"hits@1", "hits@20", "loss"} <= result["test"].keys()
    losses = [one["train"]["loss"] for one in records(run)]
    assert losses[1] < losses[0]


def test_evaluate_finds_the_metrics_of_training(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result, out = json.loads((run / "result.json").read_text()), tmp_path / "metrics.json"
    assert batchgnn("evaluate", run, "--splits", "val,test,train", "--out", out) == 0
    found, shown = json.loads(out.read_text()), capsys.readouterr().out
    assert found["evaluation"] == "exact" and found["epoch"] == result["best_epoch"]
    for split in ("val", "test"):
        assert found["scores"][split] == pytest.approx(result[split], abs=1e-9)
        assert f"{split}: MRR {result[split]['mrr']:.4f}" in shown
        assert f"on {found['links'][split]} links" in shown
    assert 0 < found["scores"]["train"]["mrr"] <= 1
    monkeypatch.setattr("pyg_batchgnn.train.evaluate._PAIRS", 1000)  # many pieces
    monkeypatch.setattr("pyg_batchgnn.train.evaluate._NUMBERS", 16 * 30)
    assert batchgnn("evaluate", run, "--out", out) == 0
    for split, scores in json.loads(out.read_text())["scores"].items():
        assert scores == pytest.approx(result[split], rel=1e-6)


def test_pairs_and_partners_have_the_scores_of_the_whole_graph(
    folder: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, rows = best_rows(run, load_dataset(folder))
    with torch.no_grad():
        expected = network.decoder(rows.unsqueeze(1), rows.unsqueeze(0))
    pieces = {"link_prediction._TARGETS": 50, "link_prediction._SCORES": 300, "evaluate._NUMBERS": 99}
    for name, value in pieces.items():
        monkeypatch.setattr(f"pyg_batchgnn.train.{name}", value)  # many pieces
    pairs, nodes = torch.randint(NODES, (130, 2)), torch.tensor([7, 3, 7, 119, *range(20)])
    np.save(tmp_path / "pairs.npy", pairs.numpy().astype(np.int32))
    np.save(tmp_path / "nodes.npy", nodes.numpy())
    assert batchgnn("predict", run, "--pairs", tmp_path / "pairs.npy", "--out", tmp_path / "scored") == 0
    given = ["--top", 5, "--nodes", tmp_path / "nodes.npy", "--out", tmp_path / "best"]
    assert batchgnn("predict", run, *given) == 0
    scored, best = (
        {path.stem: torch.from_numpy(np.load(path)) for path in (tmp_path / name).glob("*.npy")}
        for name in ("scored", "best")
    )
    assert torch.equal(scored["pairs"], pairs) and scored["scores"].dtype == torch.float32
    torch.testing.assert_close(scored["scores"], expected[pairs[:, 0], pairs[:, 1]], atol=1e-5, rtol=1e-4)
    expected.fill_diagonal_(-torch.inf)
    assert torch.equal(best["node_ids"], nodes) and not (best["partners"] == nodes.unsqueeze(1)).any()
    torch.testing.assert_close(best["scores"], expected[nodes].topk(5).values, atol=1e-5, rtol=1e-4)
    found = expected[nodes].gather(1, best["partners"])
    torch.testing.assert_close(best["scores"], found, atol=1e-5, rtol=1e-4)


def test_predictions_of_links_that_cannot_be_made_are_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ids.npy"
    for ids, options, fact in (
        ([[0, NODES]], ["--pairs", file], f"node {NODES} is not in 0..{NODES - 1}"),
        ([[-1, 0]], ["--pairs", file], "node -1 is not in"),
        ([[0, 1, 2]], ["--pairs", file], "[1, 3], but pairs of ids are [P, 2]"),
        ([0.5], ["--top", 3, "--nodes", file], "array of integers"),
        ([0], ["--top", NODES, "--nodes", file], f"give 1..{NODES - 1}"),
        ([0], ["--top", 3], "give a file of node ids or keys"),
        ([0], ["--top", 3, "--pairs", file], "give one of them"),
        ([0], [], "give --pairs, or --top"),
        ([[0, 1]], ["--pairs", file, "--sampled"], "leave --sampled out"),
    ):
        np.save(file, np.array(ids))
        assert fact in mistake(capsys, "predict", run, *options, "--out", tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_links_of_named_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop, run = write_shop(tmp_path / "shop"), tmp_path / "run"
    given = ["--edge-type", "user,buys,item", "--epochs", 2, "--loss", "bpr"]
    assert batchgnn(*arguments(shop, run, *given)) == 0
    assert "predicts user-buys-item" in capsys.readouterr().out
    task = read_config(run / "config.json").task
    assert PredictedLinks.of(load_dataset(shop), task).reverse == ("item", "rev_buys", "user")
    result = json.loads((run / "result.json").read_text())
    assert 0 < result["test"]["mrr"] <= 1 and 0 < result["val"]["mrr"] <= 1
    assert "name one with --edge-type" in mistake(capsys, *arguments(shop, tmp_path / "other"))


def test_links_that_cannot_be_trained_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = write_folder(generate(GeneratorSpec(64)), tmp_path / "plain")
    for data, options, fact in (
        (plain, [], "has no training links; give its data links"),
        (folder, ["--metric", "accuracy"], "a task that predicts links has mrr"),
        (folder, ["--loss", "mse"], "but links have bce, bpr, softmax"),
        (folder, ["--negatives", "in-batch", "--loss", "bpr"], "it goes with --loss softmax, --decoder dot"),
        (folder, ["--negatives", "some"], "must be a whole number or 'in-batch' or 'given', got 'some'"),
        (folder, ["--negatives", "given"], "write links/train/negative_targets.npy"),
        (folder, ["--edge-type", "a,b,c"], "is a homogeneous graph"),
        (folder, ["--negatives", 0], "--negatives must be at least 1"),
        (folder, ["--cache", "aggregation"], "leave --cache out"),
        (folder, ["--class-weights", "balanced"], "links have no classes"),
    ):
        assert fact in mistake(capsys, *arguments(data, tmp_path / "run", *options))
    for option, value in (("--edge-type", "a,b,c"), ("--decoder", "mlp"), ("--negatives", 5)):
        said = mistake(capsys, "train", folder, *SMALL, option, value)
        assert f"{value}, but no links are predicted" in said


@pytest.mark.parametrize("negatives", ["in-batch", "given", "3"])
def test_a_softmax_finds_each_link_among_its_negatives(folder: Path, negatives: str) -> None:
    dataset = load_dataset(folder)
    links = dataset.edges.links
    hard = torch.randint(NODES, (len(links["train"]), 2))
    if negatives == "given":
        links["train"] = replace(links["train"], negative_targets=hard)
    fields = ["task.kind=link", "task.loss=softmax", f"task.negatives={negatives}", "sampling.batch_size=16"]
    job = job_alone(assign(TrainConfig(), [*fields, "model.dropout=0", "model.hidden=8"]), dataset)
    train = dataset.edges.links["train"].index.long()
    for batch in job.train_loader:
        (one,), rows = batch.links, job.network.encoder.outputs(batch).logits
        if negatives == "in-batch":
            source, target = batch.node[one.index].tolist()
            known = set(zip(source, target, strict=True))
            others = torch.tensor([[(a, b) in known for b in target] for a in source]).fill_diagonal_(False)
            share = torch.tensor([(train[1] == node).float().mean() for node in target])
            scores = rows[one.index[0]] @ rows[one.index[1]].t() - share.log()
            wanted = F.cross_entropy(scores.masked_fill(others, -torch.inf), torch.arange(len(others)))
        else:
            ends = torch.cat([one.target.unsqueeze(1), one.negative], dim=1)
            if negatives == "given":
                assert torch.equal(batch.node[one.negative], hard[one.input_id])
            scores = (rows[one.source].unsqueeze(1) * rows[ends]).sum(2)
            wanted = F.cross_entropy(scores, torch.zeros(len(scores)).long())
        outputs, targets = job.network.outputs(batch).logits, job.task.targets(job.labels(batch))
        torch.testing.assert_close(job.task.loss(outputs, targets), wanted)
        assert job.task.weight(targets) == len(one.input_id)


def test_drawn_negatives_are_other_targets_and_always_the_same(folder: Path) -> None:
    dataset, config = load_dataset(folder), assign(TrainConfig(), ["task.kind=link"]).task
    index = dataset.edges.links["val"].index
    first, again = (PredictedLinks.of(dataset, config).measured("val").negatives for _ in range(2))
    assert not isinstance(first, Tensor) and not isinstance(again, Tensor)
    drawn = first.of(slice(0, index.size(1)))
    assert drawn.shape == (index.size(1), 100) and not (drawn == index[1].unsqueeze(1)).any()
    assert torch.equal(drawn.unique(), torch.arange(NODES))
    # No piece holds more than its own links, and all pieces together are the whole.
    pieces = [again.of(piece) for piece in (slice(0, 0), slice(0, 5), slice(5, 6), slice(6, index.size(1)))]
    assert [len(piece) for piece in pieces] == [0, 5, 1, index.size(1) - 6]
    assert torch.equal(torch.cat(pieces), drawn)
    renamed = replace(first, split="other").of(slice(0, 5))
    assert not torch.equal(renamed, drawn[:5])


def test_a_split_without_links_needs_no_other_targets() -> None:
    one = NodeSet("user", 4), NodeSet("shop", 1)
    visits = EdgeSet(("user", "visits", "shop"), torch.tensor([[0, 1], [0, 0]]))
    links = {"train": LinkSplit(visits.edge_index), "val": LinkSplit(visits.edge_index[:, :1])}
    config = assign(TrainConfig(), ["task.kind=link"]).task
    found = PredictedLinks.of(Dataset("mall", one, (replace(visits, links=links),)), config)
    assert len(found.measured("test")) == 0
    with pytest.raises(TrainError, match="no other targets to rank the links of val"):
        found.measured("val")


#: The fixture `launched` runs many commands on two ranks.
pytestmark = pytest.mark.timeout(500)

LOCAL: list[Any] = ["--epochs", 2, "--negatives", "in-batch", "--model", "gin", "--prefetch", 1]
TYPED: list[Any] = ["--edge-type", "user,buys,item", "--epochs", 2, "--schedule", "global"]
TYPED += ["--last-batch", "keep", "--batch-size", 24]
#: Kinds of predictions, and those that are made of each run.
KINDS = {
    "pairs": ["--pairs", "pairs.npy"],
    "top": ["--top", "6", "--nodes", "nodes.npy"],
    "rows": ["--embeddings-of", "all"],
}
PREDICTED = [("broken", "pairs"), ("fewest", "top"), ("typed", "top"), ("typed", "rows")]
PREDICTED += [("broken", "top"), ("typed", "pairs")] if ALL else []


@dataclass(frozen=True)
class Launched:
    """Runs of two ranks, all in the same two processes."""

    path: Path  # the folder of the runs and of their predictions
    shop: str  # the data set of the typed runs, which holds out links
    seen: dict[str, list[dict[str, Any]]]  # what each rank saw, by command

    def result(self, run: str) -> Any:
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
def launched(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Launched:
    path = tmp_path_factory.mktemp("launched")
    few, shop = few_links(folder, path / "few"), write_shop(path / "shop")
    draw = torch.Generator().manual_seed(1)
    np.save(path / "pairs.npy", torch.randint(40, (90, 2), generator=draw).numpy())
    np.save(path / "nodes.npy", np.array([7, 3, 7, 39, *range(12)]))
    assert batchgnn("partition", shop, "--out", path / "parts", "--parts", 3, "--policy", "ldg") == 0
    of_parts = ["--partition", path / "parts", "--prefetch", 1]
    made = {
        "straight": arguments(folder, path / "straight", *LOCAL, "--feature-cache", "4kB"),
        "broken": arguments(folder, path / "broken", *LOCAL),
        "resumed": ["train", "--resume", str(path / "broken")],
        "measured": ["evaluate", str(path / "broken"), "--out", str(path / "measured.json")],
        "fewest": arguments(few, path / "fewest", "--epochs", 1, "--decoder", "mlp"),
        "typed": arguments(shop, path / "typed", *TYPED),
        "typed measured": ["evaluate", str(path / "typed"), "--out", str(path / "typed.json")],
    }
    if ALL:
        made["saved"] = arguments(shop, path / "saved", *TYPED, *of_parts)
    for run, name in PREDICTED:
        made[f"{run} {name}"] = predicting(path, run, name, path / f"{run} {name}")
    commands: list[dict[str, Any]] = [{"arguments": one} for one in made.values()]
    commands[list(made).index("broken")]["fault"] = [1, 3, "SIGINT"]
    seen = dict(zip(made, launch(2, *commands, hosts=[0, 1], timeout=240.0), strict=True))
    for name, one in seen.items():
        assert_ended(one, 130 if name == "broken" else 0)
    return Launched(path, shop, seen)


def test_metrics_over_two_ranks(launched: Launched) -> None:
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
            targets = [job.task.targets(job.labels(one)) for one in step if one is not None]
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
    if ALL:
        assert_same_tensors(launched.path / "typed", launched.path / "saved")
    measured = json.loads((launched.path / "typed.json").read_text())
    assert measured["scores"]["test"] == pytest.approx(launched.result("typed")["test"], abs=1e-9)
    assert batchgnn("evaluate", launched.path / "typed", "--out", tmp_path / "alone.json") == 0
    alone = json.loads((tmp_path / "alone.json").read_text())
    assert alone["links"] == measured["links"] and alone["links"]["val"] > 0
    for split, scores in alone["scores"].items():
        assert measured["scores"][split] == pytest.approx(scores, abs=1e-5)
