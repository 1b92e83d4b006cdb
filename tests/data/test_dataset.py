"""Dataset and its way to PyG."""

import torch

from pyg_batchgnn.data import from_pyg
from tests.support.tiny_datasets import CLASSES, EDGES, FEATURES, NODES, same, tiny_dataset


def test_to_pyg_has_masks_and_types() -> None:
    dataset = tiny_dataset()
    data = dataset.to_pyg()
    assert data.num_nodes == NODES
    assert data.edge_index.dtype == torch.int64 and torch.equal(data.edge_index, dataset.edge_index)
    assert data.x.data_ptr() == dataset.nodes.tables["x"].data_ptr()
    for mask, index in (("train_mask", "train"), ("val_mask", "val"), ("test_mask", "test")):
        assert torch.equal(data[mask].nonzero()[:, 0], dataset.split(index))
    assert data.validate()


def test_to_pyg_converts_features_on_request() -> None:
    assert tiny_dataset().to_pyg(torch.float16).x.dtype == torch.float16


def test_pyg_and_back() -> None:
    dataset = tiny_dataset()
    assert same(dataset, from_pyg(dataset.to_pyg(), num_classes=CLASSES))


def test_sizes_and_repr() -> None:
    dataset = tiny_dataset()
    assert (dataset.num_edges, dataset.num_features) == (EDGES, FEATURES)
    assert (
        repr(dataset)
        == "Dataset(tiny: 20 nodes, 60 edges, 5 features, 3 classes, 8/4/7 train/val/test nodes)"
    )
