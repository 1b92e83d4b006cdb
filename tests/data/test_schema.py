"""Schemas, groups of rows and data sets: numbers by name, the way to PyG, names that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pyg_batchgnn.data import HOMOGENEOUS, Group, RowKind, Schema
from tests.support import tiny_datasets
from tests.support.tiny_datasets import tiny_dataset

CITES = ("paper", "cites", "paper")
WRITES = ("author", "writes", "paper")


def test_names_must_fit_together() -> None:
    with pytest.raises(ValueError, match="'paper' occurs twice"):
        Schema(("paper", "paper"), ())
    with pytest.raises(ValueError, match="names the node type 'author'"):
        Schema(("paper",), (WRITES,))
    with pytest.raises(KeyError, match="no node type 'venue'"):
        HOMOGENEOUS.type_number("venue")
    with pytest.raises(KeyError, match="no relation"):
        HOMOGENEOUS.relation_number(CITES)


def test_to_pyg_has_masks_and_types() -> None:
    dataset = tiny_dataset()
    data = dataset.to_pyg()
    assert data.num_nodes == tiny_datasets.NODES
    assert data.edge_index.dtype == torch.int64 and torch.equal(data.edge_index, dataset.edge_index)
    assert data.x.data_ptr() == dataset.nodes.tables["x"].data_ptr()
    for mask, index in (("train_mask", "train"), ("val_mask", "val"), ("test_mask", "test")):
        assert torch.equal(data[mask].nonzero()[:, 0], dataset.split(index))
    assert data.validate()


def test_to_pyg_converts_features_on_request() -> None:
    assert tiny_dataset().to_pyg(torch.float16).x.dtype == torch.float16


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (RowKind.NODE, ("a", "b", "c"), "a group of nodes is named by its type"),
        (RowKind.EDGE, "node", "three strings"),
        (RowKind.EDGE, ("a", "b"), "three strings"),
        (RowKind.EDGE, ["a", "b", "c"], "three strings"),
        (RowKind.EDGE, ("a", 1, "c"), "three strings"),
    ],
)
def test_names_that_do_not_fit_the_kind(kind: RowKind, name: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Group(kind, name)
