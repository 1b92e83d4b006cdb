"""Runs that look at times: nothing that is later is seen, in training and afterwards."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pyg_batchgnn.data import Dataset, EdgeSet, LinkSplit, NodeSet, write_folder
from pyg_batchgnn.train.config.train_config import TrainConfig, assign, config_to_dict, read_config
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.evaluate import MeasuredTimedLinks, score_pairs
from pyg_batchgnn.train.link_tasks import DrawnTargets, ExistingTargets, PredictedLinks
from pyg_batchgnn.train.run_graph import first_times_of, latest_time, link_times, times_of
from tests.support.launched_runs import assert_ended, launch
from tests.support.tiers import ALL as ALL_TIERS
from tests.support.timed_graphs import BUYS, ITEMS, PAYMENTS, USERS, bank, shop, with_edges, with_signup
from tests.support.training_runs import SMALL, batchgnn, job_alone, records

TIMED = ["--time-attr", "time", "--temporal-strategy", "last", "--replacement", "without"]
NODES = [*SMALL, "--node-type", "payment", "--batch-size", "32", "--epochs", "2", "--dropout", "0", *TIMED]
LINKS = [*SMALL, "--task", "link", "--edge-type", "user,buys,item", "--batch-size", "32", "--dropout", "0"]
LINKS += ["--epochs", "2", "--ranked-among", "6", "--test-fanout", "4,3", *TIMED]
ALL = ["--fanout", "-1,-1", "--test-fanout", "-1,-1"]
SETTINGS = ["model.num_layers=2", "sampling.fanout=-1,-1", "sampling.test_fanout=-1,-1", "model.hidden=8"]
SETTINGS += ["sampling.time_attr=time", "run.threads=1"]
OF_LINKS = [*SETTINGS, "task.kind=link", "task.edge_type=user,buys,item", "task.ranked_among=6"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    path = tmp_path_factory.mktemp("timed")
    return {one.name: write_folder(one, path / one.name) for one in (bank(), shop())}


def test_no_node_of_a_minibatch_is_later_than_its_seed() -> None:
    graph = bank()
    time, config = graph.nodes_of("payment").tables["time"], assign(TrainConfig(), SETTINGS)
    config = assign(config, ["task.node_type=payment", "sampling.fanout=3,4", "sampling.test_fanout=5,5"])
    job = job_alone(config, graph)
    compared = 0
    for loader in (job.train_loader, job.val.loader, job.test.loader):  # type: ignore[union-attr]
        for batch in loader:
            payments = batch.nodes_of("payment")
            assert payments.example is not None, "every seed has its own sample"
            seeds = time[payments.node[: payments.nodes_per_hop[0]]]
            assert (time[payments.node] <= seeds[payments.example]).all()
            compared += payments.node.numel() - len(seeds)
    assert compared > 500


def scores_of(dataset: Dataset, split: str, *changes: str) -> Tensor:
    config = assign(TrainConfig(), [*OF_LINKS, *changes])
    job, links = job_alone(config, dataset), PredictedLinks.of(dataset, config.task)
    measured = MeasuredTimedLinks.of(dataset, links, split, job.network, job.graph, job.task)  # type: ignore[arg-type]
    found = [scores for _, scores in score_pairs(job.network, measured.loader)]  # type: ignore[arg-type]
    return torch.cat(found)


def test_what_comes_later_changes_no_score_of_links() -> None:
    graph = shop()
    time = graph.edges_of(BUYS).tables["time"]
    whole, past = (scores_of(one, "val") for one in (graph, with_edges(graph, time < 850)))
    assert whole.numel() == 7 * len(graph.edges_of(BUYS).links["val"]) and torch.equal(whole, past)
    assert not torch.equal(whole, scores_of(with_edges(graph, time < 500), "val"))


def test_a_link_does_not_see_its_own_edges() -> None:
    """A link and its negatives have the same scores without its edge in the graph."""
    graph, at = shop(), 5
    edges = graph.edges_of(BUYS)
    links = edges.links["test"]
    alone = LinkSplit(links.index[:, at : at + 1], {"time": links.tables["time"][at : at + 1]})
    one = replace(edges, links={**edges.links, "test": alone})
    graph = replace(graph, edge_sets=(one, graph.edge_sets[1]))
    is_own = (edges.edge_index == alone.index).all(0)
    assert is_own.any()
    assert torch.equal(scores_of(graph, "test"), scores_of(with_edges(graph, ~is_own), "test"))


def test_negatives_exist_at_the_time_of_their_link() -> None:
    first, times = torch.tensor([5, 0, 9, 3, 7]), torch.tensor([0, 4, 6, 9, 9])
    targets = torch.tensor([1, 3, 2, 2, 0])
    existing = ExistingTargets.of(first, times)
    table = DrawnTargets("a", targets, 5, 40, existing).of(slice(0, 5))
    seen = [set(row.tolist()) for row in table]
    assert seen == [{3}, {1}, {0, 1, 3}, {0, 1, 3, 4}, {1, 2, 3, 4}]
    pieces = [DrawnTargets("a", targets, 5, 40, existing).of(slice(at, at + 1)) for at in range(5)]
    assert torch.equal(torch.cat(pieces), table)
    for count in (3, 100):
        drawn = DrawnTargets("a", targets, 5, count).of(slice(0, 5))
        assert drawn.shape == (5, count) and not (drawn == targets[:, None]).any()


def test_times_of_links_are_their_own_or_those_of_their_edges() -> None:
    graph, config = shop(), assign(TrainConfig(), OF_LINKS)
    links = PredictedLinks.of(graph, config.task)
    assert torch.equal(link_times(graph, links, "val", "time"), links.splits["val"].tables["time"])
    assert link_times(graph, links, "none", "time").numel() == 0
    index = torch.tensor([[0, 1, 2], [5, 5, 6]])
    edges = EdgeSet(BUYS, index, {"time": torch.tensor([7, 8, 9])}, {"train": LinkSplit(index[:, [2, 0]])})
    small = replace(graph, edge_sets=(edges,))
    some = PredictedLinks.of(small, config.task)
    assert link_times(small, some, "train", "time").tolist() == [9, 7]
    twice = replace(edges, topology=torch.cat([index, index[:, :1]], 1), tables={"time": torch.arange(4)})
    with pytest.raises(TrainError, match=r"link \[0, 5\] is 2 edges, so its time is not known"):
        link_times(replace(graph, edge_sets=(twice,)), some, "train", "time")
    with pytest.raises(TrainError, match="have no attribute 'time', and neither have the edges of user-buys"):
        link_times(replace(graph, edge_sets=(replace(edges, tables={}),)), some, "train", "time")


def test_nodes_exist_from_their_own_time_or_from_their_first_edge() -> None:
    nodes = NodeSet("a", 3, {"time": torch.tensor([4, 5, 6])}), NodeSet("b", 4)
    edges = EdgeSet(("a", "to", "b"), torch.tensor([[0, 1, 1], [3, 3, 0]]), {"time": torch.tensor([9, 7, 8])})
    timed = Dataset("one", nodes, (replace(edges, tables={}),))
    assert first_times_of(timed, "a", "time").tolist() == [4, 5, 6]  # type: ignore[union-attr]
    assert first_times_of(timed, "b", "time") is None
    bare = Dataset("two", (replace(nodes[0], tables={}), nodes[1]), (edges,))
    always = torch.iinfo(torch.int64).min
    assert first_times_of(bare, "b", "time").tolist() == [8, always, always, 7]  # type: ignore[union-attr]
    config = assign(TrainConfig(), ["task.kind=link", "sampling.time_attr=time"])
    assert latest_time(bare, PredictedLinks.of(bare, config.task), "time") == 9


def timed_edges(graph: Dataset) -> Dataset:
    tables = {"time": torch.zeros(PAYMENTS, dtype=torch.int64)}
    return replace(graph, edge_sets=tuple(replace(one, tables=tables) for one in graph.edge_sets))


def changed(**tables: Tensor | None) -> Dataset:
    """Returns the bank with other attributes of its payments; None removes one."""
    graph = bank()
    payments = graph.nodes_of("payment")
    kept = {name: table for name, table in {**payments.tables, **tables}.items() if table is not None}
    return replace(graph, node_sets=(replace(payments, tables=kept), graph.node_sets[1]))


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        (changed(time=None, paid=torch.zeros(400).long()), "it has int64 attributes paid"),
        (changed(time=torch.zeros(400)), r"times 'time' of payment are float32 \[400\]; store one int64"),
        (timed_edges(changed(time=None)), "the predicted nodes of type 'payment' have no such attribute"),
    ],
)
def test_times_that_cannot_be(dataset: Dataset, says: str) -> None:
    config = assign(TrainConfig(), [*SETTINGS, "task.node_type=payment"])
    with pytest.raises(TrainError, match=says):
        job_alone(config, dataset)
    assert times_of(dataset, TrainConfig()) == {}


def test_links_with_shared_negatives_are_refused() -> None:
    graph = shop()
    edges = graph.edges_of(BUYS)
    val = replace(edges.links["val"], negatives=torch.zeros(2, 3).long())
    one = replace(edges, links={**edges.links, "val": val})
    with pytest.raises(TrainError, match="links of val are ranked among the same pairs, which have no time"):
        job_alone(assign(TrainConfig(), OF_LINKS), replace(graph, edge_sets=(one, graph.edge_sets[1])))


@pytest.fixture(scope="module")
def runs(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    path = tmp_path_factory.mktemp("runs")
    assert batchgnn("train", folders["bank"], *NODES, *ALL, "--run", path / "bank") == 0
    assert batchgnn("train", folders["shop"], *LINKS, *ALL, "--loss", "bpr", "--run", path / "shop") == 0
    return {name: path / name for name in folders}


@pytest.mark.parametrize("name", ["bank", "shop"])
def test_a_run_is_measured_again(runs: dict[str, Path], tmp_path: Path, name: str) -> None:
    out = tmp_path / "metrics.json"
    assert batchgnn("evaluate", runs[name], "--out", out) == 0
    found, result = (json.loads(path.read_text()) for path in (out, runs[name] / "result.json"))
    assert found["evaluation"] == "sampled" and found["fanout"] == [-1, -1]
    assert found["scores"]["test"] == pytest.approx(result["test"], abs=1e-9)
    assert config_to_dict(read_config(runs[name] / "config.json"))["sampling"]["time_attr"] == "time"
    scores = []
    for number, freeze in enumerate(("0", str(2**62), "none")):
        assert batchgnn("evaluate", runs[name], "--freeze", freeze, "--out", tmp_path / str(number)) == 0
        scores.append(json.loads((tmp_path / str(number)).read_text())["scores"]["test"]["loss"])
    assert scores[0] != scores[1] == scores[2] == found["scores"]["test"]["loss"]


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("bank", ["--exact"], "--exact would read all neighbours, later ones too"),
        ("bank", ["--embeddings-of", "all"], "each node at its own time"),
        ("bank", ["--freeze", "noon"], "'noon' is neither an integer"),
        ("bank", ["--at", "5"], "--at 5 goes with --pairs, --top and --embeddings-of"),
        ("shop", ["--top", "3", "--nodes", "n.npy", "--exact"], "--exact would read all neighbours"),
        ("shop", ["--top", "3", "--nodes", "n.npy", "--at", "noon"], "'noon' is neither an integer"),
        ("shop", ["--top", "3", "--nodes", "n.npy", "--at", "2024-01-01"], "the data says no unit"),
        ("shop", ["--top", "24", "--nodes", "n.npy", "--at", "-1"], "a node has 0 possible partners"),
    ],
)
def test_what_has_no_time_is_refused(
    runs: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    options: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("n.npy", np.arange(3))
    assert batchgnn("predict", runs[name], *options, "--out", "out") == 2
    assert says in capsys.readouterr().err and not Path("out").exists()


@pytest.mark.parametrize("at", [None, 400])
def test_partners_are_the_best_of_all_pairs(runs: dict[str, Path], tmp_path: Path, at: int | None) -> None:
    """All neighbours are sampled, so a pair has the same score in any minibatch."""
    users, when = np.array([3, 0, 3, 29]), [] if at is None else ["--at", at]
    pairs = np.stack(np.meshgrid(users, np.arange(ITEMS), indexing="ij"), axis=-1).reshape(-1, 2)
    np.save(tmp_path / "users.npy", users)
    np.save(tmp_path / "pairs.npy", pairs)
    commands = {
        "top": ["--top", 4, "--nodes", tmp_path / "users.npy"],
        "scores": ["--pairs", tmp_path / "pairs.npy"],
        "rows": ["--embeddings-of", "all"],
    }
    for name, options in commands.items():
        assert batchgnn("predict", runs["shop"], *options, *when, "--out", tmp_path / name) == 0
        about = json.loads((tmp_path / name / "META.json").read_text())
        assert about["evaluation"] == "sampled" and about["time"] == (999 if at is None else at)
    scores = np.load(tmp_path / "scores" / "scores.npy").reshape(len(users), ITEMS)
    rows = {name: np.load(tmp_path / "rows" / f"{name}.npy") for name in ("user", "item")}
    np.testing.assert_allclose(rows["user"][users] @ rows["item"].T, scores, atol=1e-5)
    found = np.load(tmp_path / "top" / "scores.npy")
    partners = np.load(tmp_path / "top" / "partners.npy")
    np.testing.assert_allclose(found, -np.sort(-scores, axis=1)[:, :4], atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(scores, partners, 1), found, atol=1e-5)


def test_nodes_that_do_not_exist_are_no_partners_of_their_own_type(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(6)
    index, born = torch.randint(40, (2, 300), generator=draw), torch.arange(40)
    time = torch.maximum(born[index[0]], born[index[1]])
    splits = {"train": LinkSplit(index[:, time < 30], {"time": time[time < 30]})}
    nodes = {"x": torch.randn(40, 3, generator=draw), "time": born}
    made = Dataset.homogeneous("friends", 40, index, nodes=nodes)
    made = replace(made, edge_sets=(replace(made.edges, links=splits),))
    folder = write_folder(made, tmp_path / "friends")
    options = ["--task", "link", "--batch-size", 64, "--epochs", 1, *TIMED]
    assert batchgnn("train", folder, *SMALL, *options, "--run", tmp_path / "run") == 0
    np.save(tmp_path / "some.npy", np.array([35, 2, 35]))
    top = ["--top", 9, "--nodes", tmp_path / "some.npy", "--at", 9]
    assert batchgnn("predict", tmp_path / "run", *top, "--out", tmp_path / "out") == 0
    partners = np.load(tmp_path / "out" / "partners.npy")
    assert partners.max() <= 9 and set(partners[1]) == {*range(10)} - {2}


FROZEN: list[Any] = ["--lr", 0, "--schedule", "global", "--last-batch", "keep"]
FIXED = ["--set", "run.matrix_product=native", "--seed", "5"]


def test_two_ranks_are_as_one_process(
    folders: dict[str, Path], runs: dict[str, Path], tmp_path: Path
) -> None:
    np.save(tmp_path / "users.npy", np.arange(USERS)[::-1].copy())
    graphs = {"shop": folders["shop"]}
    if ALL_TIERS:
        graphs |= {"bank": folders["bank"], "mixed": write_folder(with_signup(shop()), tmp_path / "graph")}
    top = ["predict", runs["shop"], "--top", 3, "--nodes", tmp_path / "users.npy", "--at", 800]
    predicts: dict[str, list[Any]] = {"nodes": ["predict", runs["bank"], "--nodes", "test"], "top": top}
    trains: dict[str, list[Any]] = {
        name: ["train", graph, *(NODES if name == "bank" else [*LINKS, "--negatives", "2"]), *FIXED]
        for name, graph in graphs.items()
    }
    made = [[*one, *FROZEN, "--hybrid", "--run", tmp_path / name] for name, one in trains.items()]
    made += [[*one, "--out", tmp_path / name] for name, one in predicts.items()]
    commands = [{"arguments": [str(word) for word in one]} for one in made]
    for seen in launch(2, *commands, hosts=[0, 1], timeout=200.0):
        assert_ended(seen, 0)
    for name, one in trains.items():
        assert batchgnn(*one, *FROZEN[:2], *FROZEN[4:], "--run", tmp_path / f"{name} alone") == 0
        for line, other in zip(records(tmp_path / f"{name} alone"), records(tmp_path / name), strict=True):
            for part in ("train", "val"):
                assert line[part] == pytest.approx(other[part], rel=1e-5)
    for name, one in predicts.items():
        out = tmp_path / f"{name} alone"
        assert batchgnn(*one, "--out", out) == 0
        assert {path.name for path in out.iterdir()} == {path.name for path in (tmp_path / name).iterdir()}
        for path in out.glob("*.npy"):
            np.testing.assert_allclose(np.load(tmp_path / name / path.name), np.load(path), atol=1e-5)
