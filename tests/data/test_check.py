"""check_dataset: every flaw is named, with the file, the array and the value."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from pyg_batchgnn.data import DatasetError, check_dataset
from tests.support.tiny_datasets import CLASSES, tiny_dataset

INF, NAN = float("inf"), float("nan")


def changed(array: str, at: Any, value: float) -> dict[str, torch.Tensor]:
    tensor = getattr(tiny_dataset(), array).clone()
    tensor[at] = value
    return {array: tensor}


def idx(*nodes: int) -> torch.Tensor:
    return torch.tensor(nodes)


FLAWS = [
    ({"num_nodes": NAN}, "num_nodes", "nan"),
    ({"num_nodes": -1}, "num_nodes", "-1"),
    ({"num_nodes": True}, "num_nodes", "True"),
    ({"num_classes": 2.5}, "num_classes", "2.5"),
    ({"edge_index": torch.zeros(3, 4, dtype=torch.int64)}, "edge_index", "shape is [3, 4]"),
    ({"edge_index": torch.zeros(4, dtype=torch.int64)}, "edge_index", "shape is [4]"),
    ({"edge_index": torch.zeros(2, 4)}, "edge_index", "dtype is float32"),
    ({"edge_index": torch.zeros(2, 4, dtype=torch.int16)}, "edge_index", "dtype is int16"),
    (changed("edge_index", (1, 7), 20), "edge_index", "node id 20 at position [1, 7]"),
    (changed("edge_index", (0, 0), -1), "edge_index", "node id -1 at position [0, 0]"),
    ({"x": torch.zeros(19, 5)}, "x", "shape is [19, 5], expected [20, any]"),
    ({"x": torch.zeros(20, 5, dtype=torch.float64)}, "x", "dtype is float64"),
    (changed("x", (3, 2), NAN), "x", "value nan at position [3, 2]"),
    (changed("x", (19, 4), INF), "x", "value inf at position [19, 4]"),
    ({"y": torch.zeros(21, dtype=torch.int64)}, "y", "shape is [21]"),
    ({"y": torch.zeros(20)}, "y", "dtype is float32"),
    (changed("y", 5, CLASSES), "y", "label 3 at position [5]"),
    (changed("y", 6, -2), "y", "label -2 at position [6]"),
    ({"train_idx": torch.zeros(8, dtype=torch.int32)}, "train_idx", "dtype is int32"),
    ({"val_idx": idx(9, 20)}, "val_idx", "node id 20 at position [1]"),
    ({"test_idx": idx(12, 13, 12)}, "test_idx", "node 12 is listed more than once"),
    ({"test_idx": idx(12, 11)}, "test_idx", "node 11 is in val_idx too"),
    ({"val_idx": idx(0)}, "val_idx", "node 0 is in train_idx too"),
    ({"test_idx": idx(19)}, "test_idx", "node 19 has no label"),
    ({"edge_attr": torch.zeros(59)}, "edge_attr", "shape is [59]"),
    ({"edge_attr": torch.zeros(60, dtype=torch.int64)}, "edge_attr", "dtype is int64"),
]


@pytest.mark.parametrize(("changes", "array", "fact"), FLAWS, ids=[f"{a}: {f}" for _, a, f in FLAWS])
def test_flaw_is_named(changes: dict[str, Any], array: str, fact: str) -> None:
    dataset = replace(tiny_dataset(), **changes)
    with pytest.raises(DatasetError) as error:
        check_dataset(dataset, {array: "some/file.npy"})
    message = str(error.value)
    assert message.startswith(f"some/file.npy: {array}: ")
    assert fact in message
    assert "; " in message and "\n" not in message


def test_names_the_data_set_without_a_file() -> None:
    with pytest.raises(DatasetError, match=r"^tiny: y: "):
        check_dataset(replace(tiny_dataset(), y=torch.zeros(3, dtype=torch.int64)))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"x": None},
        {"edge_index": torch.empty(2, 0, dtype=torch.int32)},
        {"edge_attr": torch.zeros(60, 2)},
        {name: torch.empty(0, dtype=torch.int64) for name in ("train_idx", "val_idx", "test_idx")},
    ],
)
def test_sound_data_sets_pass(changes: dict[str, Any]) -> None:
    dataset = replace(tiny_dataset(), **changes)
    assert check_dataset(dataset) is dataset
