"""A small generated graph on disk and in memory, and the global state put back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pyg_batchgnn.data import Dataset, GeneratorSpec, generate_folder, load_dataset
from pyg_batchgnn.nn import use_products


@pytest.fixture(autouse=True)
def _restore_torch_state() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]), use_products("native"):
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def graph_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 nodes, 1,185 of them for training, 4 classes."""
    folder = tmp_path_factory.mktemp("graph") / "small"
    generate_folder(GeneratorSpec(nodes=2000, seed=3, degree=8.0, classes=4, features=16), folder)
    return folder


@pytest.fixture(scope="session")
def small_graph(graph_folder: Path) -> Dataset:
    return load_dataset(graph_folder)
