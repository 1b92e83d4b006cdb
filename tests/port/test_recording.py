"""A graph computes what the plain model does, for the seeds' rows: operations, dropout, parts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor

from pyg_batchgnn import Minibatch, nn
from pyg_batchgnn.ops import QuantizedTensor
from pyg_batchgnn.port import accelerate
from tests.support.ported_models import (
    CLASSES,
    FEATURES,
    MODELS,
    accelerated,
    assert_same,
    batch_of,
    minibatch_of,
    results,
)
from tests.support.quantized_tables import decoded_rows, drawn_table
from tests.support.recorded_models import (
    HIDDEN,
    Middle,
    Net,
    assert_as_plain,
    assert_close,
    assert_trimmed,
    batches,
    compare,
    compare_plain_calls,
    found_in,
    pair,
)
from tests.support.tiers import each, in_all, some

# Recorded #########################################################################################


def alias_of_written(model: Any, x: Tensor, h: Tensor) -> Tensor:
    before = h
    F.elu_(h)
    return h + before


def modules_in_place(model: Any, x: Tensor, h: Tensor) -> Tensor:
    """The sum reads what a module overwrites, and the product is computed before."""
    before = h
    product = model.square(h)
    h = model.elu(h)
    h = model.relu(h - 0.1) + product
    return h + model.square(before)


def reshaped(model: Any, x: Tensor, h: Tensor) -> Tensor:
    h = h.view(-1, 2, HIDDEN // 2).tanh()
    h = h.reshape(h.size(0), HIDDEN).view(h.shape[0], 2, -1)
    return h.flatten(1) + h.mean(dim=1).repeat(1, 2)


def columns(model: Any, x: Tensor, h: Tensor) -> Tensor:
    left, right = h.chunk(2, dim=-1)
    a, b = h.split([3, 5], dim=1)
    one, *_ = h.unbind(1)
    h = torch.cat([left, right, a, b[:, :1], h[:, 2:3], h[..., -1:], one.unsqueeze(1)], dim=-1)
    return h[:, [0, 2, 4, 6, 8, 10, 12, 13]] + h[:, -1, None]


def parameters_and_buffers(model: Any, x: Tensor, h: Tensor) -> Tensor:
    gate = torch.sigmoid(model.table * 2).unsqueeze(0)
    return torch.where(h > 0, h * gate, -h) + torch.maximum(h, model.table)


def written_by_parts(model: Any, x: Tensor, h: Tensor) -> Tensor:
    """As PyG's ``cumsum`` does; nothing in the memory has rows of nodes."""
    mean = h.detach().mean(dim=0)
    sums = mean.new_empty(HIDDEN + 1)
    sums.narrow(0, 0, 1).zero_()
    torch.cumsum(mean, 0, out=sums.narrow(0, 1, HIDDEN))
    return h * sums[1:] + sums[:-1]


def einsums(model: Any, x: Tensor, h: Tensor) -> Tensor:
    outer = torch.einsum("ij, k -> ikj", h, model.table)
    return outer.sum(dim=1) + torch.einsum("ij,ij->i", h, h)[:, None]


#: Those that compute the rows of the seeds.
BY_ROW: dict[str, Middle] = {
    "alias of written": alias_of_written,
    "modules in place": modules_in_place,
    "reshaped": reshaped,
    "columns": columns,
    "softmaxes": lambda _, __, h: (
        h.softmax(-1) + F.log_softmax(h, dim=1) + F.normalize(h) + h / h.norm(dim=-1, keepdim=True)
    ),
    "parameters and buffers": parameters_and_buffers,
    "products": lambda model, x, h: h @ model.square.weight + F.linear(x, model.skip.weight, model.skip.bias),
    "stacked": lambda model, x, h: (
        torch.stack([h, h.relu(), model.skip(x)], dim=1).max(dim=1)[0]
        + torch.stack([h, h], -1).sum(-1)
        + torch.stack([h, h.tanh()]).mean(0)
        + torch.stack((h, h.relu()), dim=0).max(dim=0)[0]
        + torch.stack([h > 0, h > -1]).sum(0)
    ),
    "einsums": einsums,
    "along columns": lambda model, _, h: F.max_pool1d(
        F.conv1d(h.unsqueeze(1), model.table.view(1, 1, -1), padding=HIDDEN // 2), 2, 1
    ).squeeze(1),
    "classes": lambda model, _, h: h + F.one_hot(h.argmax(dim=1), HIDDEN) * model.table,
    "cells": lambda model, x, h: model.gru(x, h) + model.lstm(x, (h, h))[1],
}
#: Those that compute all rows, with the hops of the convolutions: the second one is over the rows
#: of the nodes or over others.
WHOLE: dict[str, tuple[Middle, list[int]]] = {
    "softmax over rows": (lambda _, __, h: h.softmax(0) + h, [2, 0]),
    "mean by size": (lambda _, __, h: h - h.sum(dim=0) / h.shape[0], [2, 0]),
    "first row": (lambda _, __, h: h + h[0] + h[:1] + h.select(0, 1), [2, 0]),
    "summed over everything": (lambda _, __, h: h / (1 + h.abs().sum()) + h.max(), [2, 0]),
    # A value of one row for each node meets a row for all.
    "broadcast of one row": (
        lambda _, __, h: h + h.sum(dim=1)[:HIDDEN] + h.amax(dim=0, keepdim=True),
        [2, 0],
    ),
    "others": (lambda _, __, h: h + h.flip(0) + h.cumsum(0) + h.roll(1, 0) + h.sort(dim=0)[0], [2, 0]),
    "written by parts": (written_by_parts, [2, 0]),
    "stack that is written to": (lambda _, __, h: torch.stack([h, h.tanh()]).mul_(0.5).sum(0), [2, 0]),
    "transposed": (
        lambda model, _, h: (h.t() * model.table.unsqueeze(1)).T + torch.einsum("ij,j->ij", h, model.table),
        [2, 0],
    ),
    "attention": (lambda model, _, h: h + model.attention(h, h, h, need_weights=False)[0], [2, 0]),
    "reshaped to rows": (lambda _, __, h: (h.view(-1, 2) * 2).view(-1, HIDDEN), [2, 0]),
    "einsums over rows": (
        lambda model, _, h: torch.einsum("ij,kj->ij", h, h) + torch.einsum("ij,jk", h, model.square.weight),
        [2, 0],
    ),
}


class Fuller(Net):
    def __init__(self, middle: Middle) -> None:
        super().__init__(middle)
        self.skip, self.square = torch.nn.Linear(FEATURES, HIDDEN), torch.nn.Linear(HIDDEN, HIDDEN)
        self.elu, self.relu = torch.nn.ELU(inplace=True), torch.nn.ReLU(inplace=True)
        self.gru, self.lstm = torch.nn.GRUCell(FEATURES, HIDDEN), torch.nn.LSTMCell(FEATURES, HIDDEN)
        self.attention = torch.nn.MultiheadAttention(HIDDEN, 2)


#: Those of whose kind there are others.
MORE = ["products", "stacked", "classes"]


@pytest.mark.parametrize("name", [*(one for one in (*BY_ROW, *WHOLE) if one not in MORE), *in_all(*MORE)])
def test_operations_on_rows(name: str) -> None:
    middle, hops = (BY_ROW[name], [1, 0]) if name in BY_ROW else WHOLE[name]
    torch.set_grad_enabled(middle is not modules_in_place)  # torch cannot differentiate it
    ours, plain = pair(Fuller(middle))
    compare(ours, plain)
    if name in BY_ROW:
        assert_trimmed(ours, hops)
    else:
        assert found_in(ours).reasons == [] and found_in(ours).notes
        assert found_in(ours).hops == [hops]
    compare_plain_calls(ours, plain)
    assert found_in(ours).reasons == []


# Dropout ##########################################################################################


class Dropped(torch.nn.Module):
    """Rows that are one, and what dropouts make of them."""

    def __init__(self, drops: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(FEATURES, 64, aggr="sum", bias=False)
        torch.nn.init.zeros_(self.conv.lin_l.weight)
        torch.nn.init.zeros_(self.conv.lin_r.weight)
        self.last, self.first = torch.nn.Dropout(0.5), torch.nn.Dropout(0.25)
        self.p, self.drops = 0.5, drops

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.drops(self, self.conv(x, edge_index) + 1)


def _kept(rows: Tensor) -> float:
    return float((rows.detach() != 0).double().mean())


def _near(share: float, expected: float) -> bool:
    return abs(share - expected) < 0.08


def dropped(ours: torch.nn.Module) -> Any:
    found = [ours(batch) for batch in batches(dtype=torch.float32)]
    if isinstance(found[0], Tensor):
        return torch.cat(found)
    return tuple(map(torch.cat, zip(*found, strict=True)))


def dropping(drops: Callable[[Any, Tensor], Any]) -> Any:
    torch.manual_seed(0)
    return accelerate(Dropped(drops)).train()


def test_rates_of_dropout_are_those_of_now() -> None:
    ours = dropping(lambda model, h: F.dropout(h, p=model.p, training=model.training))
    for p in (0.5, 0.2, 0.8, 0.0):
        ours.p = p
        assert _near(_kept(dropped(ours)), 1 - p)
    ours.p = 0.5
    assert torch.equal(dropped(ours.eval()), torch.ones_like(dropped(ours)))
    ours = dropping(lambda model, h: model.last(h))
    for p in (0.5, 0.2, 0.8, 0.0):
        ours.last.p = p
        assert _near(_kept(dropped(ours)), 1 - p)
    ours.last.p = 0.5
    ours.last.eval()
    assert _kept(dropped(ours)) == 1.0
    assert found_in(ours).reasons == []


@pytest.mark.parametrize("training", [False, True])
def test_dropout_in_evaluation_drops_where_it_was_asked_to(training: bool) -> None:
    for drops in (
        lambda _, h: F.dropout(h, 0.5, training=True),
        lambda _, h: F.dropout(h, 0.5),
        lambda _, h: torch.dropout(h, 0.5, True),
        lambda _, h: F.dropout(h, 0.5, True, inplace=True).relu(),
    ):
        ours = dropping(drops).train(training)
        one, other = dropped(ours), dropped(ours)
        assert _near(_kept(one), 0.5) and not torch.equal(one, other)
        assert found_in(ours).reasons == []


@pytest.mark.parametrize("export", ["pyg", "native"])
def test_two_dropouts_of_a_layer_are_independent(export: str) -> None:
    def twice(model: Any, h: Tensor) -> Any:
        first = F.dropout(h, 0.5, model.training)
        return first, model.last(h), F.dropout(model.first(h), 1 / 3, model.training)

    ours = dropping(twice)
    given = batches(dtype=torch.float32, export=export)
    outputs = [torch.cat(rows) for rows in zip(*(ours(batch) for batch in given), strict=True)]
    a, b, c = (rows != 0 for rows in outputs)
    assert all(torch.allclose(rows[rows != 0], torch.tensor(2.0), atol=1e-3) for rows in outputs)
    for one, other in ((a, b), (a, c), (b, c)):
        assert _near(float((one & other).double().mean()), 0.25)
    again = [torch.cat(rows) for rows in zip(*(ours(batch) for batch in given), strict=True)]
    assert not any(map(torch.equal, outputs, again))
    torch.manual_seed(5)
    one = ours(given[0])
    torch.manual_seed(5)
    assert all(map(torch.equal, one, ours(given[0])))


def test_rows_before_a_dropout_are_not_those_after_it() -> None:
    def beside(model: Any, h: Tensor) -> Any:
        first, second = model.last(h), F.dropout(h, 0.5, model.training)
        return h, first, second, model.last(first.relu_()), h * 2

    ours = dropping(beside)
    before, first, second, twice, after = dropped(ours)
    assert _kept(before) == _kept(after) == 1.0 and torch.equal(after, 2 * before)
    assert _near(_kept(first), 0.5) and _near(_kept(second), 0.5) and _near(_kept(twice), 0.25)


def test_gradients_of_dropout_are_those_of_what_was_kept() -> None:
    ours = dropping(lambda model, h: F.dropout(h, 0.5, model.training) * model.scale)
    ours.scale = torch.nn.Parameter(torch.ones(64))
    for batch in batches(dtype=torch.float32):
        out = ours(batch)
        (found,) = torch.autograd.grad(out.sum(), [ours.scale], retain_graph=True)
        assert torch.allclose(found, out.detach().sum(dim=0))
        (found,) = torch.autograd.grad(out.sum(), [ours.conv.lin_r.weight])
        assert torch.allclose(found, out.detach().t() @ batch.x[: batch.batch_size], atol=1e-4)


# Parts of a model #################################################################################


class TakesData(torch.nn.Module):
    def __init__(self, cuts: bool = False) -> None:
        super().__init__()
        self.conv = pyg.GINEConv(torch.nn.Linear(FEATURES, CLASSES), edge_dim=3)
        self.plain, self.cuts = pyg.SAGEConv(FEATURES, CLASSES), cuts

    def forward(self, data: Any, scale: float = 1.0) -> Tensor:
        if hasattr(data, "edge_attr") and "edge_attr" in data:
            x = self.conv(data.x, data.edge_index, data.edge_attr)
        else:
            x = self.plain(data.x, data.edge_index)
        return (x[: data.batch_size] if self.cuts else x) * scale


@pytest.mark.parametrize(
    ("rows", "cuts"), [(None, False), (None, True), ("seeds", False), *in_all(("seeds", True))]
)
def test_a_forward_that_takes_the_batch(rows: str | None, cuts: bool) -> None:
    ours, plain = pair(TakesData(cuts), rows=rows)
    for has_attributes in (True, False):
        for batch in [one.clone() for one in batches()]:
            if not has_attributes:
                del batch.edge_attr
            keys = list(batch.keys())
            found, wanted = ours(batch), plain(batch)
            wanted = wanted[: batch.batch_size] if rows == "seeds" else wanted
            assert_as_plain(ours, plain, found, wanted)
            assert_close(ours(batch, scale=2.0), 2 * wanted)
            assert list(batch.keys()) == keys
    assert found_in(ours).reasons == []
    if rows or cuts:
        assert all(one == [0] for one in found_in(ours).hops)


def test_what_a_layer_and_a_model_write_to_it_is_written() -> None:
    class Conv(pyg.GraphConv):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            out = super().forward(x, edge_index) * getattr(self, "scale", 1.0)
            self.largest = out.detach().max()
            return out

    class Net(torch.nn.Module):
        def __init__(self, writes: bool) -> None:
            super().__init__()
            self.conv, self.writes, self.calls = Conv(FEATURES, CLASSES), writes, torch.nn.Identity()

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            if self.writes:
                self.conv.scale = 2.0 + x.size(1)
            return self.conv(x, edge_index)

    for writes in (False, True):
        ours, plain = pair(Net(writes))
        compare(ours, plain)
        assert torch.allclose(ours.conv.largest, plain.conv.largest)
    assert ours.conv.scale == plain.conv.scale


# Norms by row, and rows of one byte ###############################################################

NORMED = 12


class Functional(torch.nn.LayerNorm):
    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, (NORMED,), self.weight, eps=1e-3)


NORMS: dict[str, Callable[[], torch.nn.Module]] = {
    "torch": lambda: torch.nn.LayerNorm(NORMED),
    "PyG": lambda: pyg.LayerNorm(NORMED, mode="node"),
    "function": lambda: Functional(NORMED, bias=False),
}


class NormedModel(torch.nn.Module):
    def __init__(self, norm: torch.nn.Module, drop: float) -> None:
        super().__init__()
        self.first, self.skip = pyg.SAGEConv(FEATURES, NORMED), torch.nn.Linear(FEATURES, NORMED)
        self.norm, self.last, self.drop = norm, pyg.SAGEConv(NORMED, 3), drop

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


@each
@pytest.mark.parametrize("drop", [0.0, 0.4])
@pytest.mark.parametrize("norm", NORMS)
def test_one_pass_gives_what_the_steps_give(norm: str, drop: float, monkeypatch: pytest.MonkeyPatch) -> None:
    reference, batch = NormedModel(NORMS[norm](), drop).double(), batch_of(2, torch.float64)
    ours = accelerate(copy.deepcopy(reference))
    for _ in range(4):  # the first calls record and compare
        found = run(ours, batch)
    if drop == 0.0:
        wanted = run(reference, batch)
    else:
        for name in ("row_norm", "row_norm_of"):
            monkeypatch.setattr(nn, name, lambda *_, **__: None)
        wanted = run(ours, batch)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


@pytest.fixture(scope="module")
def table() -> QuantizedTensor:
    made = drawn_table(200, FEATURES, seed=0, extreme=False)
    made.decoding[0] /= 60
    return made


def coded_batches(form: str, table: QuantizedTensor) -> tuple[Any, Any]:
    minibatch = minibatch_of(2, torch.float32)
    if form == "native":
        tables = table, table.dequantize()
        first, second = (Minibatch.in_place(minibatch, {"x": one}) for one in tables)
        return first, second
    found = [copy.copy(batch_of(2, torch.float32)) for _ in range(2)]
    found[0].x = table.with_codes(table.codes[minibatch.node])
    found[1].x = found[0].x.dequantize()
    return found[0], found[1]


@each
@pytest.mark.parametrize("form", ["native", "PyG"])
@pytest.mark.parametrize("name", some(MODELS, 2))
def test_models_read_codes_in_place(name: str, form: str, table: QuantizedTensor) -> None:
    model = accelerated(MODELS[name](2), torch.float32)
    coded, decoded = coded_batches(form, table)
    model(coded)  # the first call records PyG's code, which reads numbers
    with decoded_rows() as rows:
        found = results(model, model(coded))
    assert rows == []
    assert_same(found, results(model, model(decoded)), 1e-4)
