"""`nn.GINConv` compared with PyG's, on minibatches and on whole graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn
from torch import Tensor

from pyg_batchgnn.nn import GINConv, RowView, layer_graph
from tests.support.accuracy import assert_as_pygs
from tests.support.layer_cases import FEATURES, batch_cases, layer_edges, relative_error, small_graph, table
from tests.support.layer_pairs import assert_updates, gradients

CASES = batch_cases()


def mlp(dtype: torch.dtype) -> torch.nn.Module:
    torch.manual_seed(3)
    layers = [torch.nn.Linear(FEATURES, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5)]
    return torch.nn.Sequential(*layers).to(dtype)


def both(dtype: torch.dtype, **options: Any) -> tuple[GINConv, torch_geometric.nn.GINConv]:
    ours, pygs = GINConv(mlp(dtype), **options).to(dtype), torch_geometric.nn.GINConv(mlp(dtype), **options)
    pygs = pygs.to(dtype)
    pygs.load_state_dict(ours.state_dict())
    ours.load_state_dict(pygs.state_dict())
    return ours, pygs


@pytest.mark.parametrize("options", [{}, {"eps": 0.3}, {"eps": -0.4, "train_eps": True}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_equals_pyg_on_a_minibatch(case: str, dtype: torch.dtype, options: dict[str, Any]) -> None:
    ours, pygs = both(dtype, **options)
    minibatch = CASES[case]
    for layer in (1, 2, 3):
        edges, sources, targets = layer_edges(minibatch, layer)
        assert_as_pygs(
            *(ours, pygs),
            lambda conv, x, layer=layer: conv(x, minibatch, layer),
            lambda conv, x, edges=edges, targets=targets: conv((x, x[:targets]), edges),
            table(dtype)[minibatch.node[:sources]],
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_reads_rows_of_a_table_in_place(dtype: torch.dtype) -> None:
    ours, _ = both(torch.float32, train_eps=True, eps=0.2)
    minibatch = CASES["ordinary"]
    rows = RowView(table(dtype), minibatch.node)
    gathered = table(dtype)[minibatch.node].float()
    found, wanted = ours(rows, minibatch, 1), ours(gathered, minibatch, 1)
    assert found.dtype is torch.float32 and torch.equal(found, wanted)
    for one, two in zip(gradients(ours, found), gradients(ours, wanted), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("form", ["tensor", "pair", "no targets' rows", "size in its place"])
def test_equals_pyg_on_a_whole_graph(form: str) -> None:
    ours, pygs = both(torch.float64, eps=0.2, train_eps=True)
    edge_index = torch.stack([torch.randint(30, (90,)), torch.randint(20, (90,))])
    x, y = (torch.randn(rows, FEATURES, dtype=torch.float64, requires_grad=True) for rows in (30, 20))
    size = (30, 20)
    calls: dict[str, Callable[[Any], Tensor]] = {
        "tensor": lambda conv: conv(x, edge_index),
        "pair": lambda conv: conv((x, y), edge_index),
        "no targets' rows": lambda conv: conv((x, None), edge_index, size=size),
        "size in its place": lambda conv: conv((x, y), edge_index, size),
    }
    found, wanted = calls[form](ours), calls[form](pygs)
    assert relative_error(found, wanted) < 1e-10
    for one, two in zip(gradients(ours, found, x, y), gradients(pygs, wanted, x, y), strict=True):
        assert relative_error(one, two) < 1e-10


def test_gradcheck() -> None:
    ours, _ = both(torch.float64, eps=0.1, train_eps=True)
    minibatch = CASES["duplicate seeds"]
    x = table(torch.float64)[minibatch.node].requires_grad_()
    assert torch.autograd.gradcheck(lambda x, _: ours(x, minibatch, 1), (x, ours.eps), fast_mode=True)


def test_autocast_computes_in_bfloat16() -> None:
    ours, _ = both(torch.float32)
    minibatch = CASES["all neighbours"]
    x = table()[minibatch.node]
    wanted = ours(x, minibatch, 1)
    with torch.autocast("cpu", torch.bfloat16):
        found = ours(x, minibatch, 1)
    assert found.dtype is torch.bfloat16 and relative_error(found, wanted) < 2**-5


def test_update_follows_the_module() -> None:
    ours, _ = both(torch.float32)
    assert_updates(ours, CASES["all neighbours"])


def test_a_module_without_parameters() -> None:
    conv = GINConv(torch.nn.Identity(), eps=1.0)
    minibatch = CASES["ordinary"]
    x = table()[minibatch.node]
    edges, _, targets = layer_edges(minibatch, 1)
    wanted = (2 * x[:targets]).index_add(0, edges[1], x[edges[0]])
    assert relative_error(conv(x, layer_graph(minibatch, 1)), wanted) < 1e-6


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: GINConv(mlp(torch.float32), aggr="max"), ValueError, ["aggr='max'", "torch_geometric"]),
        (lambda: GINConv(mlp(torch.float32), flow="target_to_source"), ValueError, ["flow", "flip"]),
        (lambda: conv()(table()[CASES["ordinary"].node], CASES["ordinary"]), ValueError, ["layer"]),
        (lambda: conv()(table()[:3], CASES["ordinary"], 1), ValueError, ["3 rows"]),
        (lambda: conv()(table(), small_graph().indptr.to_sparse()), TypeError, ["edge_index"]),
        (lambda: conv()(table(torch.float64), torch.zeros(2, 1).long()), TypeError, ["float64"]),
        (lambda: conv()(table(), torch.tensor([[0], [99]])), IndexError, ["99"]),
    ],
)
def test_refused(call: Callable[[], Any], error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        call()
    assert all(word in str(caught.value) for word in words), caught.value


def conv() -> GINConv:
    return GINConv(mlp(torch.float32))
