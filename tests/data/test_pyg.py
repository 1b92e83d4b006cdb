"""Taking a data set out of PyG's Data."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData

from pyg_batchgnn.data import Dataset, DatasetError, from_pyg
from tests.support.tiers import examples, fixed
from tests.support.tiny_datasets import DTYPES, EDGES, NODES, edges, equal, tables, tiny_dataset
from tests.support.typed_datasets import typed_datasets


def test_index_splits_and_types_that_are_kept() -> None:
    data = Data(edge_index=torch.tensor([[0], [1]]), x=torch.zeros(3, 2, dtype=torch.float64))
    data.y, data.train_idx = torch.tensor([[0], [1], [1]]), torch.tensor([2, 0], dtype=torch.int32)
    dataset = from_pyg(data)
    assert dataset.nodes.tables["y"].tolist() == [[0], [1], [1]] and dataset.num_classes == 2
    assert dataset.split("train").tolist() == [2, 0]
    assert dataset.nodes.tables["x"].dtype == torch.float64


def test_columns_of_masks_and_other_masks_are_attributes() -> None:
    data = tiny_dataset().to_pyg()
    data.train_mask = torch.zeros(NODES, 10, dtype=torch.bool)
    data.calib_mask = torch.ones(NODES, dtype=torch.bool)
    dataset = from_pyg(data)
    assert dataset.nodes.tables["train_mask"] is data.train_mask
    assert dataset.nodes.tables["calib_mask"] is data.calib_mask
    assert dataset.splits.keys() == {"val", "test"}


@st.composite
def pyg_data(draw: st.DrawFn) -> Data:
    """A `Data` of which nothing has to be left out."""
    nodes = draw(st.integers(1, 12))
    edge_index = draw(edges(nodes)).long()
    words = st.sampled_from(["a", "b_1", "time", "pos", "weight", "train_mask", "calib_mask"])
    of_nodes = draw(tables(nodes, words))
    if draw(st.booleans()):
        of_nodes["y"] = draw(st.sampled_from([torch.rand(nodes, 3), torch.randint(0, 5, (nodes,))]))
    if draw(st.booleans()):
        of_nodes["x"] = torch.randn(nodes, draw(st.integers(0, 3))).to(draw(st.sampled_from(DTYPES)))
    mask = of_nodes.get("train_mask")
    if mask is not None and mask.dim() == 1:
        of_nodes["train_mask"] = torch.rand(nodes) < 0.5
        y = of_nodes.get("y", torch.zeros(1))
        assert y.is_floating_point() or bool((y >= 0).all())
    of_edges = draw(tables(edge_index.shape[1], st.sampled_from(["edge_attr", "edge_weight", "edge_kind"])))
    return Data(edge_index=edge_index, num_nodes=nodes, **of_nodes, **of_edges)


@examples(150)
@given(pyg_data())
def test_every_tensor_comes_back(data: Data) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = from_pyg(data).to_pyg()
    assert again.to_dict().keys() == data.to_dict().keys()
    assert again.num_nodes == data.num_nodes
    for name, tensor in data.to_dict().items():
        if name != "num_nodes":
            assert equal(again[name], tensor), name


@pytest.mark.parametrize(
    ("attribute", "value", "fact"),
    [
        ("graph_label", torch.zeros(1, 3), "it is float32 [1, 3], not a dense tensor with one row"),
        ("edge_label_index", torch.zeros(2, 7, dtype=torch.int64), "it is int64 [2, 7], not"),
        ("names", ["a"] * NODES, "it is a list, not"),
        ("adj_t", torch.eye(NODES).to_sparse(), "it is sparse float32 [20, 20], not"),
        ("y", torch.zeros(3), "it is float32 [3], not"),
        ("train_idx", torch.tensor([1]), "train_mask gives the split 'train' already"),
    ],
)
def test_what_is_left_out_is_named(attribute: str, value: Any, fact: str) -> None:
    data = tiny_dataset().to_pyg()
    data[attribute] = value
    with pytest.warns(UserWarning) as warned:
        dataset = from_pyg(data, name="mine")
    assert len(warned) == 1
    assert str(warned[0].message).startswith(f"mine: {attribute} is left out: {fact}")
    assert attribute not in {**dataset.nodes.tables, **dataset.edges.tables}


@pytest.mark.parametrize(
    ("attribute", "value", "fact"),
    [
        ("val_mask", torch.zeros(NODES), "is float32 [20]"),
        ("y", torch.full((NODES,), -5), "label -5"),
        ("edge_index", torch.full((2, EDGES), NODES), "node id 20"),
        ("edge_index", [1, 2], "is list"),
        ("x", torch.eye(NODES).to_sparse(), "is sparse float32 [20, 20]"),
        ("x", torch.zeros(NODES + 1, 2), "is float32 [21, 2], expected a dense tensor with one row per node"),
        ("edge_attr", torch.zeros(NODES, 2), "is float32 [20, 2], expected"),
    ],
)
def test_what_does_not_fit_is_refused(attribute: str, value: Any, fact: str) -> None:
    data = tiny_dataset().to_pyg()
    data[attribute] = value
    data.num_nodes = NODES
    with pytest.raises(DatasetError) as error:
        from_pyg(data, name="mine")
    assert str(error.value).startswith(f"mine: {attribute}: ") and fact in str(error.value)


def test_other_objects() -> None:
    with pytest.raises(DatasetError, match="has no node types"):
        from_pyg(HeteroData())
    with pytest.raises(TypeError, match="Data"):
        from_pyg({})  # type: ignore[arg-type]
    with pytest.raises(DatasetError, match="pyg: edge_index: is missing"):
        from_pyg(Data(x=torch.zeros(2, 2)))


@fixed(30)
@given(typed_datasets())
def test_hetero_data_and_back(dataset: Dataset) -> None:
    given_name = replace(dataset, has_names=True)
    data = given_name.to_pyg()
    assert isinstance(data, HeteroData)
    again = from_pyg(data, name=dataset.name)
    assert again.schema == given_name.schema
    for found, wanted in zip(again.sets, dataset.sets, strict=True):
        assert found.group == wanted.group and found.num_rows == wanted.num_rows
        assert found.tables.keys() == wanted.tables.keys()
        assert all(found.tables[name] is table for name, table in wanted.tables.items())
    for nodes, own in zip(again.node_sets, dataset.node_sets, strict=True):
        assert {name: ids.tolist() for name, ids in nodes.splits.items()} == {
            name: ids.sort().values.tolist() for name, ids in own.splits.items()
        }
    for found_edges, theirs in zip(again.edge_sets, dataset.edge_sets, strict=True):
        assert torch.equal(found_edges.edge_index, theirs.edge_index.long())


def hetero() -> HeteroData:
    data = HeteroData()
    data["paper"].x = torch.zeros(4, 2)
    data["author"].num_nodes = 3
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 2], [3, 1]])
    return data


def test_classes_by_type_and_what_is_left_out() -> None:
    data = hetero()
    data["paper"].y = torch.tensor([0, 2, 1, -1])
    data["author", "writes", "paper"].train_mask = torch.tensor([True, False])
    data["paper"].names = ["a", "b"]
    with pytest.warns(UserWarning, match=r"pyg: data\['paper'\]\.names is left out: it is a list"):
        dataset = from_pyg(data)
    assert [nodes.num_classes for nodes in dataset.node_sets] == [3, 0]
    assert dataset.edges_of(("author", "writes", "paper")).tables.keys() == {"train_mask"}
    del data["paper"].names
    assert from_pyg(data, num_classes={"paper": 7}).nodes_of("paper").num_classes == 7
    with pytest.raises(TypeError, match="by node type"):
        from_pyg(data, num_classes=3)


def with_edges(source: str, name: str, target: str, index: torch.Tensor) -> Callable[[HeteroData], None]:
    return lambda data: setattr(data[source, name, target], "edge_index", index)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data["paper"].__setattr__("x", torch.zeros(4).to_sparse()), "x: is sparse float32"),
        (lambda data: data["author"].__delattr__("num_nodes"), "data['author'].num_nodes: is unknown"),
        (with_edges("author", "writes", "paper", torch.tensor([[3], [0]])), "of a node of type 'author', 3"),
        (lambda data: data["author", "writes", "paper"].__delattr__("edge_index"), "edge_index: is missing"),
        (with_edges("paper", "at", "venue", torch.zeros(2, 1).long()), "venue"),
    ],
)
def test_typed_data_that_do_not_fit(change: Callable[[HeteroData], None], says: str) -> None:
    data = hetero()
    change(data)
    with pytest.raises(DatasetError) as error:
        from_pyg(data)
    assert says in str(error.value)
