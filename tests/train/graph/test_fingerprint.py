"""A fingerprint changes with the data and not with how it is stored."""

from __future__ import annotations

import torch

from pyg_batchgnn.data import Dataset
from pyg_batchgnn.train.training_data import fingerprint_dataset
from tests.support.tiny_datasets import changed


def test_storage_does_not_matter(small_graph: Dataset) -> None:
    other = changed(small_graph, {"edge_index": small_graph.edge_index.to(torch.int64)})
    assert fingerprint_dataset(other) == fingerprint_dataset(small_graph)


def test_every_array_matters(small_graph: Dataset) -> None:
    plain = fingerprint_dataset(small_graph)
    x, y, edges = (
        small_graph.nodes.tables["x"].clone(),
        small_graph.nodes.tables["y"].clone(),
        small_graph.edge_index.clone(),
    )
    x[17, 3] += 1
    y[5] = (y[5] + 1) % 4
    edges[1, 100] = (edges[1, 100] + 1) % small_graph.num_nodes
    changes = [
        changed(small_graph, {"nodes/x": x}),
        changed(small_graph, {"nodes/y": y}),
        changed(small_graph, {"edge_index": edges}),
        changed(small_graph, {"splits/test": small_graph.split("test").flip(0)}),
    ]
    assert len({plain, *map(fingerprint_dataset, changes)}) == 5
