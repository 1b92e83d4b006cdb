"""The attributes that training reads: accepted types, and errors that name what was found."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pyg_batchgnn.data import Dataset, EdgeSet, NodeSet, hold_out_links
from pyg_batchgnn.train.config import EmbeddingConfig, TrainConfig, assign
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.training_data import TrainingData

WITHOUT_ROWS = TrainConfig(embedding=EmbeddingConfig(types="none"))
EDGES = torch.tensor([[0, 1], [1, 2]])


def dataset(**nodes: Tensor) -> Dataset:
    return Dataset.homogeneous("tiny", 3, EDGES, nodes=nodes, splits={"train": torch.tensor([2, 0])})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_floats_are_taken(dtype: torch.dtype) -> None:
    labels = torch.tensor([1, -1, 0])
    read = TrainingData.of(dataset(x=torch.ones(3, 4, dtype=dtype), y=labels), TrainConfig())
    assert read.features["node"].dtype is dtype and read.features["node"].shape == (3, 4)
    assert read.labels["node"] is labels and read.inputs.is_homogeneous


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ({"y": torch.zeros(3).long()}, "tiny has no node features 'x', and no learned rows are wanted"),
        (
            {"x": torch.ones(3, 2).long(), "y": torch.ones(3)},
            r"'x' are int64 \[3, 2\], but models need floating",
        ),
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


def test_one_layer_reads_a_type_without_relations_to_it() -> None:
    one = ["model.num_layers=1", "sampling.fanout=5", "task.node_type=item"]
    assert TrainingData.of(shop(), assign(TrainConfig(), one)).learned.keys() == {"user", "item"}


@pytest.mark.parametrize("text", ["columns=8", "rule=sgd", "learning_rate=0.1"])
def test_options_of_learned_rows_are_refused_without_them(text: str) -> None:
    data = dataset(x=torch.ones(3, 4), y=torch.tensor([1, -1, 0]))
    config = assign(TrainConfig(), [f"embedding.{text}"])
    with pytest.raises(TrainError, match=rf"embedding\.{text.replace('=', ' is ')}, but no nodes of tiny"):
        TrainingData.of(data, config)
    assert TrainingData.of(data, assign(config, ["embedding.types=all"])).learned
