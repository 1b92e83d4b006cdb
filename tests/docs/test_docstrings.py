"""Examples in the docstrings of public names run, and give what they print."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.data import Data, HeteroData

import pyg_batchgnn

ROOMS = "ops cache comm data embed loader nn partition port sample store tables train planner"
WITHOUT = {"DistFeatureStore", "Replacement", "__version__"}  # shown elsewhere, or not to be called


def names(folder: Path) -> dict[str, Any]:
    """The public names of the rooms, and the data and the model that examples speak of."""
    modules = [importlib.import_module(f"pyg_batchgnn.{room}") for room in ROOMS.split()]
    shown = ((module, name) for module in modules for name in dir(module) if not name.startswith("_"))
    found = {name: getattr(module, name) for module, name in shown}
    torch.manual_seed(0)
    ends = torch.randint(50, (2, 200))
    data, typed = Data(x=torch.randn(100, 8), edge_index=torch.randint(100, (2, 600))), HeteroData()
    data.y, data.train_mask = torch.randint(3, (100,)), torch.rand(100) < 0.5
    typed["paper"].x, typed["author"].x = torch.randn(50, 4), torch.randn(50, 4)
    typed["author", "writes", "paper"].edge_index = ends
    typed["paper", "rev_writes", "author"].edge_index = ends.flip(0)
    loader = pyg_batchgnn.MacrobatchNeighborLoader(data, [10, 5], batch_size=32)
    dataset, model = found["load_dataset"]("generated:nodes=500,seed=0"), pyg.GraphSAGE(8, 16, 2, 3)
    given = {"data": data, "dataset": dataset, "typed": typed, "loader": loader, "model": model}
    return {**found, **given, "torch": torch, "folder": folder}


@pytest.mark.filterwarnings("ignore")
def test_examples_in_docstrings_run(tmp_path: Path) -> None:
    runner, seen, shown = doctest.DocTestRunner(), set(), {}
    for name, one in names(tmp_path).items():
        own, text = getattr(one, "__module__", None) or "", one.__doc__ or ""
        if own.startswith("pyg_batchgnn") and ">>>" in text:
            seen.add(name)
            shown[text] = name, one
    for name, one in shown.values():
        for example in doctest.DocTestFinder(recurse=False).find(one, name, globs=names(tmp_path)):
            runner.run(example)
    assert runner.summarize().failed == 0
    assert set(pyg_batchgnn.__all__) - WITHOUT <= seen
