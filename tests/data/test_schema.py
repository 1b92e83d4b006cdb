"""Schemas, groups of rows and data sets: numbers by name, the way to PyG, names that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pyg_batchgnn.data import EDGES, HOMOGENEOUS, NODES, Group, RowKind, Schema
from tests.support import tiny_datasets
from tests.support.tiny_datasets import FEATURES, tiny_dataset

CITES = ("paper", "cites", "paper")
WRITES = ("author", "writes", "paper")


def test_numbers_follow_the_given_order() -> None:
    schema = Schema(("author", "paper"), (WRITES, CITES))
    assert (schema.type_number("paper"), schema.relation_number(CITES)) == (1, 1)
    assert (schema.source_types, schema.target_types) == ((0, 1), (1, 1))
    assert schema.relations_into == ((), (0, 1))
    assert not schema.is_plain
    assert [str(group) for group in schema.edge_groups] == ["author__writes__paper", "paper__cites__paper"]


def test_one_type_and_one_relation_are_plain_under_any_names() -> None:
    assert HOMOGENEOUS.is_plain and Schema(("paper",), (CITES,)).is_plain
    assert not Schema(("paper",), (CITES, ("paper", "rev_cites", "paper"))).is_plain
    assert HOMOGENEOUS.node_groups == (NODES,) and HOMOGENEOUS.edge_groups == (EDGES,)


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


def test_sizes_and_repr() -> None:
    dataset = tiny_dataset()
    assert (dataset.num_edges, dataset.num_features) == (tiny_datasets.EDGES, FEATURES)
    assert (
        repr(dataset)
        == "Dataset(tiny: 20 nodes, 60 edges, 5 features, 3 classes, 8/4/7 train/val/test nodes)"
    )


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
