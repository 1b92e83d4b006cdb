"""Puts stand-ins into the places where PyG's scripts import data sets from."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

import torch
import torch_geometric.datasets
from torch import Tensor

from benchmark.pyg_scripts.stand_ins import datasets
from benchmark.pyg_scripts.stand_ins.datasets import PygNodePropPredDataset

#: PyG's data sets, and what stands for them.
STAND_INS = {
    "Reddit": datasets.Reddit,
    "OGB_MAG": datasets.OgbMag,
    "Planetoid": datasets.Planetoid,
    "MovieLens": datasets.MovieLens,
    "PPI": datasets.PPI,
}


class LogisticRegression:
    """Stands for scikit-learn's where that is absent: a linear classifier by least squares."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._weight = torch.empty(0)

    def fit(self, x: Any, y: Any) -> LogisticRegression:
        """Fits one column of weights per class."""
        wanted = torch.nn.functional.one_hot(torch.as_tensor(y).long()).float()
        self._weight = torch.linalg.lstsq(_with_one(x), wanted, driver="gelsd").solution
        return self

    def score(self, x: Any, y: Any) -> float:
        """Returns the share of right classes."""
        return float((_with_one(x) @ self._weight).argmax(dim=1).eq(torch.as_tensor(y)).float().mean())


def _with_one(x: Any) -> Tensor:
    values = torch.as_tensor(x).float()
    return torch.cat([values, torch.ones(len(values), 1)], dim=1)


def install_data_sets() -> None:
    """Lets PyG's data sets, OGB's, and scikit-learn where it is absent, be the stand-ins."""
    for name, stand_in in STAND_INS.items():
        setattr(torch_geometric.datasets, name, stand_in)
    _install("ogb.nodeproppred", PygNodePropPredDataset=PygNodePropPredDataset)
    if importlib.util.find_spec("sklearn") is None:
        _install("sklearn.linear_model", LogisticRegression=LogisticRegression, SGDClassifier=None)
        _install("sklearn.metrics", f1_score=None)  # for evaluation, which runs end before
        _install("sklearn.multioutput", MultiOutputClassifier=None)


def _install(path: str, **names: Any) -> None:
    """Makes a module of a package that need not be installed."""
    package, _, _ = path.partition(".")
    sys.modules.setdefault(package, ModuleType(package))
    module = ModuleType(path)
    vars(module).update(names)
    sys.modules[path] = module
    setattr(sys.modules[package], path.rpartition(".")[2], module)
