"""Runs that read features of edges, and runs that predict labels of edges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from pyg_batchgnn.data import (
    EDGE_ID,
    Dataset,
    DatasetError,
    EdgeSet,
    LinkSplit,
    NodeSet,
    check_dataset,
    read_folder,
    with_reverse_relations,
    write_folder,
)
from pyg_batchgnn.train.config.train_config import TrainConfig, assign, config_from_dict
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.network import edge_features
from pyg_batchgnn.train.training_data import TrainingData
from tests.support.launched_runs import assert_ended, assert_same_tensors, launch, train
from tests.support.tiers import all_only
from tests.support.training_runs import batchgnn, job_alone, mistake, records

PAYS = ("account", "pays", "account")


def payments(accounts: int = 120, edges: int = 900, *, timed: bool = False, labels: str = "class") -> Dataset:
    """Accounts that pay each other, some of them several times. The label of a payment follows from
    its features and from what its source paid before."""
    draw = torch.Generator().manual_seed(5)
    index = torch.randint(accounts, (2, edges), generator=draw)
    index[:, ::7] = index[:, :1]  # parallel edges
    attr, x = torch.randn(edges, 3, generator=draw), torch.randn(accounts, 4, generator=draw)
    score = attr[:, 0] + 2 * x[index[0], 0] + x[index[1], 1]
    y = {"class": (score > 0).long() + (score > 2).long(), "label": (score > 0)[:, None], "value": score}
    tables: dict[str, Tensor] = {"edge_attr": attr, "y": y[labels]}
    if timed:
        tables["time"] = torch.arange(edges)
    ids = {"train": slice(0, 600), "val": slice(600, 750), "test": slice(750, edges)}
    links = {}
    for split, part in ids.items():
        edge = torch.arange(edges)[part]
        links[split] = LinkSplit(index[:, edge], {EDGE_ID: edge})
    sets = EdgeSet(PAYS, index, tables, links, 3 if labels == "class" else 0)
    nodes = NodeSet("account", accounts, {"x": x})
    return with_reverse_relations(Dataset("payments", (nodes,), (sets,)))


BACK = ("account", "rev_pays", "account")
OF = ["--edge-type", ",".join(PAYS), "--model", "gat", "--heads", 2]
CLASSES = ["--task", "edge-class", *OF]


def config(*changes: str) -> TrainConfig:
    sampling = ["sampling.fanout=3,3", "sampling.batch_size=50", "model.num_layers=2", "model.hidden=8"]
    of = ["task.kind=edge-class", f"task.edge_type={','.join(PAYS)}", "model.kind=gat", "model.heads=2"]
    return assign(TrainConfig(), [*sampling, *of, "run.threads=1", *changes])


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    path = tmp_path_factory.mktemp("payments")
    made = {name: payments(labels=name) for name in ("label", "value")}
    made["class"] = payments(timed=True)
    return {name: write_folder(one, path / name) for name, one in made.items()}


def test_two_ranks_train_as_one_process_with_the_same_seeds(folders: dict[str, Path], tmp_path: Path) -> None:
    """With all neighbours an edge's loss does not depend on what shares its minibatch."""
    options = [*CLASSES, "--time-attr", "time", "--replacement", "without", "--schedule", "global"]
    options += ["--fanout", "-1,-1", "--test-fanout", "-1,-1", "--last-batch", "keep", "--dropout", 0]

    def arguments(ranks: int) -> list[str]:
        return train(folders["class"], tmp_path / str(ranks), *options, "--batch-size", 60 // ranks)

    def scores(ranks: int, out: Path) -> list[str]:
        return ["predict", str(tmp_path / str(ranks)), "--nodes", "test", "--out", str(out), "--threads", "1"]

    seen = launch(2, {"arguments": arguments(2)}, {"arguments": scores(2, tmp_path / "of two ranks")})
    for one in seen:
        assert_ended(one, 0)
    assert batchgnn(*arguments(1)) == 0
    lines = records(tmp_path / "1")
    for line, expected in zip(records(tmp_path / "2"), lines, strict=True):
        assert line["train"]["loss"] == pytest.approx(expected["train"]["loss"], rel=1e-4)
        assert line["val"]["accuracy"] == pytest.approx(expected["val"]["accuracy"], abs=0.01)
    assert lines[-1]["train"]["loss"] < lines[0]["train"]["loss"]
    assert batchgnn(*scores(1, tmp_path / "of one")) == 0
    assert batchgnn(*scores(2, tmp_path / "again")) == 0
    one, two, again = (
        np.load(tmp_path / name / "probabilities.npy") for name in ("of one", "of two ranks", "again")
    )
    np.testing.assert_allclose(one, two, atol=1e-3)
    np.testing.assert_allclose(two, again, atol=1e-5)
    assert np.array_equal(np.load(tmp_path / "again" / "edge_ids.npy"), np.arange(750, 900))


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=all_only)])
def test_a_run_stopped_within_an_epoch_resumes_bit_for_bit(
    folders: dict[str, Path], tmp_path: Path, ranks: int
) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    options = ["--task", "edge-value", *OF, "--patience", 5]
    whole, first, rest = launch(
        ranks,
        {"arguments": train(folders["value"], straight, *options)},
        {"arguments": train(folders["value"], broken, *options), "fault": [ranks - 1, 7, "SIGINT"]},
        {"arguments": ["train", "--resume", str(broken), "--macrobatch", "2"]},
    )
    assert_ended(whole + rest, 0)
    assert_ended(first, 130)
    for undisturbed, before, after in zip(whole, first, rest, strict=True):
        assert before["losses"] + after["losses"] == undisturbed["losses"]
    assert_same_tensors(straight, broken)


@pytest.mark.parametrize("timed", [False, True])
def test_an_edge_sees_neither_itself_nor_its_reverse_nor_what_is_later(timed: bool) -> None:
    dataset = payments(timed=timed)
    job = job_alone(config(*(["sampling.time_attr=time"] if timed else [])), dataset)
    times, found = torch.arange(900), 0
    for batch in job.train_loader:
        (links,) = batch.links
        for relation in (PAYS, BACK):
            edges, ends = batch.edges_of(relation), batch.nodes_of(relation[2])
            assert edges.edge is not None
            found += edges.num_edges
            if timed:
                own = links.input_id[ends.example[edges.destination]]
                assert bool((edges.edge != own).all()) and bool((times[edges.edge] <= own).all())
            else:
                assert not bool(torch.isin(edges.edge, links.input_id).any())
        assert torch.equal(job.labels(batch), dataset.edges_of(PAYS).tables["y"][links.input_id])
    assert found > 1000


def test_layers_and_decoder_read_the_rows_of_their_edges() -> None:
    dataset = payments()
    attr = dataset.edges_of(PAYS).tables["edge_attr"]
    job = job_alone(config(), dataset)
    batch = next(iter(job.train_loader))
    read = edge_features(batch, [PAYS, BACK])
    for relation in (PAYS, BACK):
        assert torch.equal(read[relation], attr[batch.edges_of(relation).edge])
    before = job.network.outputs(batch).logits
    assert torch.equal(before, job.network.outputs(batch).logits)
    links = batch.links[0].input_id
    grads = torch.autograd.grad(before.sum(), list(job.network.model.parameters()), allow_unused=True)
    named = zip(job.network.model.named_parameters(), grads, strict=True)
    assert all(grad is not None for (name, weight), grad in named if weight.requires_grad)
    attr[links[0]] += 1  # in place: the decoder alone reads a target's own features
    changed = (job.network.outputs(batch).logits != before).any(dim=1)
    assert changed.tolist() == [True] + [False] * (len(links) - 1)


def test_relations_with_and_without_features_of_edges() -> None:
    """Layers have as many columns for features of edges as each relation has."""
    dataset = payments()
    forward, back = dataset.edge_sets
    wide = replace(back, tables={"edge_attr": torch.randn(900, 5)})
    bare = EdgeSet(("account", "knows", "account"), torch.randint(120, (2, 50)))
    job = job_alone(config(), replace(dataset, edge_sets=(forward, wide, bare)))
    shapes = {name: list(one.shape) for name, one in job.network.model.named_parameters()}
    name = "encoder.layers.convs.0.account__{}__account.lin_edge.weight"
    assert [shapes[name.format(one)][1] for one in ("pays", "rev_pays")] == [3, 5]
    loss = job.network.outputs(next(iter(job.train_loader))).logits.sum()
    loss.backward()
    left = [one for one, p in job.network.model.named_parameters() if p.requires_grad and p.grad is None]
    assert left == []


def test_a_homogeneous_graph_with_pairs_of_reverse_edges() -> None:
    one = payments().edges_of(PAYS)
    both = torch.cat([one.edge_index, one.edge_index.flip(0)], dim=1)
    tables = {name: torch.cat([table, table]) for name, table in one.tables.items()}
    tables["reverse_id"] = torch.arange(1800).roll(900)
    dataset = replace(
        payments(), edge_sets=(EdgeSet(("node", "to", "node"), both, tables, one.links),), has_names=False
    )
    dataset = replace(dataset, node_sets=(replace(dataset.node_sets[0], name="node"),))
    changes = [*(f"task.{name}=none" for name in ("edge_type",)), "task.metric=macro_f1"]
    job = job_alone(config(*changes), dataset)
    batch = next(iter(job.train_loader))
    links = batch.links[0].input_id
    assert not bool(torch.isin(batch.edge % 900, links).any())
    assert job.network.outputs(batch).logits.shape == (50, 3)


def test_models_that_read_nodes_alone_say_so(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--task", "edge-class", "--edge-type", ",".join(PAYS), "--epochs", 1]
    assert batchgnn(*train(folders["label"], tmp_path / "run", *options, "--edge-features", "auto")) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "no layer reads the features of edges of account-pays-account, account-rev_pays-account: " in said
    assert "sage reads the features of nodes alone; choose --model gat" in said
    refused = mistake(capsys, "predict", tmp_path / "run", "--exact", "--out", tmp_path / "out")
    assert "edges are computed from sampled neighbours" in refused


def test_which_runs_read_features_of_edges() -> None:
    def read(*changes: str) -> TrainingData:
        return TrainingData.of(payments(timed=True), config(*changes))

    assert read().inputs.edges == {PAYS: 3, BACK: 3}
    assert read("model.kind=sage").inputs.edges == {}
    for changes, columns in (([], 3), (["model.kind=sage"], 3), (["model.edge_features=none"], 0)):
        rows = read(*changes).inputs.edge_rows
        assert rows is not None and rows.shape == (900, columns)
    links = ["task.kind=link", "task.metric=mrr"]
    assert read(*links).inputs.edges.keys() == {PAYS, BACK}
    with pytest.raises(TrainError, match=r"edge_features is read, .* gin reads the features of nodes alone"):
        config("model.kind=gin", "model.edge_features=read")
    written = config_from_dict({"model": {"kind": "gat"}})  # by a release that did not read them
    assert written.model.edge_features == "none"


def of_accounts(dataset: Dataset) -> Dataset:
    edges, (nodes,) = dataset.edges_of(PAYS), dataset.node_sets
    paid = torch.zeros(120).index_add(0, edges.edge_index[1], edges.tables["edge_attr"][:, 0])
    splits = dict(zip(("train", "val", "test"), torch.arange(120).split(40), strict=True))
    tables = {**nodes.tables, "y": (paid > 0).long()}
    return replace(dataset, node_sets=(replace(nodes, tables=tables, splits=splits, num_classes=2),))


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("kind", ["nodes", "link"])
def test_all_nodes_are_computed_with_features_of_edges(kind: str, learned: bool) -> None:
    changes = ["task.kind=classes", "task.edge_type=none", "sampling.evaluation=exact"]
    if kind == "link":
        changes = ["task.kind=link", "task.metric=mrr"]
    changes += ["sampling.test_fanout=-1,-1", *(["embedding.types=account"] if learned else [])]
    job = job_alone(config(*changes), of_accounts(payments()))
    encoder = getattr(job.network, "encoder", job.network)
    with torch.no_grad():
        for parameter in encoder.model.parameters():
            parameter.uniform_(-0.5, 0.5)
        nodes = job.graph.all_nodes()
        found = encoder.infer_by_type(nodes, ["account"])["account"].logits
        data, layers = job.graph.data, encoder.model.eval().layers
        rows = data["account"].x
        rows = torch.cat([rows, job.graph.embedding.table_of(None).weight], 1) if learned else rows
        edges = {one: job.dataset.edges_of(one).edge_index for one in (PAYS, BACK)}
        given, attr = encoder.model.inputs({"account": rows}, {}), data.edge_attr_dict
        wanted, without = layers(given, edges, edge_attr=attr)["account"], layers(given, edges)["account"]
    assert torch.allclose(found, wanted, atol=1e-5) and not torch.allclose(found, without, atol=1e-2)


def broken(**tables: Tensor | None) -> Any:
    dataset = payments(timed=True)
    edges, back = dataset.edge_sets
    given = {name: one for name, one in {**edges.tables, **tables}.items() if one is not None}
    return replace(dataset, edge_sets=(replace(edges, tables=given), back))


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({"edge_attr": torch.zeros(899, 3)}, r"edge_attr: shape is \[899, 3\], expected 900 rows"),
        ({"edge_attr": torch.full((900, 3), torch.nan)}, r"edge_attr: value nan at position \[0, 0\] is not"),
        ({"y": torch.full((900,), 7)}, r"y: label 7 at position \[0\] is outside \[-1, 3\)"),
        ({"y": torch.full((900,), -1)}, r"600 of 600 edges have no label \(y is -1\), edge 0 first"),
    ],
)
def test_bad_data(tables: dict[str, Tensor], says: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=says):
        check_dataset(broken(**tables))
    if len(next(iter(tables.values()))) == 900:  # the file is named, where there is one
        with pytest.raises(DatasetError, match=r"account__pays__account.*\.npy: "):
            read_folder(write_folder(broken(**tables), tmp_path / "graph"))


def test_bad_splits() -> None:
    dataset = payments()
    edges, back = dataset.edge_sets
    for split, ids, says in (
        ("val", torch.tensor([900]), r"edge id 900 at position \[0\] is outside \[0, 900\)"),
        ("val", torch.tensor([5]), "edge 5 is in train too"),
        ("val", torch.tensor([600, 600]), "edge 600 is listed more than once"),
        ("val", torch.tensor([601.0]), "dtype is float32, expected int64"),
    ):
        links = {**edges.links, split: LinkSplit(torch.zeros(2, len(ids)).long(), {"edge_id": ids})}
        with pytest.raises(DatasetError, match=says):
            check_dataset(replace(dataset, edge_sets=(replace(edges, links=links), back)))


@pytest.mark.parametrize(
    ("dataset", "changes", "says"),
    [
        (
            broken(y=None),
            [],
            "account-pays-account have no labels 'y', .* those of account-rev_pays-account have some",
        ),
        (broken(time=None), ["sampling.time_attr=time"], "predicted edges.* have no such attribute"),
        (broken(edge_attr=torch.ones(900, 3).long()), [], r"are int64 \[900, 3\], but models need"),
        (payments(labels="value"), [], "choose another --task"),
        (payments(), ["task.metric=mae"], "task.metric is mae, but a task that predicts classes"),
        (payments(), ["task.edge_type=a,b,c"], "task.edge_type is a,b,c, but payments has"),
        (payments(), ["sampling.evaluation=exact"], "edges are computed from sampled neighbours"),
        (payments(), ["task.decoder=mlp"], "task.decoder is mlp, but no links are predicted"),
        (
            replace(payments(), edge_sets=tuple(replace(one, links={}) for one in payments().edge_sets)),
            [],
            "no training edges",
        ),
    ],
)
def test_bad_runs(dataset: Any, changes: list[str], says: str) -> None:
    with pytest.raises(TrainError, match=says):
        job_alone(config(*changes), dataset)


def test_reverses_that_are_other_edges() -> None:
    dataset = payments()
    back = dataset.edges_of(BACK).edge_index
    for other in (back[:, 1:], back.roll(1, 1)):
        wrong = replace(dataset, edge_sets=(dataset.edge_sets[0], EdgeSet(BACK, other)))
        with pytest.raises(TrainError, match="reverses in account-rev_pays-account are not the same"):
            job_alone(config(), wrong)


SAID = """
[nodes.card]
files = "cards.parquet"
key = "card"
features = {{ limit = "log" }}

[nodes.merchant]
files = "merchants.parquet"
key = "merchant"
features = {{ size = "number" }}

[edges."card,pays,merchant"]
files = "pays.parquet"
source = "card"
target = "merchant"
time = "time"
label = {label}
split = {split}
features = {{ amount = "log" }}
"""


def tables(folder: Path, label: str, split: str, **columns: Any) -> Path:
    folder.mkdir()
    draw = np.random.default_rng(0)
    amount = np.exp(draw.normal(size=400))
    pays = {
        "card": [f"c-{one}" for one in draw.integers(30, size=400)],
        "merchant": [f"m-{one}" for one in draw.integers(10, size=400)],
        "time": np.datetime64("2025-01-01", "s") + 3600 * np.arange(400).astype("timedelta64[s]"),
        "amount": amount,
        "kind": np.where(amount > 2, "large", np.where(amount < 0.5, "small", "usual")),
        "part": np.where(np.arange(400) < 250, "train", np.where(np.arange(400) < 300, "val", "test")),
    }
    cards = {"card": [f"c-{one}" for one in range(30)], "limit": np.arange(30.0)}
    merchants = {"merchant": [f"m-{one}" for one in range(10)], "size": np.arange(10.0)}
    for name, table in (("cards", cards), ("merchants", merchants), ("pays", {**pays, **columns})):
        pq.write_table(
            pa.table({key: one for key, one in table.items() if one is not None}), folder / f"{name}.parquet"
        )
    (folder / "graph.toml").write_text(SAID.format(label=label, split=split))
    return folder


SPLITS = {
    "time": '{ train_until = "2025-01-11T10:00:00", val_until = "2025-01-13T12:00:00" }',
    "column": '{ column = "part" }',
    "fractions": "{ fractions = [0.6, 0.2, 0.2] }",
}


@pytest.mark.parametrize("split", list(SPLITS))
def test_from_tables_to_scores_with_keys(
    tmp_path: Path, split: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tables(tmp_path / "bank", '"kind"', SPLITS[split])
    assert batchgnn("tables", "convert", folder, "--out", tmp_path / "data") == 0
    said = capsys.readouterr().out
    time = " --time-attr time" if split == "time" else ""
    options = f" --task edge-class --edge-type card,pays,merchant{time}"
    assert f"batchgnn train {tmp_path / 'data'}{options}\n" in said.replace("\n ", " ")
    dataset = read_folder(tmp_path / "data")
    edges = dataset.edges_of(("card", "pays", "merchant"))
    assert edges.num_edges == 400 and edges.num_classes == 3
    for one in edges.links.values():
        assert torch.equal(edges.edge_index[:, one.tables["edge_id"]], one.index)
    if split != "fractions":
        assert torch.equal(
            torch.cat([one.tables["edge_id"] for one in edges.links.values()]).sort().values,
            torch.arange(400),
        )
    run = tmp_path / "run"
    assert batchgnn(*train(tmp_path / "data", run, *options.split(), "--model", "gat", "--epochs", 1)) == 0
    assert batchgnn("predict", run, "--nodes", "test", "--out", tmp_path / "scores") == 0
    found = pq.read_table(tmp_path / "scores" / "predictions.parquet").to_pydict()
    pays = pq.read_table(folder / "pays.parquet").to_pydict()
    assert list(found)[:5] == ["card", "merchant", "edge_id", "time", "prediction"]
    assert {"score_large", "score_small", "score_usual"} < set(found)
    for row, edge in enumerate(found["edge_id"]):
        assert found["card"][row] == pays["card"][edge] and found["merchant"][row] == pays["merchant"][edge]
    assert set(found["prediction"]) <= {"large", "small", "usual"}
    if split != "time":
        return
    new = tables(tmp_path / "new", '"kind"', SPLITS[split], kind=None)  # nobody knows their labels yet
    assert batchgnn("tables", "apply", tmp_path / "data", new, "--out", tmp_path / "more") == 0
    more = ["--dataset", tmp_path / "more", "--out", tmp_path / "more scores"]
    assert batchgnn("predict", run, *more) == 0
    assert pq.read_table(tmp_path / "more scores" / "predictions.parquet").num_rows == 400


def test_bad_labels_in_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tables(tmp_path / "wrong", '{ column = "kind", kind = "value" }', SPLITS["column"])
    said = mistake(capsys, "tables", "convert", wrong, "--out", tmp_path / "data")
    assert "pays.parquet" in said and "kind" in said
    wrong = tables(tmp_path / "other", '"amount"', SPLITS["column"])
    assert "is the label; leave it out" in mistake(
        capsys, "tables", "convert", wrong, "--out", tmp_path / "data"
    )
