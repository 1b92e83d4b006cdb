"""The attributes that training reads: accepted types, and errors that name what was found."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.train.errors import TrainError
from pyg_batchgnn.train.graph import NodeClassification

EDGES = torch.tensor([[0, 1], [1, 2]])


def dataset(**nodes: Tensor) -> Dataset:
    return Dataset.homogeneous("tiny", 3, EDGES, nodes=nodes, splits={"train": torch.tensor([2, 0])})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("labels", [torch.tensor([1, -1, 0]), torch.tensor([[1], [-1], [0]]).int()])
def test_any_floats_and_integer_classes_are_taken(dtype: torch.dtype, labels: Tensor) -> None:
    task = NodeClassification.of(dataset(x=torch.ones(3, 4, dtype=dtype), y=labels))
    assert task.features.dtype is dtype and task.features.shape == (3, 4)
    assert task.labels.dtype is torch.int64 and task.labels.tolist() == [1, -1, 0]
    assert task.train.tolist() == [2, 0] and len(task.val) == len(task.test) == 0


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ({"y": torch.zeros(3).long()}, "tiny has no node features 'x'"),
        ({"x": torch.ones(3, 2).long()}, r"features 'x' are int64 \[3, 2\], but models need floating"),
        ({"x": torch.ones(3)}, r"features 'x' are float32 \[3\], but models need"),
        ({"x": torch.ones(3, 2)}, "labels 'y' are missing, but training needs class numbers"),
        ({"x": torch.ones(3, 2), "y": torch.ones(3)}, r"labels 'y' are float32 \[3\], but training needs"),
        ({"x": torch.ones(3, 2), "y": torch.ones(3, 5).long()}, r"labels 'y' are int64 \[3, 5\], but"),
        ({"x": torch.ones(3, 2), "y": torch.ones(3).bool()}, r"labels 'y' are bool \[3\], but"),
    ],
)
def test_what_training_cannot_use_is_named(nodes: dict[str, Tensor], message: str) -> None:
    with pytest.raises(TrainError, match=message):
        NodeClassification.of(dataset(**nodes))
