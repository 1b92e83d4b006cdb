"""check_dataset: every flaw is named, with the file, the array and the value."""

from typing import Any

import pytest
import torch

from pyg_batchgnn.data import DatasetError, check_dataset
from pyg_batchgnn.data.folder_write import arrays_of
from tests.support.tiny_datasets import CLASSES, changed, tiny_dataset

INF, NAN = float("inf"), float("nan")


def with_value(array: str, at: Any, value: float) -> dict[str, torch.Tensor]:
    tensor = arrays_of(tiny_dataset())[array].clone()
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
    (with_value("edge_index", (1, 7), 20), "edge_index", "node id 20 at position [1, 7]"),
    (with_value("edge_index", (0, 0), -1), "edge_index", "node id -1 at position [0, 0]"),
    ({"nodes/x": torch.zeros(19, 5)}, "nodes/x", "shape is [19, 5], expected 20 rows"),
    ({"nodes/x": torch.zeros(())}, "nodes/x", "shape is [], expected 20 rows"),
    ({"nodes/x": torch.eye(20).to_sparse()}, "nodes/x", "is stored as torch.sparse_coo"),
    (with_value("nodes/x", (3, 2), NAN), "nodes/x", "value nan at position [3, 2]"),
    (with_value("nodes/x", (19, 4), INF), "nodes/x", "value inf at position [19, 4]"),
    ({"nodes/y": torch.zeros(21, dtype=torch.int64)}, "nodes/y", "shape is [21]"),
    (with_value("nodes/y", 5, CLASSES), "nodes/y", "label 3 at position [5]"),
    (with_value("nodes/y", 6, -2), "nodes/y", "label -2 at position [6]"),
    ({"nodes/time": torch.zeros(60)}, "nodes/time", "shape is [60]"),
    ({"splits/train": torch.zeros(8, dtype=torch.int32)}, "splits/train", "dtype is int32"),
    ({"splits/train": torch.zeros(8, 1, dtype=torch.int64)}, "splits/train", "shape is [8, 1]"),
    ({"splits/val": idx(9, 20)}, "splits/val", "node id 20 at position [1]"),
    ({"splits/calib": idx(-1)}, "splits/calib", "node id -1 at position [0]"),
    ({"splits/test": idx(12, 13, 12)}, "splits/test", "node 12 is listed more than once"),
    ({"splits/test": idx(12, 11)}, "splits/test", "node 11 is in val too"),
    ({"splits/val": idx(0)}, "splits/val", "node 0 is in train too"),
    (with_value("nodes/y", 3, -1), "splits/train", "1 of 8 nodes have no label (y is -1), node 3 first"),
    ({"edges/edge_attr": torch.zeros(59)}, "edges/edge_attr", "shape is [59]"),
    ({"edges/weight": torch.zeros(20, 3)}, "edges/weight", "shape is [20, 3], expected 60 rows"),
]


@pytest.mark.parametrize(("changes", "array", "fact"), FLAWS, ids=[f"{a}: {f}" for _, a, f in FLAWS])
def test_flaw_is_named(changes: dict[str, Any], array: str, fact: str) -> None:
    dataset = changed(tiny_dataset(), changes)
    with pytest.raises(DatasetError) as error:
        check_dataset(dataset, {array: "some/file.npy"})
    message = str(error.value)
    assert message.startswith(f"some/file.npy: {array.rpartition('/')[2]}: ")
    assert fact in message
    assert "; " in message and "\n" not in message


def test_names_the_data_set_without_a_file() -> None:
    with pytest.raises(DatasetError, match=r"^tiny: y: "):
        check_dataset(changed(tiny_dataset(), {"nodes/y": torch.zeros(3, dtype=torch.int64)}))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"nodes/x": None, "nodes/y": None},
        {"splits/test": idx(19)},  # a node without a label, which a task refuses
        {"nodes/x": torch.zeros(20, 5, dtype=torch.float64)},
        {"nodes/x": torch.zeros(20, dtype=torch.int8)},
        {"nodes/y": torch.full((20, 4), -7.0)},
        {"nodes/y": torch.zeros(20, 1, dtype=torch.uint8)},
        {"nodes/second": torch.full((20, 2, 2), float("nan")), "nodes/time": torch.arange(20)},
        {"edge_index": torch.empty(2, 0, dtype=torch.int32)},
        {"edges/edge_attr": torch.zeros(60, 2), "edges/weight": torch.zeros(60, dtype=torch.bool)},
        {f"splits/{name}": torch.empty(0, dtype=torch.int64) for name in ("train", "val", "test")},
        {"splits/calib": idx(0, 0, 19)},
    ],
)
def test_sound_data_sets_pass(changes: dict[str, Any]) -> None:
    dataset = changed(tiny_dataset(), changes)
    assert check_dataset(dataset) is dataset
