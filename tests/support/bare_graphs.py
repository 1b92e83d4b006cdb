"""Graphs without features."""

from __future__ import annotations

from dataclasses import replace

from pyg_batchgnn.data import Dataset


def without_features(dataset: Dataset) -> Dataset:
    """Returns the same graph without the features of its nodes."""
    bare = [
        replace(nodes, tables={name: table for name, table in nodes.tables.items() if name != "x"})
        for nodes in dataset.node_sets
    ]
    return replace(dataset, node_sets=tuple(bare))
