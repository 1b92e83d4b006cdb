"""Taking a data set out of PyG's Data."""

from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.data import DatasetError, from_pyg
from tests.support.tiny_datasets import EDGES, NODES, tiny_dataset


def test_shares_tensors() -> None:
    data = tiny_dataset().to_pyg()
    dataset = from_pyg(data)
    assert dataset.edge_index.data_ptr() == data.edge_index.data_ptr()
    assert dataset.x is not None and dataset.x.data_ptr() == data.x.data_ptr()


def test_the_least_a_graph_can_have() -> None:
    dataset = from_pyg(Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=5))
    assert (dataset.num_nodes, dataset.num_classes, dataset.x) == (5, 0, None)
    assert dataset.train_idx.numel() == 0


def test_index_splits_column_labels_and_double_features() -> None:
    data = Data(edge_index=torch.tensor([[0], [1]]), x=torch.zeros(3, 2, dtype=torch.float64))
    data.y, data.train_idx = torch.tensor([[0], [1], [1]]), torch.tensor([2, 0], dtype=torch.int32)
    dataset = from_pyg(data)
    assert dataset.y.tolist() == [0, 1, 1] and dataset.train_idx.tolist() == [2, 0]
    assert dataset.x is not None and dataset.x.dtype == torch.float32


@pytest.mark.parametrize(
    ("attribute", "value", "fact"),
    [
        ("train_mask", torch.zeros(NODES, 10, dtype=torch.bool), "data.train_mask[:, 0]"),
        ("val_mask", torch.zeros(NODES), "is float32 [20]"),
        ("y", torch.rand(NODES), "is float32 [20]"),
        ("y", torch.zeros(NODES, 3, dtype=torch.int64), "is int64 [20, 3]"),
        ("y", torch.full((NODES,), -5), "label -5"),
        ("edge_index", torch.full((2, EDGES), NODES), "node id 20"),
        ("edge_index", [1, 2], "is list"),
        ("x", torch.eye(NODES).to_sparse(), "is Tensor"),
    ],
)
def test_what_does_not_fit_is_named(attribute: str, value: Any, fact: str) -> None:
    data = tiny_dataset().to_pyg()
    data[attribute] = value
    data.num_nodes = NODES
    with pytest.raises(DatasetError) as error:
        from_pyg(data, name="mine")
    assert str(error.value).startswith(f"mine: {attribute}: ") and fact in str(error.value)


def test_other_objects() -> None:
    with pytest.raises(DatasetError, match="heterogeneous graphs are still to come"):
        from_pyg(HeteroData())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Data"):
        from_pyg({})  # type: ignore[arg-type]
    with pytest.raises(DatasetError, match="pyg: edge_index: is missing"):
        from_pyg(Data(x=torch.zeros(2, 2)))
