"""Examples in the docstrings of public names run, and give what they print."""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.data import Data, HeteroData

import pyg_batchgnn

ROOMS = ("cache", "data", "loader", "nn", "partition", "port", "sample", "store", "tables", "train")
#: Names of the package that are no calls of a script in one process, or values of options.
WITHOUT = {
    *("Communicator", "DistFeatureStore", "DistGraphStore", "LightningLinkData", "Minibatch", "plan"),
    *("PygHGTSampler", "PygLinkSampler", "Replacement", "SampledMinibatch", "__version__"),
}


def names() -> dict[str, Any]:
    """The public names of the rooms, and the data and the model that examples speak of."""
    modules = [importlib.import_module(f"pyg_batchgnn.{room}") for room in ROOMS]
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
    model = pyg.GraphSAGE(8, 16, 2, 3)
    return {**found, "torch": torch, "data": data, "typed": typed, "loader": loader, "model": model}


@pytest.mark.filterwarnings("ignore")
def test_examples_in_docstrings_run() -> None:
    runner, seen = doctest.DocTestRunner(), set()
    for name, one in names().items():
        own = getattr(one, "__module__", None) or ""
        if own.startswith("pyg_batchgnn") and ">>>" in (one.__doc__ or ""):
            seen.add(name)
            for example in doctest.DocTestFinder(recurse=False).find(one, name, globs=names()):
                runner.run(example)
    assert runner.summarize().failed == 0
    assert set(pyg_batchgnn.__all__) - WITHOUT <= seen
