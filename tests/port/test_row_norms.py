"""Norms by row, and rows of one byte, in accelerated models."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor

from pyg_batchgnn import Minibatch, nn, ops
from pyg_batchgnn.ops import QuantizedTensor
from pyg_batchgnn.port import accelerate
from tests.support.ported_models import (
    FEATURES,
    MODELS,
    accelerated,
    assert_same,
    batch_of,
    minibatch_of,
    results,
)
from tests.support.quantized_tables import decoded_rows, drawn_table
from tests.support.tiers import each

#: Products of options are in `make test-all`.
pytestmark = each

HIDDEN = 12


class Functional(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(HIDDEN) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (HIDDEN,), self.weight, eps=1e-3)


NORMS: dict[str, Callable[[], torch.nn.Module]] = {
    "torch": lambda: torch.nn.LayerNorm(HIDDEN),
    "PyG": lambda: pyg.LayerNorm(HIDDEN, mode="node"),
    "function": Functional,
}


class Model(torch.nn.Module):
    def __init__(self, norm: torch.nn.Module, drop: float) -> None:
        super().__init__()
        self.first, self.skip = pyg.SAGEConv(FEATURES, HIDDEN), torch.nn.Linear(FEATURES, HIDDEN)
        self.norm, self.last, self.drop = norm, pyg.SAGEConv(HIDDEN, 3), drop

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.norm(self.first(x, edge_index) + self.skip(x))
        x = F.dropout(F.relu(x), p=self.drop, training=self.training)
        return self.last(x, edge_index)


def run(model: torch.nn.Module, batch: Any) -> list[Tensor]:
    torch.manual_seed(3)
    out = model(batch.x, batch.edge_index)
    model.zero_grad()
    out.square().sum().backward()
    return [out.detach(), *(one.grad for one in model.parameters() if one.grad is not None)]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    kernel = ops.layer_norm

    def counted(*args: Any, **kwargs: Any) -> Tensor:
        seen.append(kwargs)
        return kernel(*args, **kwargs)

    monkeypatch.setattr(ops, "layer_norm", counted)
    return seen


@pytest.mark.parametrize("drop", [0.0, 0.4])
@pytest.mark.parametrize("norm", NORMS)
def test_one_pass_gives_what_the_steps_give(
    norm: str, drop: float, calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, batch = Model(NORMS[norm](), drop).double(), batch_of(2, torch.float64)
    ours = accelerate(copy.deepcopy(reference))
    for _ in range(4):  # the first calls record and compare
        found = run(ours, batch)
    assert calls and calls[-1]["relu"] and calls[-1]["drop"] == drop
    if drop == 0.0:
        wanted = run(reference, batch)
    else:
        for name in ("row_norm", "row_norm_of"):
            monkeypatch.setattr(nn, name, lambda *_, **__: None)
        wanted = run(ours, batch)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_autocast_and_hooks_leave_it_to_torch(calls: list[dict[str, Any]]) -> None:
    model, batch = accelerate(Model(NORMS["torch"](), 0.4)), batch_of(2, torch.float32)
    for _ in range(3):
        run(model, batch)
    before = len(calls)
    assert before
    with torch.autocast("cpu", torch.bfloat16):
        run(model, batch)  # captures the forward, and compares in float64
        before = len(calls)
        for _ in range(2):
            run(model, batch)
    assert len(calls) == before
    handle = model.norm.register_forward_hook(lambda *_: None)
    run(model, batch)
    assert len(calls) == before
    handle.remove()
    run(model, batch)
    assert len(calls) > before


# Rows of one byte #################################################################################


@pytest.fixture(scope="module")
def table() -> QuantizedTensor:
    made = drawn_table(200, FEATURES, seed=0, extreme=False)
    made.decoding[0] /= 60
    return made


def batches(form: str, table: QuantizedTensor) -> tuple[Any, Any]:
    """Returns a batch of codes, and one of the decoded rows."""
    minibatch = minibatch_of(2, torch.float32)
    if form == "native":
        tables = table, table.dequantize()
        first, second = (Minibatch.in_place(minibatch, {"x": one}) for one in tables)
        return first, second
    found = [copy.copy(batch_of(2, torch.float32)) for _ in range(2)]
    found[0].x = table.with_codes(table.codes[minibatch.node])
    found[1].x = found[0].x.dequantize()
    return found[0], found[1]


@pytest.mark.parametrize("form", ["native", "PyG"])
@pytest.mark.parametrize("name", MODELS)
def test_models_read_codes_in_place(name: str, form: str, table: QuantizedTensor) -> None:
    model = accelerated(MODELS[name](2), torch.float32)
    coded, decoded = batches(form, table)
    model(coded)  # the first call records PyG's code, which reads numbers
    with decoded_rows() as rows:
        found = results(model, model(coded))
    assert rows == []
    assert_same(found, results(model, model(decoded)), 1e-4)
