"""`nn.HeteroDictLinear` beside PyG's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg

from pyg_batchgnn import nn
from tests.support.layer_cases import relative_error
from tests.support.typed_layers import WIDTHS, joined, tables, typed_minibatch, with_tables


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
        assert relative_error(one, two) < 1e-10
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
    assert relative_error(found["paper"], wanted["paper"].relu()) < 1e-6
    with pytest.raises(ValueError, match=r"must be \[rows, 12\]"):
        nn.HeteroDictLinear(WIDTHS, 5)({"paper": x["author"]})
