"""`nn.GATv2Conv` beside PyG's, on minibatches and on graphs held whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_geometric.nn
from torch import Tensor

from pyg_batchgnn.nn import Aggregated, GATv2Conv, RowView, Update, gatv2, layer_graph
from tests.nn.test_gat import assert_equal_gradients
from tests.support.layer_cases import FEATURES, batch_cases, relative_error, table
from tests.support.layer_pairs import assert_attention_as_pygs
from tests.support.model_pairs import step_gradients

CASES = batch_cases()
OPTIONS: list[dict[str, Any]] = [
    {},
    {"heads": 4},
    {"heads": 3, "concat": False, "bias": False},
    {"heads": 2, "add_self_loops": False, "negative_slope": 0.5},
    {"heads": 2, "share_weights": True, "residual": True},
    {"heads": 2, "edge_dim": 3, "residual": True, "concat": False},
    {"heads": 2, "edge_dim": 3, "add_self_loops": False},
    {"heads": 2, "edge_dim": 1, "fill_value": 0.5},
    {"heads": 2, "edge_dim": 3, "fill_value": "max"},
]


@pytest.fixture(autouse=True)
def _several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gatv2, "_BLOCK_BYTES", 1000)


def both(
    dtype: torch.dtype, in_channels: Any = FEATURES, **options: Any
) -> tuple[GATv2Conv, torch_geometric.nn.GATv2Conv]:
    torch.manual_seed(3)
    pygs = torch_geometric.nn.GATv2Conv(in_channels, 5, **options)
    torch.manual_seed(3)
    ours = GATv2Conv(in_channels, 5, **options)
    for name, value in pygs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name
    for parameter in pygs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours.load_state_dict(pygs.state_dict())
    return ours.to(dtype), pygs.to(dtype)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_pyg_on_minibatches(dtype: torch.dtype, options: dict[str, Any]) -> None:
    ours, pygs = both(dtype, **options)
    for minibatch in CASES.values():
        assert_attention_as_pygs(ours, pygs, minibatch, (1, 3))


@pytest.mark.parametrize("form", ["tensor", "pair", "weights apart"])
@pytest.mark.parametrize("options", [{"heads": 2}, {"heads": 2, "edge_dim": 3, "residual": True}], ids=str)
def test_equals_pyg_on_a_whole_graph(options: dict[str, Any], form: str) -> None:
    columns = 7 if form == "weights apart" else FEATURES
    ours, pygs = both(torch.float64, (FEATURES, 7) if form == "weights apart" else FEATURES, **options)
    edge_index = torch.stack([torch.randint(30, (90,)), torch.randint(20, (90,))])
    x = torch.randn(30, FEATURES, dtype=torch.float64, requires_grad=True)
    y = torch.randn(20, columns, dtype=torch.float64, requires_grad=True)
    attr = torch.randn(90, 3, dtype=torch.float64, requires_grad=True) if "edge_dim" in options else None
    given = x if form == "tensor" else (x, y)
    found, wanted = ours(given, edge_index, attr), pygs(given, edge_index, attr)
    assert relative_error(found, wanted) < 1e-10
    inputs = [x, *([] if form == "tensor" else [y]), *([] if attr is None else [attr])]
    assert_equal_gradients(step_gradients(ours, found, *inputs), step_gradients(pygs, wanted, *inputs), 1e-10)


def test_returns_attention_weights_as_pyg() -> None:
    ours, pygs = both(torch.float64, heads=3)
    edge_index = torch.randint(20, (2, 90))
    x = torch.randn(20, FEATURES, dtype=torch.float64, requires_grad=True)
    found, (edges, alpha) = ours(x, edge_index, return_attention_weights=True)
    wanted, (their_edges, their_alpha) = pygs(x, edge_index, return_attention_weights=True)
    assert torch.equal(edges, their_edges) and relative_error(alpha, their_alpha) < 1e-10
    mine = step_gradients(ours, torch.cat([found.flatten(), alpha.flatten()]), x)
    theirs = step_gradients(pygs, torch.cat([wanted.flatten(), their_alpha.flatten()]), x)
    assert_equal_gradients(mine, theirs, 1e-10)


def test_dropout_of_attention_is_keyed_and_is_that_of_the_weights() -> None:
    ours, _ = both(torch.float64, heads=2, dropout=0.4, bias=False)
    minibatch = CASES["all neighbours"]
    x = table(torch.float64)[minibatch.node]
    found, (edges, alpha) = ours(x, minibatch, 1, return_attention_weights=True)
    assert torch.equal(found, ours(x, minibatch, 1))
    messages = ours.lin_l(x).view(-1, 2, 5)[edges[0]] * alpha.unsqueeze(-1)
    wanted = torch.zeros(found.size(0), 2, 5, dtype=torch.float64).index_add(0, edges[1], messages)
    assert relative_error(found, wanted.view(-1, 10)) < 1e-10
    assert 0.2 < float((alpha == 0).double().mean()) < 0.6
    assert not torch.equal(alpha[:, 0] == 0, alpha[:, 1] == 0)


def test_reads_rows_in_place_and_updates() -> None:
    ours, _ = both(torch.float32, heads=4)
    minibatch = CASES["ordinary"]
    rows = RowView(table(), minibatch.node)
    plain = ours(rows, minibatch, 1)
    assert torch.equal(plain, ours(table()[minibatch.node], minibatch, 1))
    assert torch.equal(ours(rows, minibatch, 1, update=Update(relu=True)), plain.relu())
    assert torch.equal(plain[: len(ours(rows, minibatch, 3))].isnan(), torch.zeros(5, 20).bool())
    with torch.autocast("cpu", torch.bfloat16):
        half = ours(rows, minibatch, 1)
    assert half.dtype is torch.bfloat16 and relative_error(half, plain) < 0.05
    half.float().square().sum().backward()
    assert all(parameter.grad is not None for parameter in ours.parameters())


def test_the_same_bits_on_any_number_of_threads() -> None:
    edge_index = torch.randint(2000, (2, 40_000))
    x = torch.randn(2000, 32)

    def run(threads: int) -> dict[str, Tensor]:
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        conv, rows = GATv2Conv(32, 16, heads=4), x.clone().requires_grad_()
        return step_gradients(conv, conv(rows, edge_index), rows)

    once = run(1)
    for threads in (2, 3, 8):
        again = run(threads)
        assert all(torch.equal(value, again[name]) for name, value in once.items())


def test_unknown_widths_come_from_the_first_call() -> None:
    conv = GATv2Conv(-1, 4)
    assert conv(table(), torch.randint(60, (2, 50))).shape == (60, 4)
    assert conv.lin_l.weight.shape == conv.lin_r.weight.shape == (4, FEATURES)


def test_refused() -> None:
    minibatch = CASES["ordinary"]
    x = table()[minibatch.node]
    conv = GATv2Conv(FEATURES, 4)
    with pytest.raises(ValueError, match="aggr='max'"):
        GATv2Conv(4, 4, aggr="max")
    with pytest.raises(ValueError, match="fill_value='most'"):
        GATv2Conv(4, 4, fill_value="most")
    with pytest.raises(ValueError, match="sources, targets"):
        conv((x, None), minibatch, 1)
    with pytest.raises(ValueError, match="edge_dim"):
        conv(x, minibatch, 1, edge_attr=torch.ones(minibatch.num_edges, 2))
    with pytest.raises(ValueError, match="attention weighs"):
        conv(Aggregated("mean", x), minibatch)
    assert layer_graph(minibatch, 1).num_targets == len(conv(x, minibatch, 1))
