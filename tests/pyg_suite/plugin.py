"""A pytest plugin for PyG's tests, which puts this package's classes in the place of PyG's.

While the test files are imported, PyG's names lead to the classes below, and its companions
pyg-lib and torch-sparse count as installed: tests that want them are not skipped. Afterwards PyG
knows again what is installed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
import torch_geometric.datasets
import torch_geometric.loader
import torch_geometric.nn  # before PyG says that its companions are there
import torch_geometric.sampler.neighbor_sampler
import torch_geometric.testing
import torch_geometric.typing
from torch import Tensor
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from pyg_batchgnn import (
    MacrobatchHGTLoader,
    MacrobatchLinkNeighborLoader,
    MacrobatchNeighborLoader,
    PygNeighborSampler,
)


class SparseTensor:
    """A sparse matrix of which rows and columns are selected, as torch-sparse's."""

    def __init__(self, row: Tensor, col: Tensor, value: Tensor) -> None:
        self._entries = row, col, value
        self.storage = SimpleNamespace(row=lambda: row, col=lambda: col, value=lambda: value)

    def __getitem__(self, at: tuple[Tensor, Tensor]) -> SparseTensor:
        *places, value = self._entries
        found = []
        for place, chosen in zip(places, at, strict=True):
            number = torch.full((1 + int(torch.cat([place, chosen]).max()),), -1)
            number[chosen] = torch.arange(chosen.numel())
            found.append(number[place])
        kept = (found[0] >= 0) & (found[1] >= 0)
        return SparseTensor(found[0][kept], found[1][kept], value[kept])

    def nnz(self) -> int:
        return self._entries[0].numel()

    def coo(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._entries


class Planetoid:
    """A random undirected graph of Cora's size, where PyG would download Cora."""

    num_features, num_classes = 1433, 7

    def __init__(self, root: str, name: str) -> None:
        generator = torch.Generator().manual_seed(1)
        edges = to_undirected(torch.randint(2708, (2, 5278), generator=generator))
        x = torch.rand(2708, self.num_features, generator=generator) < 0.01
        self._data = Data(x=x.float(), edge_index=edges)

    def __getitem__(self, number: int) -> Data:
        return self._data


#: The companions of PyG that this package does without.
COMPANIONS = ("pyg_lib", "torch_sparse")
#: What PyG's tests ask about them.
FLAGS = (
    "WITH_PYG_LIB",
    "WITH_TORCH_SPARSE",
    "WITH_WEIGHTED_NEIGHBOR_SAMPLE",
    "WITH_EDGE_TIME_NEIGHBOR_SAMPLE",
)


class PygNamed:
    """A loader that shows as PyG's do, with its name alone, which tests read."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class NeighborLoader(PygNamed, MacrobatchNeighborLoader):
    """The loader under PyG's name."""


class LinkNeighborLoader(PygNamed, MacrobatchLinkNeighborLoader):
    """The loader of links under PyG's name."""


class HGTLoader(PygNamed, MacrobatchHGTLoader):
    """The loader of budget samples under PyG's name."""


REPLACED = (
    (torch_geometric.loader, "NeighborLoader", NeighborLoader),
    (torch_geometric.loader, "LinkNeighborLoader", LinkNeighborLoader),
    (torch_geometric.loader, "HGTLoader", HGTLoader),
    (torch_geometric.typing, "SparseTensor", SparseTensor),
    (torch_geometric.sampler, "NeighborSampler", PygNeighborSampler),
    (torch_geometric.sampler.neighbor_sampler, "NeighborSampler", PygNeighborSampler),
)


@contextlib.contextmanager
def replaced() -> Iterator[None]:
    """Lets PyG's names lead to this package, and its companions count as installed."""
    with contextlib.ExitStack() as stack:
        for module, name, ours in (*REPLACED, *_lifted_markers()):
            stack.enter_context(mock.patch.object(module, name, ours))
        for flag in FLAGS:
            stack.enter_context(mock.patch.object(torch_geometric.typing, flag, True))
        yield


def _lifted_markers() -> list[tuple[Any, str, Callable[..., Any]]]:
    testing = torch_geometric.testing
    skips_without = testing.withPackage

    def with_package(*names: str) -> Callable[..., Any]:
        return skips_without(*(name for name in names if name not in COMPANIONS))

    def always(test: Callable[..., Any]) -> Callable[..., Any]:
        return test

    return [(testing, "withPackage", with_package), (testing, "onlyNeighborSampler", always)]


class Recorder:
    """Writes the outcome of each test to a JSON file: [test id, outcome, reason]."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._outcomes: dict[str, tuple[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self._outcomes[report.nodeid] = (report.outcome, _reason(report))

    def pytest_sessionfinish(self) -> None:
        rows = [[test, *outcome] for test, outcome in self._outcomes.items()]
        self.path.write_text(json.dumps(rows), encoding="utf-8")


def _reason(report: pytest.TestReport) -> str:
    if report.skipped and isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return report.longreprtext.strip().rpartition("\n")[2]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path, required=True, help="a JSON file for the outcome of each test")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder(config.getoption("--outcomes")))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    with replaced():
        return (yield)


@pytest.fixture(scope="session", autouse=True)
def _no_download() -> Iterator[None]:
    with mock.patch.object(torch_geometric.datasets, "Planetoid", Planetoid):
        yield


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Seeds all generators: most of PyG's tests draw their graphs and seed nothing."""
    seed_everything(12345)
