"""The native Linear is torch's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from pyg_batchgnn import nn
from tests.support.accuracy import distance
from tests.support.layer_cases import FEATURES, sampled, table
from tests.support.model_pairs import with_features
from tests.support.typed_layers import WIDTHS, joined, tables, typed_minibatch, with_tables


@pytest.mark.parametrize("shape", [(5,), (7, 5), (2, 3, 5), (0, 5), (4, 0, 5)])
@pytest.mark.parametrize("bias", [True, False])
def test_any_leading_shape(shape: tuple[int, ...], bias: bool) -> None:
    native, torchs = nn.Linear(5, 8, bias=bias), torch.nn.Linear(5, 8, bias=bias)
    torchs.load_state_dict(native.state_dict())
    x = torch.randn(shape)
    torch.testing.assert_close(native(x), torchs(x))


def test_initialisation_and_state_are_torchs() -> None:
    torch.manual_seed(3)
    native = nn.Linear(5, 8)
    torch.manual_seed(3)
    torchs = torch.nn.Linear(5, 8)
    for key, value in torchs.state_dict().items():
        assert torch.equal(native.state_dict()[key], value)
    assert native.state_dict().keys() == torchs.state_dict().keys()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_weights_give_the_dtype(dtype: torch.dtype) -> None:
    layer = nn.Linear(5, 8).to(dtype)
    assert layer(torch.randn(3, 5, dtype=dtype)).dtype is dtype
    assert layer(torch.randn(3, 5, dtype=torch.bfloat16)).dtype is dtype


def test_autocast_leaves_float64_and_float16_alone() -> None:
    """Under autocast of float16 torch multiplies in float16, and PyG too: here it is more exact."""
    x = torch.randn(3, 5, dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        assert nn.Linear(5, 8).double()(x).dtype is torch.float64
    layer = nn.Linear(5, 8)
    with torch.autocast("cpu", torch.float16):
        found = layer(x.float())
    assert found.dtype is torch.float32 and torch.equal(found, layer(x.float()))


def test_a_wrong_width_is_named() -> None:
    with pytest.raises(ValueError, match="4 columns"):
        nn.Linear(5, 8)(torch.randn(3, 4))


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


@pytest.mark.parametrize("options", [{}, {"bias": False, "weight_initializer": "glorot"}])
@pytest.mark.parametrize("in_channels", [WIDTHS, -1, {**WIDTHS, "paper": -1}])
def test_equals_pyg(in_channels: Any, options: dict[str, Any]) -> None:
    made = []
    for room in (nn, pyg):
        torch.manual_seed(1)
        layer = room.HeteroDictLinear(
            in_channels, 5, None if isinstance(in_channels, dict) else list(WIDTHS), **options
        ).double()
        x = {name: one.requires_grad_() for name, one in tables().items()}
        out = layer(x)
        grads = torch.autograd.grad(joined(out).sum(), [*layer.parameters(), *x.values()])
        made.append((layer, [*out.values(), *grads]))
    (ours, found), (pygs, wanted) = made
    assert list(ours.state_dict()) == list(pygs.state_dict())
    assert all(torch.equal(one, pygs.state_dict()[key]) for key, one in ours.state_dict().items())
    for one, two in zip(found, wanted, strict=True):
        assert distance(one, two) < 1e-10
    assert ours.in_channels == pygs.in_channels


def test_reads_features_in_place() -> None:
    torch.manual_seed(0)
    layer = nn.HeteroDictLinear(-1, 5, list(WIDTHS))
    minibatch = with_tables(typed_minibatch([1, 2, 3]), torch.float32)
    views = nn.features_by_type(minibatch)
    found = layer(views, relu=True)
    wanted = layer({name: one.gather() for name, one in views.items()})
    assert all(torch.equal(found[name], wanted[name].relu()) for name in wanted)


def test_some_types_and_watched_layers() -> None:
    layer = nn.HeteroDictLinear(WIDTHS, 5)
    x = tables(torch.float32)
    wanted = layer(x)
    seen: list[int] = []
    layer.lins["paper"].register_forward_hook(lambda *given: seen.append(len(given[2])))
    assert list(layer({"paper": x["paper"]})) == ["paper"] and seen == [60]
    found = layer(x, relu=True)
    assert distance(found["paper"], wanted["paper"].relu()) < 1e-6
    with pytest.raises(ValueError, match=r"must be \[rows, 12\]"):
        nn.HeteroDictLinear(WIDTHS, 5)({"paper": x["author"]})
