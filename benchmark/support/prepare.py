"""Turns the project's data sets into graph folders that every contestant can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.support.graphs import GraphFolder
from benchmark.support.native import CACHE


def by_destination(edge_index: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the CSC of an edge list: indptr [N+1] int64 and sources [E] int64."""
    source, destination = edge_index.astype(np.int64)
    order = np.argsort(destination, kind="stable")
    colptr = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(destination, minlength=nodes), out=colptr[1:])
    return colptr, source[order]


def dataset_folder(tag: str, name: str, **options: Any) -> GraphFolder:
    """The folder of a data set of the project, written on first use.

    Args:
        tag: name of the folder, and of the graph in the results.
        name: any name that ``pyg_batchgnn.data.load_dataset`` takes, for instance ``cora`` or
            ``generated``.
        options: that function's options.
    """
    folder = CACHE / "graphs" / tag
    if (folder / "meta.json").is_file():
        return GraphFolder.open(folder)
    from pyg_batchgnn.data import load_dataset

    dataset = load_dataset(name, **options)
    tables = dataset.nodes.tables
    if "x" not in tables:
        raise ValueError(f"{name} has no features; the benchmarks need some")
    colptr, row = by_destination(dataset.edge_index.numpy(), dataset.num_nodes)
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {
        "colptr": colptr,
        "row": row,
        "x": tables["x"].float().numpy(),
        "y": tables["y"].numpy(),
        "train_idx": dataset.split("train").numpy(),
        "val_idx": dataset.split("val").numpy(),
        "test_idx": dataset.split("test").numpy(),
    }
    for key, array in arrays.items():
        np.save(folder / f"{key}.npy", array)
    (folder / "meta.json").write_text(json.dumps({"name": tag, "source": dataset.source}))
    return GraphFolder.open(folder)


def chosen_graph(folder: Path | None, nodes: int) -> GraphFolder:
    """Returns the graph of the folder if one is given, else a generated one of ``nodes`` nodes."""
    if folder:
        return GraphFolder.open(folder)
    return dataset_folder(f"generated-{nodes}", "generated", nodes=nodes, degree=50.0, features=100)
