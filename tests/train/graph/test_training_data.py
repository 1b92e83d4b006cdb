"""The attributes that training reads: accepted types, and errors that name what was found."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.train.config import EmbeddingConfig, TrainConfig
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graph import TrainingData

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
