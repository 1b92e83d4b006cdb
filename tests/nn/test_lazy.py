"""Layers whose width is that of their first input."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from pyg_batchgnn import nn
from pyg_batchgnn.nn.linear import LazyLinear, linear_of, widest
from tests.support.layer_cases import FEATURES, sampled, table
from tests.support.model_pairs import with_features

KINDS = (nn.SAGE, nn.GCN, nn.GIN, nn.GAT)


def edges() -> Tensor:
    return torch.randint(60, (2, 200), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("norm", [None, "batch_norm"])
@pytest.mark.parametrize("kind", KINDS)
def test_models_take_their_width_from_the_first_call(kind: type[nn.NativeModel], norm: str | None) -> None:
    model = kind(-1, 8, 2, 3, norm=norm)
    parameters = list(model.parameters())
    assert any(map(is_uninitialized_parameter, parameters))
    twin = copy.deepcopy(model)
    assert model(with_features(sampled([3, 1, 4], (4, 3)))).shape == (3, 3)
    assert not any(map(is_uninitialized_parameter, model.parameters()))
    assert [id(one) for one in model.parameters()] == [id(one) for one in parameters]
    known = kind(FEATURES, 8, 2, 3, norm=norm)
    known.load_state_dict(model.state_dict())
    assert torch.allclose(known.eval()(table(), edges()), model.eval()(table(), edges()))
    twin.load_state_dict(model.state_dict())
    assert torch.allclose(twin.eval()(table(), edges()), model(table(), edges()))


def test_gin_is_pygs() -> None:
    ours, pygs = nn.GIN(-1, 8, 2, 3), pyg.GIN(-1, 8, 2, 3)
    assert list(ours.state_dict()) == list(pygs.state_dict())
    pygs(table(), edges())
    ours.load_state_dict(pygs.state_dict())
    assert torch.allclose(ours(table(), edges()), pygs(table(), edges()), atol=1e-4)


def test_a_linear_layer_becomes_an_ordinary_one() -> None:
    lazy = linear_of(-1, 4)
    assert isinstance(lazy, LazyLinear) and type(linear_of(3, 4)) is nn.Linear
    assert lazy.with_relu(torch.randn(5, 3)).shape == (5, 4)
    assert type(lazy) is nn.Linear and not nn.is_watched(lazy) and lazy.in_features == 3


def test_columns_of_what_is_computed() -> None:
    assert widest(nn.SAGEConv(-1, 9, bias=False)) == widest(nn.SAGEConv(3, 9)) == 9
    assert widest(nn.GATConv(-1, 4, heads=3)) == 12
    assert widest(nn.GIN(-1, 8, 1, 3, inner_channels=20).convs[0]) == 20
