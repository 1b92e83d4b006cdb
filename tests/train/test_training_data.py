"""The features, labels and splits that a run reads, and the fingerprint of a data set."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pyg_batchgnn import machine
from pyg_batchgnn.data import Dataset, EdgeSet, NodeSet, available_datasets, hold_out_links
from pyg_batchgnn.disk import is_mapped
from pyg_batchgnn.train import training_data
from pyg_batchgnn.train.config.choices import Precision
from pyg_batchgnn.train.config.table import EmbeddingConfig, RunConfig
from pyg_batchgnn.train.config.train_config import TrainConfig, assign
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.training_data import TrainingData, feature_table, fingerprint_dataset
from tests.support.mapped_data import mapped
from tests.support.tiers import in_all
from tests.support.tiny_datasets import changed
from tests.support.training_runs import batchgnn

WITHOUT_ROWS = TrainConfig(embedding=EmbeddingConfig(types="none"))
EDGES = torch.tensor([[0, 1], [1, 2]])


def dataset(**nodes: Tensor) -> Dataset:
    return Dataset.homogeneous("tiny", 3, EDGES, nodes=nodes, splits={"train": torch.tensor([2, 0])})


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ({"y": torch.zeros(3).long()}, "tiny has no node features 'x', and no learned rows are wanted"),
        ({"x": torch.ones(3, 2).long(), "y": torch.ones(3)}, r"'x' are int64 \[3, 2\], but models need"),
        ({"x": torch.ones(3), "y": torch.ones(3)}, r"features 'x' are float32 \[3\], but models need"),
        ({"x": torch.ones(3, 2)}, "labels 'y' are missing, but training needs them"),
    ],
)
def test_what_training_cannot_use_is_named(nodes: dict[str, Tensor], message: str) -> None:
    with pytest.raises(TrainError, match=message):
        TrainingData.of(dataset(**nodes), WITHOUT_ROWS)


def shop() -> Dataset:
    """Users with labels who buy items with labels. No relation leads to users."""
    splits = {"train": torch.arange(4)}
    sets = [NodeSet(name, 20, {"y": torch.arange(20) % 2}, splits) for name in ("user", "item")]
    index = torch.stack([torch.arange(20), torch.arange(20) * 3 % 20])
    return hold_out_links(Dataset("shop", tuple(sets), (EdgeSet(("user", "buys", "item"), index),)), 0.1)


@pytest.mark.parametrize("task", ["task.kind=link", "task.node_type=user"])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_predicted_type_without_relations_to_it_is_refused(task: str, layers: int) -> None:
    fanout = ",".join("5" * layers)
    config = assign(TrainConfig(), [f"model.num_layers={layers}", f"sampling.fanout={fanout}", task])
    with pytest.raises(TrainError, match=r"shop: no relation leads to user, so .*; add --reverse"):
        TrainingData.of(shop(), config)
    one = ["model.num_layers=1", "sampling.fanout=5", "task.node_type=item"]
    assert TrainingData.of(shop(), assign(TrainConfig(), one)).inputs.learned.keys() == {"user", "item"}


@pytest.mark.parametrize("text", ["columns=8", "rule=sgd", "learning_rate=0.1"])
def test_options_of_learned_rows_are_refused_without_them(text: str) -> None:
    data = dataset(x=torch.ones(3, 4), y=torch.tensor([1, -1, 0]))
    config = assign(TrainConfig(), [f"embedding.{text}"])
    with pytest.raises(TrainError, match=rf"embedding\.{text.replace('=', ' is ')}, but no nodes of tiny"):
        TrainingData.of(data, config)
    assert TrainingData.of(data, assign(config, ["embedding.types=all"])).inputs.learned


NATIVE = TrainConfig()
HALF = TrainConfig(run=RunConfig(precision=Precision.BFLOAT16))


@pytest.mark.parametrize(
    ("config", "given", "dtype"),
    [
        (NATIVE, torch.float32, torch.float32),
        (NATIVE, torch.float16, torch.float16),
        (NATIVE, torch.bfloat16, torch.bfloat16),
        (NATIVE, torch.float64, torch.float32),
        (HALF, torch.float32, torch.bfloat16),
        (HALF, torch.float16, torch.bfloat16),
    ],
)
def test_type_and_place(config: TrainConfig, given: torch.dtype, dtype: torch.dtype, tmp_path: Path) -> None:
    x = torch.randn(200_000, 3).to(given)
    before = x.clone()
    for source in (x, mapped(x, tmp_path / "x.npy")):
        table = feature_table(source, config)
        assert table.dtype is dtype
        assert torch.equal(table, x.to(dtype))
        assert not is_mapped(table)
        assert table is source or table.data_ptr() != source.data_ptr()
    assert (feature_table(x, config) is x) is (dtype is given)
    assert torch.equal(x, before)


def test_other_work_changes_no_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a table of another type is converted depends on the host, not on what is free."""
    x, memory = mapped(torch.randn(5000, 3), tmp_path / "x.npy"), machine.memory()
    for free in (memory.total, 40_000):
        monkeypatch.setattr(machine, "memory", lambda free=free: replace(memory, available=free))
        assert feature_table(x, HALF).dtype is torch.bfloat16
    assert feature_table(x, NATIVE) is x, "a type that stays has the same bits on disk"
    monkeypatch.setattr(machine, "memory", lambda: replace(memory, available=20_000))
    with pytest.raises(TrainError, match="as bfloat16 take 30,000 bytes of memory, of which 20,000"):
        feature_table(x, HALF)


def test_a_file_that_memory_cannot_hold_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_data, "_SHARE", 0.0)
    x = mapped(torch.randn(5000, 3), tmp_path / "x.npy")
    assert feature_table(x, NATIVE) is x
    assert feature_table(x, HALF) is x, "the layers convert what they read"


def test_every_array_matters(small_graph: Dataset) -> None:
    plain = fingerprint_dataset(small_graph)
    wide = changed(small_graph, {"edge_index": small_graph.edge_index.to(torch.int64)})
    assert fingerprint_dataset(wide) == plain, "storage does not matter"
    x, y = (small_graph.nodes.tables[name].clone() for name in ("x", "y"))
    edges = small_graph.edge_index.clone()
    x[17, 3] += 1
    y[5] = (y[5] + 1) % 4
    edges[1, 100] = (edges[1, 100] + 1) % small_graph.num_nodes
    changes = [
        changed(small_graph, {"nodes/x": x}),
        changed(small_graph, {"nodes/y": y}),
        changed(small_graph, {"edge_index": edges}),
        changed(small_graph, {"splits/test": small_graph.split("test").flip(0)}),
    ]
    assert len({str(one) for one in (plain, *map(fingerprint_dataset, changes))}) == 5


FOUND = "cora" in available_datasets()


@pytest.mark.skipif(not FOUND, reason="the folder with cora is not on this machine")
@pytest.mark.parametrize(
    ("model", "fanout", "at_least", "others"),
    [
        ("sage", "15,10,5", 0.74, []),
        *in_all(("gcn", "15,10", 0.74, []), ("gin", "15,10", 0.62, []), ("gat", "15,10", 0.74, [])),
        ("sage", "15,10", 0.74, ["--precision", "bfloat16"]),
    ],
)
def test_cora(model: str, fanout: str, at_least: float, others: list[str], tmp_path: Path) -> None:
    """BatchGNN's settings with smaller minibatches, for cora has 140 training nodes."""
    run = tmp_path / "run"
    options = ["--model", model, "--fanout", fanout, "--batch-size", 64, "--hidden", 64, "--epochs", 12]
    options += ["--threads", 1, "--set", "run.malloc=default", *others]
    assert batchgnn("train", "cora", "--run", run, *options) == 0
    assert json.loads((run / "result.json").read_text())["test"]["accuracy"] > at_least
