"""A small graph with links to predict, and the commands that train on them."""

from __future__ import annotations

from pathlib import Path

import torch

from pyg_batchgnn.data import GeneratorSpec, LinkSplit, generate, hold_out_links, write_folder
from tests.support.training_runs import SMALL

NODES = 120


def write_links(path: Path) -> Path:
    """Writes a graph whose test links have shared negatives; those of validation are drawn."""
    whole = hold_out_links(generate(GeneratorSpec(NODES, degree=8.0, features=12)), 0.1)
    links = whole.edges.links
    shared = torch.randint(NODES, (2, 30), generator=torch.Generator().manual_seed(0))
    links["test"] = LinkSplit(links["test"].index, {}, shared)
    return write_folder(whole, path)


def arguments(folder: Path | str, run: Path, *more: object) -> list[str]:
    """Returns a command that trains on links."""
    fixed = ["train", folder, "--task", "link", *SMALL, "--batch-size", 64, "--dropout", 0, "--run", run]
    return [str(one) for one in (*fixed, "--set", "run.matrix_product=native", *more)]
