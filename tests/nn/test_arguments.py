"""Constructors refuse arguments that cannot be, by name and value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

from pyg_batchgnn import nn

MODELS = (nn.SAGE, nn.GCN, nn.GIN, nn.GAT)
CONVS = (nn.SAGEConv, nn.GCNConv, nn.GATConv, nn.GATv2Conv, nn.TransformerConv)


def model(kind: Callable[..., Any], **changed: Any) -> Any:
    return kind(**{"in_channels": 4, "hidden_channels": 8, "num_layers": 2, "out_channels": 3, **changed})


@pytest.mark.parametrize("name", ["in_channels", "hidden_channels", "num_layers", "out_channels"])
@pytest.mark.parametrize("value", [0, -2, 2.0, "8", None, True, torch.tensor(1.5)])
def test_sizes_of_models(name: str, value: Any) -> None:
    if name == "out_channels" and value is None:
        return
    error = ValueError if value in (0, -2) and value is not True else TypeError
    for kind in MODELS:
        with pytest.raises(error, match=name):
            model(kind, **{name: value})


@pytest.mark.parametrize("name", ["in_channels", "out_channels"])
@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (-3, ValueError), (1.5, TypeError)])
def test_sizes_of_layers(name: str, value: Any, error: type[Exception]) -> None:
    for kind in CONVS:
        with pytest.raises(error, match=f"{name}={value}, but"):
            kind(**{"in_channels": 4, "out_channels": 4, name: value})
        for aggr, got in ((torch.tensor(1.5), r"tensor\(1"), (["sum", 1], r"\['sum', '1'\]")):
            with pytest.raises(TypeError, match=f"aggr must be .* got {got}"):
                kind(4, 4, aggr=aggr)


def test_sizes_of_other_types_of_integers() -> None:
    made = model(nn.SAGE, in_channels=np.int64(4), out_channels=torch.tensor(3))
    assert made(torch.randn(5, 4), torch.zeros(2, 1, dtype=torch.int64)).shape == (5, 3)
    assert nn.SAGEConv((np.int32(4), 5), np.int64(3)).lin_r.weight.shape == (3, 5)


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"dropout": 1.5}, ValueError, "dropout=1.5"),
        ({"dropout": -0.1}, ValueError, "dropout=-0.1"),
        ({"dropout": float("nan")}, ValueError, "dropout=nan"),
        ({"jk": "sum"}, ValueError, "jk must be None or one of last, cat, max, lstm, got 'sum'"),
        ({"act": "rellu"}, ValueError, "'rellu' among choices"),
        ({"act": torch.nn.ReLU}, TypeError, "act must be a name"),
        ({"norm": pyg.BatchNorm}, TypeError, "norm must be a name"),
        ({"in_channels": (4, 4, 4)}, ValueError, "of sources, of targets"),
    ],
    ids=str,
)
def test_other_arguments_of_models(changed: dict[str, Any], error: type[Exception], words: str) -> None:
    for kind in MODELS:
        with pytest.raises(error, match=words):
            model(kind, **changed)


@pytest.mark.parametrize("name", ["foo", "hidden", "norm_last"])
def test_unknown_arguments_of_models(name: str) -> None:
    for kind in MODELS:
        with pytest.raises(
            TypeError, match=f"^{kind.__name__} has no argument '{name}'; its arguments are PyG's"
        ):
            model(kind, **{name: 1})
    with pytest.raises(TypeError, match="BatchNorm"):
        model(nn.SAGE, norm="batch_norm", norm_kwargs={name: 1})


@pytest.mark.parametrize("heads", [0, -1, 1.5, "2"])
def test_heads(heads: Any) -> None:
    for make in (lambda: model(nn.GAT, heads=heads), lambda: nn.GATConv(4, 4, heads=heads)):
        with pytest.raises((TypeError, ValueError), match="heads="):
            make()


def test_arguments_of_single_models() -> None:
    with pytest.raises(ValueError, match="attention_dropout=2"):
        model(nn.GAT, attention_dropout=2)
    with pytest.raises(ValueError, match="inner_channels=0"):
        model(nn.GIN, inner_channels=0)
