"""Examples in the docstrings of public names run, and give what they print."""

from __future__ import annotations

import doctest
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch_geometric.nn as pyg
from rich.console import Console
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import Data, HeteroData

import pyg_batchgnn

ROOT = Path(__file__).parents[2]
ROOMS = "ops cache comm data embed loader nn partition port sample store tables train planner"
NO_EXAMPLE = {"DatasetError", "__version__"}
SHOP = {
    "customer": ["id,city", *(f"c{at},{('Oslo', 'Rome')[at % 2]}" for at in range(6))],
    "product": ["id,price", *(f"p{at},{at * 1.5}" for at in range(4))],
    "orders": [
        "customer_id,product_id,at",
        *(f"c{at % 6},p{at % 4},2024-01-{at + 1:02}" for at in range(12)),
    ],
}
RUNS = {
    "first": ["run.dataset=generated:nodes=500"],
    "links": ["run.dataset=generated:nodes=500,hold_out=0.1", "task.kind=link"],
}


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The public names of the rooms, and the data, models and folders that examples speak of."""
    monkeypatch.chdir(tmp_path)
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
    found["write_folder"](dataset, "graphs/large")
    Path("shop").mkdir()
    for name, lines in SHOP.items():
        Path("shop", f"{name}.csv").write_text("\n".join(lines))
    found["write_draft"]("shop")
    found["convert"](found["GraphDescription"].read("shop"), "shop-data")
    for name, changes in RUNS.items():
        config = found["assign"](found["preset"]("p3"), [*changes, "run.epochs=1"])
        found["start_run"](config, Path("runs", name), Console(quiet=True))
    np.save("pairs.npy", np.array([[0, 1], [2, 3]]))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with found["Communicator"].create("examples") as comm:
        part = found["partition"](dataset, "ldg", comm=comm)
        found["save_partition"](part, "saved-parts", comm)
        given = {"data": data, "dataset": dataset, "typed": typed, "loader": loader, "model": model}
        given |= {"folder": tmp_path, "comm": comm, "part": part}
        yield found | given | {one.__name__: one for one in (torch, Path, Console, DistributedDataParallel)}
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
def test_examples_in_docstrings_run(known: dict[str, Any]) -> None:
    runner = doctest.DocTestRunner()
    ours = {
        name: one
        for name, one in known.items()
        if ">>>" in (one.__doc__ or "") and getattr(one, "__module__", "").startswith("pyg_batchgnn")
    }
    spoken = set(ours)
    for name, one in {one.__doc__: (name, one) for name, one in ours.items()}.values():
        for test in doctest.DocTestFinder(recurse=False).find(one, name, globs=known):
            runner.run(test)
            assert not any(example.options for example in test.examples), f"{name}: no line is left out"
            spoken |= set(re.findall(r"\w+", " ".join(example.source for example in test.examples)))
    assert runner.summarize().failed == 0
    assert (set(pyg_batchgnn.__all__) | imported_by_pages()) - NO_EXAMPLE - spoken == set()


def imported_by_pages() -> set[str]:
    """The classes and functions that users call, by what pages import."""
    texts = [page.read_text() for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/[!0]*.md"))]
    found = set()
    for module, names in re.findall(r"^from (pyg_batchgnn\S*) import (\([^)]*\)|.*)", "\n".join(texts), re.M):
        held = importlib.import_module(module)
        found |= {name for name in re.findall(r"\w+", names) if callable(getattr(held, name, None))}
    return found
